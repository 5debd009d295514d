"""What is learned from pairs equals a plain forward pass, however the pairs are split into micro-batches."""

import gc
import math
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from worker_models import CPU, no_memory_once, tiny_policy, weights_hash

from backend.contract.model import Lora, Model
from backend.contract.training import Optimizer
from worker import optimization
from worker.errors import RunFailure
from worker.policy.chat import Chat
from worker.policy.classifier import new_reward_model
from worker.policy.logprobs import TokenBatch, TokenValues
from worker.policy.sources import TINY_ARITHMETIC, resolve
from worker.preferences.objective import BradleyTerry, DirectPreference, Objective, Tokens, Verdict
from worker.preferences.pairs import Pair, Response
from worker.preferences.trainer import PairLearner

KINDS = pytest.mark.parametrize("kind", ["reward_model", "dpo"])


def pair(a: int, b: int, *, right: str = "14", ids: tuple[int, ...] | None = None) -> Pair:
    question = f"Calculate {a} + {b} x 6"
    chat = ({"role": "user", "content": question},)
    wrong = f"<think>{a} + {b} = {a + b}</think><answer>{6 * (a + b)}</answer>"
    return Pair(f"{a}+{b}", question, chat, Response(f"<answer>{right}</answer>", ids), Response(wrong))


PAIRS = [pair(2, 2), pair(3, 5, right="33"), pair(1, 9, right="55"), pair(7, 4, right="31"), pair(8, 8, right="56")]


def objective_of(kind: str, *, model: Model | None = None, beta: float = 0.3) -> Objective:
    if kind == "dpo":
        return DirectPreference(tiny_policy(model), beta=beta)
    source = resolve(TINY_ARITHMETIC, converted=Path("unused"), root=None, checkpoint=None)
    return BradleyTerry(new_reward_model(source, CPU, "float32", seed=0))


