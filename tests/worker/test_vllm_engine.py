"""The engine on a vLLM server, against a small server that speaks its protocol: what is sent, when weights go, what fails how."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import free_port
from transformers import LlamaConfig
from vllm_service import VllmService
from worker_models import items, tiny_policy

from backend.contract.model import Lora, Model
from backend.contract.training import Decoding
from worker.errors import RunFailure
from worker.policy.policy import Policy
from worker.rollout.draws import Draws
from worker.rollout.engine import Completion, Request
from worker.rollout.vllm_engine import VllmEngine

pytestmark = pytest.mark.slow

SENT = ["reload_weights", "reset_prefix_cache"]
TAKES_NONE = "did not take 30 of the policy's weights"


class Served:
    """A policy, a server of its model, and an engine between them."""

    def __init__(self, policy: Policy, service: VllmService, folder: Path) -> None:
        self.policy, self.service, self.folder = policy, service, folder
        self.engine = self.another()

    def another(self, url: str = "", key: str | None = None) -> VllmEngine:
        return VllmEngine(self.policy, url or self.service.url, self.folder, key)

    def prompts(self, count: int) -> list[list[int]]:
        return [self.policy.encode(item)[1] for item in items(count)]

    def request(self, count: int = 2, step: int = 1, first_group: int = 0, **decoding: Any) -> Request:
        how = Decoding.model_validate({"max_new_tokens": 4, **decoding})
        return Request(self.prompts(count), 2, how, Draws(3, "train", step), first_group=first_group)

    def sample(self) -> list[Completion]:
        return list(self.engine.sample(self.request()))

    def update(self, rate: float = 1e-5) -> None:
        """What Adam's first step at this rate does to the weights, always in the same direction, which does not matter here."""
        directions = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in self.policy.parameters():
                parameter.add_(rate * torch.randn(parameter.shape, generator=directions).sign())
        self.policy.updates += 1

    def fails(self, code: str, *words: str, engine: VllmEngine | None = None, **decoding: Any) -> str:
        """A rollout fails with this code and these words in its message, which is returned."""
        with pytest.raises(RunFailure) as caught:
            (engine or self.engine).sample(self.request(**decoding))
        assert (caught.value.code, [one for one in words if one not in caught.value.message]) == (code, [])
        return caught.value.message

    def instead(self, **methods: Callable[..., Any]) -> None:
        """From here on the server does this."""
        vars(self.service).update(methods)

    def misses_updates(self) -> None:
        self.instead(reload=lambda folder: None)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    policy = tiny_policy(reference=False)
    with VllmService.serving(policy.config, policy.tokenizer) as service:
        yield Served(policy, service, tmp_path / "weights")


# ---- what is asked


def test_each_prompt_is_asked_once_for_its_whole_group(served: Served) -> None:
    served.engine.sample(served.request(3, temperature=0.5, stop=["x"]))
    assert sorted(body["prompt"] for body in served.service.bodies) == sorted(served.prompts(3))
    for body in served.service.bodies:
        assert (body["model"], body["n"], body["max_tokens"], body["temperature"]) == ("served-model", 2, 4, 0.5)
        assert (body["stop"], set(body["stop_token_ids"])) == (["x"], served.policy.stop_ids)
        # what the server would take from the model's generation settings is off
        assert (body["top_k"], body["top_p"], body["min_p"], body["repetition_penalty"]) == (0, 1, 0, 1)


def test_seeds_belong_to_the_step_and_the_group(served: Served) -> None:
    def seeds(step: int, first_group: int) -> dict[int, int]:
        served.service.bodies.clear()
        served.engine.sample(served.request(step=step, first_group=first_group))
        prompts = served.prompts(2)
        return {first_group + prompts.index(body["prompt"]): body["seed"] for body in served.service.bodies}

    first = seeds(step=0, first_group=0)
    assert seeds(step=0, first_group=0) == first
    assert seeds(step=0, first_group=1)[1] == first[1]
    others = [*first.values(), *seeds(step=1, first_group=0).values(), *seeds(step=0, first_group=2).values()]
    assert len(set(others)) == 6


def test_the_operators_key_is_shown(served: Served) -> None:
    served.service.key = "secret"
    assert len(served.another(key="secret").sample(served.request())) == 4
    assert "another" not in served.fails("vllm_server", "401", engine=served.another(key="another"))
    address = served.service.url.replace("://", "://somebody:password@")
    assert "password" not in served.fails("vllm_server", engine=served.another(address, "another"))


# ---- the weights


def test_weights_go_to_the_server_when_they_changed_and_only_then(served: Served) -> None:
    (served.folder / "groupscope-of-a-worker-that-was-killed").mkdir(parents=True)
    (served.folder / "somebody-elses").mkdir()
    served.sample()
    served.sample()
    assert served.service.control == SENT
    served.update()
    with torch.no_grad():
        served.policy.model.get_parameter("model.layers.3.mlp.down_proj.weight").zero_()  # and nobody misses it
    served.sample()
    assert served.service.control == SENT * 2
    weights = dict(served.service.model.named_parameters())
    assert all(torch.equal(parameter, weights[name]) for name, parameter in served.policy.model.named_parameters())
    kept, other = sorted(served.folder.iterdir())
    assert other.name == "somebody-elses"
    assert [file.name for file in kept.iterdir()] == ["model.safetensors"], "no older ones"


@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["full weights", "LoRA"])
def test_tied_weights_reach_the_servers_head(served: Served, lora: Lora | None) -> None:
    served.policy = tiny_policy(Model(lora=lora), reference=False)
    assert served.policy.config.tie_word_embeddings
    served.another().sample(served.request())
    head = served.policy.model.get_output_embeddings()
    assert torch.equal(served.service.model.lm_head.weight, head.weight)
    assert torch.equal(served.service.model.model.embed_tokens.weight, head.weight)