def plain_logprob(policy: object, prompt: Sequence[int], completion: Sequence[int]) -> float:
    """Of the whole completion, one sequence at a time, in float64 from the logits on."""
    ids = torch.tensor([[*prompt, *completion]])
    with torch.no_grad():
        logits = policy.model(input_ids=ids).logits[0].double()  # type: ignore[attr-defined]
    chosen = logits[:-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
    return float(chosen[len(prompt) - 1 :].sum())


def test_dpo_measures_what_a_plain_forward_pass_of_policy_and_reference_gives() -> None:
    torch.manual_seed(0)
    policy, reference, beta = tiny_policy(), tiny_policy(reference=False), 0.3
    tokenizer = policy.tokenizer
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
        verdict = DirectPreference(policy, beta=beta).judge(PAIRS)
    for place, one in enumerate(PAIRS):
        prompt = policy.encode(one)[1]
        logps, moved = [], []
        for response in (one.chosen, one.rejected):
            ids = [*tokenizer(response.text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            logps.append(plain_logprob(policy, prompt, ids))
            moved.append(beta * (logps[-1] - plain_logprob(reference, prompt, ids)))
        margin = moved[0] - moved[1]
        measured = {name: float(values[place]) for name, values in verdict.measured.items()}
        names = ("logps/chosen", "logps/rejected", "rewards/chosen", "rewards/rejected")
        assert measured == pytest.approx(dict(zip(names, [*logps, *moved], strict=True)), abs=1e-3)
        assert float(verdict.margin_N[place]) == pytest.approx(margin, abs=1e-3)
        assert float(verdict.loss_N[place]) == pytest.approx(math.log1p(math.exp(-margin)), abs=1e-3)


@pytest.mark.parametrize("empty", ["question", "chosen", "rejected"])
def test_a_pair_with_nothing_to_judge_is_refused_with_its_texts(empty: str) -> None:
    policy = tiny_policy()
    words = Tokenizer(models.WordLevel({"right": 3, "wrong": 4, "why": 5, "?": 6}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    policy.chat = Chat(PreTrainedTokenizerFast(tokenizer_object=words))  # as many, it drops blanks and ends nothing
    whole = Pair("1", "why", None, Response(" right"), Response(" wrong"))
    assert DirectPreference(policy, beta=0.1).lengths(whole) == (2, 2)
    blank = replace(whole, **{empty: " " if empty == "question" else Response(" ")})
    with pytest.raises(RunFailure, match=r" 0 .*“ +”.*leave the row out", check=lambda one: one.code == "empty_pair"):
        DirectPreference(policy, beta=0.1).lengths(blank)


def judged_tokens(tokenizer: PreTrainedTokenizerFast, one: Pair) -> list[list[str]]:
    """The tokens of the prompt, of the chosen and of the rejected completion, as a policy with this tokenizer is trained on them."""
    policy = tiny_policy()
    policy.chat = Chat(tokenizer)
    read: list[Tokens] = []

    def remember(batch: TokenBatch, **_: object) -> NoReturn:
        read.append(Tokens(batch.prompts_R[0], *batch.completions_R))
        assert batch.prompts_R[0] == batch.prompts_R[1]
        raise StopIteration

    policy.logprobs = remember  # type: ignore[assignment]
    with suppress(StopIteration):
        DirectPreference(policy, beta=0.1).judge([one])
    return [tokenizer.convert_ids_to_tokens(list(ids)) for ids in read[0]]


def pieces(*scored: str, **special: str) -> PreTrainedTokenizerFast:
    """A tokenizer in the manner of Llama's: a text begins with ▁, which is a space, and is cut into the longest pieces."""
    vocabulary = [(piece, -1.0 if len(piece) > 1 else -3.0) for piece in ("?", *special.values(), *scored)]
    made = Tokenizer(models.Unigram(vocabulary, unk_id=0))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)


def test_a_completion_begins_with_no_space_that_it_lacks_and_a_token_across_its_beginning_is_judged_with_it() -> None:
    tokenizer = pieces("▁why", ":", "right", "wrong", "▁right", "▁wrong", eos_token="<e>")
    pair = Pair("1", "why:", None, Response("right"), Response(" wrong"))
    assert judged_tokens(tokenizer, pair) == [["▁why", ":"], ["right", "<e>"], ["▁wrong", "<e>"]]
    tokenizer = pieces("▁2", "+", "2", "?", "?4", "5", eos_token="<e>")
    pair = Pair("1", "2+2?", None, Response("4"), Response("5"))
    assert judged_tokens(tokenizer, pair) == [["▁2", "+", "2"], ["?4", "<e>"], ["?", "5", "<e>"]]


CHATML = (
    "{% for m in messages %}<|s|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}THOUGHT{% endif %}{{ m.content }}<|e|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|s|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("thought", ["", "<think></think>"])
def test_a_chat_is_read_as_its_template_renders_it_whole_and_ends_with_the_turn(thought: str) -> None:
    """The template's newline behind the turn is never sampled: the model has ended before."""
    made = Tokenizer(models.WordLevel({char: at for at, char in enumerate(map(chr, range(10, 123)))}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="<|e|>",
        additional_special_tokens=["<|s|>"],
        chat_template=CHATML.replace("THOUGHT", thought),
    )
    chat = ({"role": "user", "content": "Why?"},)
    answered = [[*chat, {"role": "assistant", "content": text}] for text in ("Yes", "No way")]
    wholes = [tokenizer.apply_chat_template(turns, tokenize=True)["input_ids"] for turns in answered]
    pair = Pair("1", "Why?", chat, Response("Yes"), Response("No way"))
    prompt, *completions = judged_tokens(tokenizer, pair)
    assert prompt == tokenizer.tokenize("<|s|>user\nWhy?<|e|>\n<|s|>assistant\n")
    for completion, whole in zip(completions, wholes, strict=True):
        assert [*prompt, *completion, "\n"] == tokenizer.convert_ids_to_tokens(whole)
        assert completion[-1] == "<|e|>"


def test_a_template_that_rewrites_the_question_once_it_is_answered_leaves_the_prompt_as_it_is_sampled() -> None:
    tokenizer = tiny_policy().tokenizer
    template = "{% if messages[-1].role == 'assistant' %}Then: {% endif %}"
    rewriting = template + str(tokenizer.chat_template)
    before = judged_tokens(tokenizer, PAIRS[0])
    tokenizer.chat_template = rewriting
    assert judged_tokens(tokenizer, PAIRS[0]) == before


def test_the_reference_is_asked_once_for_each_pair_also_after_a_resume() -> None:
    """Asked again among other pairs it would be rounded differently: a checkpoint keeps what it said."""
    policy, asked = tiny_policy(), list[int]()
    plain = policy.reference_logprobs

    def counted(batch: TokenBatch, *, temperature: float) -> TokenValues:
        asked.append(len(batch.completions_R))
        return plain(batch, temperature=temperature)

    policy.reference_logprobs = counted  # type: ignore[method-assign]
    objective = DirectPreference(policy, beta=0.3)
    assert objective.state() is None
    first = objective.judge(PAIRS[:3])
    again = objective.judge(PAIRS[:3])
    objective.judge(PAIRS[2:])
    assert asked == [6, 4]
    for one, other in zip(first.measured.values(), again.measured.values(), strict=True):
        assert torch.equal(one, other)
    state = objective.state()
    assert state is not None
    assert {name: tuple(value.shape) for name, value in state.items()} == {"pairs": (5, 16), "logprobs": (5, 2)}
    resumed = DirectPreference(policy, beta=0.3)
    resumed.restore(state)
    for some in (PAIRS, PAIRS[::-1]):
        assert torch.equal(resumed.judge(some).margin_N, objective.judge(some).margin_N)
    assert asked == [6, 4]
    other_answer = replace(PAIRS[0], chosen=Response("<answer>15</answer>"))
    resumed.judge([other_answer])
    assert asked == [6, 4, 2]


@KINDS
def test_a_pair_is_tokenized_once_and_judged_as_before(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = objective_of(kind)
    lengths, first = [objective.lengths(one) for one in PAIRS], objective.judge(PAIRS)
    monkeypatch.setattr(objective.trained, "chat" if kind == "dpo" else "tokenizer", None)
    assert [objective.lengths(one) for one in PAIRS] == lengths
    assert torch.equal(objective.judge(PAIRS).margin_N, first.margin_N)
    with pytest.raises((AttributeError, TypeError)):  # another answer to the same prompt is another pair
        objective.judge([replace(PAIRS[0], chosen=Response("<answer>15</answer>"))])


@KINDS
def test_a_model_that_learned_from_pairs_is_gone_with_its_objective(kind: str) -> None:
    """A GPU's memory does not call Python's collector."""
    objective = objective_of(kind)
    objective.judge(PAIRS)
    held = [weakref.ref(one) for _, one in objective.trained.named_parameters()]
    gc.collect()
    gc.disable()
    try:
        del objective
        assert not [one for one in held if one() is not None]
    finally:
        gc.enable()


def test_sampled_tokens_are_judged_as_they_were_sampled_not_as_their_text_is_tokenized_again() -> None:
    cut_off = pair(2, 2, ids=(5, 6, 7))
    objective = DirectPreference(tiny_policy(), beta=0.1)
    prompt = len(tiny_policy(reference=False).encode(cut_off)[1])
    assert objective.lengths(cut_off)[0] == prompt + 3


def test_a_reward_model_scores_both_completions_as_it_does_when_it_is_a_reward() -> None:
    objective = objective_of("reward_model")
    assert isinstance(objective, BradleyTerry)
    verdict, model = objective.judge(PAIRS), objective.trained
    for place, one in enumerate(PAIRS):
        scores = model.scores([model.token_ids(one.messages or "", r.text) for r in (one.chosen, one.rejected)])
        assert float(verdict.margin_N[place]) == pytest.approx(scores[0] - scores[1], abs=1e-5)


@KINDS
@pytest.mark.slow
def test_the_update_does_not_depend_on_how_the_pairs_are_split(kind: str) -> None:
    moved = []
    for tokens in (16, 200, 100_000):
        objective = objective_of(kind)
        learner = PairLearner(objective, Optimizer(learning_rate=1e-3, micro_batch_tokens=tokens), steps=1)
        update = learner.update(0, PAIRS)
        moved.append((update, [parameter.detach().clone() for _, parameter in objective.trained.named_parameters()]))
    whole, weights = moved[-1]
    for update, others in moved[:-1]:
        assert update.metrics == pytest.approx(whole.metrics, rel=1e-3, abs=1e-5)
        assert update.tokens == whole.tokens
        # AdamW's first step is a sign times the rate: where a gradient is about 0 its sign is rounding
        same = [torch.isclose(a, b, atol=1e-5).float().mean().item() for a, b in zip(weights, others, strict=True)]
        assert min(same) > 0.97


@KINDS
@pytest.mark.slow
def test_a_few_updates_put_the_chosen_completions_first(kind: str) -> None:
    objective = objective_of(kind)
    learner = PairLearner(objective, Optimizer(learning_rate=3e-4), steps=12)
    before = learner.examine(PAIRS)
    for step in range(12):
        learner.update(step, PAIRS)
    after = learner.examine(PAIRS)
    assert after["eval/loss"] < before["eval/loss"]
    assert after["eval/accuracy"] == 1.0


@KINDS
def test_memory_that_runs_out_in_a_pairs_update_is_taken_from_the_sampler_and_the_update_is_the_same(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    untouched, short = objective_of(kind), objective_of(kind)
    expected = PairLearner(untouched, Optimizer(), steps=1).update(0, PAIRS[:2])
    asked = list[str]()
    no_memory_once(monkeypatch)
    learner = PairLearner(short, Optimizer(), steps=1, make_room=lambda: asked.append("slots") is None)
    assert (learner.update(0, PAIRS[:2]), asked) == (expected, ["slots"])
    assert weights_hash(short.trained) == weights_hash(untouched.trained)
    assert any("memory ran out" in remark for remark in short.remarks)
    no_memory_once(monkeypatch)
    with pytest.raises(torch.OutOfMemoryError):
        PairLearner(objective_of(kind), Optimizer(), steps=1).update(0, PAIRS[:2])


def test_memory_that_runs_out_where_held_out_pairs_are_judged_is_taken_from_the_sampler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objective = objective_of("dpo")
    asked, failing, judge = list[str](), iter([True]), objective.judge

    def out_of_memory_once(pairs: Sequence[Pair]) -> Verdict:
        if next(failing, False):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return judge(pairs)

    monkeypatch.setattr(objective, "judge", out_of_memory_once)
    learner = PairLearner(objective, Optimizer(), steps=1, make_room=lambda: asked.append("slots") is None)
    assert "eval/loss" in learner.examine(PAIRS[:2])
    assert asked == ["slots"]


def test_the_first_step_on_pairs_takes_the_samplers_memory_where_its_moments_would_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[str]()
    learner = PairLearner(objective_of("dpo"), Optimizer(), steps=2, make_room=lambda: asked.append("slots") is None)
    monkeypatch.setattr(optimization, "free_bytes", lambda device: 1000)
    for step in range(2):
        learner.update(step, PAIRS[:2])
    assert asked == ["slots"]


def test_with_adapters_the_reference_is_the_model_without_them() -> None:
    objective = objective_of("dpo", model=Model(lora=Lora(rank=4, alpha=8)))
    learner = PairLearner(objective, Optimizer(learning_rate=1e-2), steps=3)
    assert learner.examine(PAIRS)["eval/margin"] == pytest.approx(0, abs=1e-5)
    for step in range(3):
        learner.update(step, PAIRS)
    assert learner.examine(PAIRS)["eval/margin"] > 0.1


def test_a_gradient_that_is_not_finite_changes_nothing_and_the_third_in_a_row_ends_the_run() -> None:
    objective = objective_of("dpo", beta=math.inf)
    learner = PairLearner(objective, Optimizer(), steps=9)
    before = weights_hash(objective.trained)
    for step in range(2):
        update = learner.update(step, PAIRS)
        assert update.fault
        assert math.isnan(update.metrics["grad_norm"])
    with pytest.raises(RunFailure, match="3 steps in a row, the last being step 2") as caught:
        learner.update(2, PAIRS)
    assert caught.value.code == "diverged"
    assert weights_hash(objective.trained) == before


@KINDS
def test_without_a_gradient_momentum_and_decay_move_nothing(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Also behind a step that left momentum. A loss times 0 stands for margins so large that nothing is left to learn."""
    objective = objective_of(kind)
    learner = PairLearner(objective, Optimizer(learning_rate=1e-3, weight_decay=0.1), steps=2)
    assert learner.update(0, PAIRS[:2]).metrics["grad_norm"] > 0
    before = {name: parameter.detach().clone() for name, parameter in objective.trained.named_parameters()}
    judge = objective.judge
    monkeypatch.setattr(objective, "judge", lambda pairs: replace(found := judge(pairs), loss_N=found.loss_N * 0))
    assert learner.update(1, PAIRS[:2]).metrics["grad_norm"] == 0
    assert all(torch.equal(before[name], parameter) for name, parameter in objective.trained.named_parameters())