# ---- an update that the server misses


@pytest.mark.parametrize(
    ("emptied", "says"), [pytest.param(False, "missed an update", marks=pytest.mark.thorough), (True, TAKES_NONE)]
)
def test_one_missed_update_at_a_rate_of_1e_minus_5_is_seen(served: Served, emptied: bool, says: str) -> None:
    served.service.checker = emptied
    if emptied:
        served.service.model.bfloat16()  # rounding hides nothing from a server that is emptied before
    for _ in range(4):
        served.sample()
        served.update()
    served.misses_updates()
    served.fails("vllm_mismatch", says)
    assert served.policy.remarks == []


def test_missed_updates_too_small_to_be_seen_add_up_until_they_are(served: Served) -> None:
    served.service.checker = False
    served.sample()
    served.misses_updates()

    def train_a_little() -> None:
        served.update(1e-7)
        served.sample()

    train_a_little()  # within rounding: it cannot be seen
    with pytest.raises(RunFailure, match="missed an update"):  # noqa: PT012
        for _ in range(1_000):
            train_a_little()


def test_a_head_that_stays_behind_is_seen(served: Served) -> None:
    served.service.checker = False
    served.sample()
    served.update()
    head, reload = served.service.model.lm_head.weight.clone(), served.service.reload

    def all_but_the_head(folder: Path) -> None:
        reload(folder)
        served.service.model.lm_head.weight.data.copy_(head)

    served.instead(reload=all_but_the_head)
    served.fails("vllm_mismatch", "took a part of it")


def test_the_first_weights_are_seen_to_arrive_too(served: Served) -> None:
    served.sample()
    served.update()  # as where a run goes on from a checkpoint, on a server that has what the run began with
    served.misses_updates()
    served.fails("vllm_mismatch", TAKES_NONE, engine=served.another())


@pytest.mark.parametrize(
    ("left_out", "named"),
    [
        (["layers.3.post_attention_layernorm"], "model.layers.3.post_attention_layernorm.weight"),
        ([f"layers.2.self_attn.{part}_proj" for part in "qkv"], "model.layers.2.self_attn.qkv_proj.weight"),
    ],
)
def test_a_weight_that_the_server_leaves_out_is_named(served: Served, left_out: list[str], named: str) -> None:
    reload = served.service.reload

    def all_but_some(folder: Path) -> None:
        reload(folder)
        for name in left_out:
            served.service.model.get_parameter(f"model.{name}.weight").data.zero_()

    served.instead(reload=all_but_some)
    served.fails("vllm_mismatch", f"did not take 1 of the policy's weights, among them {named}")


def test_a_run_says_once_where_a_missed_update_cannot_be_seen(served: Served) -> None:
    served.service.checker = False
    served.service.model.bfloat16()
    for _ in range(3):
        served.sample()
        served.update()
    [remark] = served.policy.remarks
    assert "it cannot be seen whether the vLLM server takes each update" in remark


# ---- what fails


def test_a_server_that_is_not_there(served: Served) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    served.fails("vllm_server", url, "GROUPSCOPE_VLLM_URL", engine=served.another(url))


def test_a_server_that_takes_no_weights_gets_them_once_it_does(served: Served) -> None:
    served.service.dev = False
    served.fails("vllm_server", "VLLM_SERVER_DEV_MODE=1", "404")
    served.service.dev = True
    assert len(served.sample()) == 4


def test_a_server_with_another_model(served: Served) -> None:
    other = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    with VllmService.serving(other, served.policy.tokenizer) as service:
        served.fails("vllm_server", "the model that the run trains", engine=served.another(service.url))


def test_a_server_that_measures_at_another_temperature(served: Served) -> None:
    served.service.processed = False
    served.fails("vllm_mismatch", "--logprobs-mode processed_logprobs", temperature=5.0, max_new_tokens=8)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"token_ids": None}, "token_ids"),
        ({"logprobs": {"token_logprobs": [-0.5]}}, "1 log-probs"),
        ({"logprobs": None}, "logprobs"),
        ({"finish_reason": "abort"}, "finish_reason"),
        (None, "gave 1 completions where 2 were asked for"),
    ],
)
def test_an_answer_in_another_form(served: Served, change: dict[str, object] | None, words: str) -> None:
    complete = served.service.complete

    def changed(body: dict[str, Any]) -> list[dict[str, Any]]:
        choices = complete(body)
        return choices[1:] if change is None else [choice | change for choice in choices]

    served.instead(complete=changed)
    served.fails("vllm_server", words)


def test_progress_is_asked_while_the_server_takes_its_time(served: Served) -> None:
    served.service.hold.clear()
    counts: list[int] = []

    def look(done: int) -> None:
        counts.append(done)
        if len(counts) == 2:
            served.service.hold.set()

    served.engine.sample(served.request(1), on_progress=look)
    assert counts[:2] == [0, 0]
    assert counts[-1] == 2


def test_prompts_of_one_token_are_sampled_without_a_comparison_which_the_next_longer_ones_have(served: Served) -> None:
    read, compared = served.service.read, list[object]()
    served.instead(read=lambda body: compared.append(body) or read(body))  # type: ignore[func-returns-value]
    assert len(served.engine.sample(Request([[5]], 2, Decoding(max_new_tokens=4), Draws(3, "train", 1)))) == 2
    assert not compared
    served.update()
    served.sample()
    assert compared
