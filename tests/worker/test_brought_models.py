"""Models, adapters and templates as people bring them: each trains as a plain forward computes it, or is refused by name before step 0."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from worker_models import CPU

from backend.contract.model import Lora, Model
from backend.contract.preference import DatasetPairs
from backend.contract.task import Dataset
from worker.errors import RunFailure
from worker.policy import loading
from worker.policy.loading import load_policy, load_reader
from worker.policy.logprobs import TokenBatch
from worker.policy.offered_models import OfferedModels
from worker.policy.policy import Policy
from worker.policy.recomputing import recomputing
from worker.policy.sources import TINY_ARITHMETIC, Pretrained, resolve
from worker.preferences.fitting import STRIPPED
from worker.preferences.fitting import fit as fit_pairs
from worker.preferences.objective import DirectPreference
from worker.preferences.pairs import Pair, Pairs, Response
from worker.rollout.engine import quiet
from worker.tasks.fitting import Reader, fit
from worker.tasks.items import Item, Items

TINY = Path(resolve(TINY_ARITHMETIC, converted=Path("unused"), root=None, checkpoint=None).location)
SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
GROUPED: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 8}
ALL = Model(gradient_checkpointing=True)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML
)
STRIPS = CHATML.replace(
    "{{ m['content'] }}", "{{ m['content'].split('</think>')[-1] if m['role'] == 'assistant' else m['content'] }}"
)


def families() -> list[Any]:
    """Architectures whose layers drop in training, and others; each small, with random weights."""
    dropping = {"opt": {"ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.1, "attention_dropout": 0.1}}
    dropping |= {
        "gpt2": {},
        "gptj": {"rotary_dim": 8},
        "biogpt": {},
        "xglm": {"ffn_dim": 48},
        "bloom": {"hidden_dropout": 0.1},
    }
    dropping |= {
        "gpt_neox": {"hidden_dropout": 0.1, "attention_dropout": 0.1},
        "phi": {"resid_pdrop": 0.1, "embd_pdrop": 0.1},
    }
    dropping |= {
        "codegen": {"rotary_dim": 8},
        "stablelm": {"hidden_dropout": 0.1, **GROUPED},
        "falcon": {"hidden_dropout": 0.1},
    }
    plain = "llama mistral qwen2 qwen3 gemma gemma2 olmo olmo2 starcoder2 granite smollm3 helium".split()
    return [pytest.param(kind, more, id=kind) for kind, more in {**dropping, **dict.fromkeys(plain, GROUPED)}.items()]


class Brought:
    """A model in a folder, changed as somebody's is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(TINY, folder)

    def weights(self, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
        file = self.folder / "model.safetensors"
        save_file(change(load_file(file)), file, {"format": "pt"})

    def config(self, **values: object) -> None:
        file = self.folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    def tokenizer(self, *tokens: str, template: str | None = None) -> None:
        tokenizer = AutoTokenizer.from_pretrained(self.folder)
        tokenizer.add_special_tokens({"additional_special_tokens": list(tokens)})
        if template is not None:
            tokenizer.chat_template = template
        tokenizer.save_pretrained(self.folder)

    def chatml(self, template: str = CHATML) -> None:
        """Two tokens more, with their embeddings, and a template that writes them."""
        self.tokenizer("<|im_start|>", "<|im_end|>", template=template)
        model = AutoModelForCausalLM.from_pretrained(self.folder)
        model.resize_token_embeddings(len(AutoTokenizer.from_pretrained(self.folder)))
        model.save_pretrained(self.folder)

    def family(self, kind: str, **more: object) -> None:
        tokenizer = AutoTokenizer.from_pretrained(self.folder)
        config = AutoConfig.for_model(
            kind, **{**SIZES, **more, "vocab_size": len(tokenizer), "max_position_embeddings": 128}
        )
        config.pad_token_id, config.bos_token_id, config.eos_token_id = None, None, tokenizer.eos_token_id
        torch.manual_seed(0)
        (self.folder / "model.safetensors").unlink()
        AutoModelForCausalLM.from_config(config).save_pretrained(self.folder)

    def adapter(self, folder: Path, rank: int = 2) -> Path:
        policy = load_policy(Model(lora=Lora(rank=rank)), self.source, CPU)
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        policy.save(folder)
        return folder

    @property
    def source(self) -> Pretrained:
        return Pretrained(str(self.folder), name="builtin:none")

    def problem(self) -> str:
        """What the list of models says of it."""
        offered = OfferedModels(self.folder.parent, self.folder.parent / "none", self.folder.parent / "none")
        offered.look()
        return next(one.problem or "" for one in offered.models if one.source == f"local:{self.folder.name}")


@pytest.fixture
def brought(tmp_path: Path) -> Brought:
    return Brought(tmp_path / "root" / "brought")


def trains_as_plain(policy: Policy, expected: Any = None) -> None:
    """The pass that trains gives what transformers' forward gives in evaluation mode, and a step moves the weights."""
    ids = [[3, 5, 7, 4], [6, 2, 8, 9, 3, 4]]
    batch = TokenBatch.of([[4, 6], [4, 6]], ids, CPU)
    with recomputing(policy.model):
        values = policy.logprobs(batch, temperature=1.0)
    plain = policy.model if expected is None else expected
    for row, completion in enumerate(ids):
        with torch.no_grad():
            logits = plain(input_ids=torch.tensor([[4, 6, *completion]])).logits[0, 1:-1].float()
        own = logits.log_softmax(-1).gather(-1, torch.tensor(completion)[:, None])[:, 0]
        assert torch.allclose(values.logprob_R_T[row, : len(completion)], own, atol=1e-5, rtol=0)
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    (-values.logprob_R_T.sum()).backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(policy.parameters(), 0.1).step()
    assert any(not torch.equal(old, new) for old, new in zip(before, policy.parameters(), strict=True))


@pytest.mark.parametrize(("kind", "more"), families())
def test_layers_with_dropout_and_others_train_as_a_plain_forward(
    brought: Brought, kind: str, more: dict[str, Any]
) -> None:
    brought.family(kind, **more)
    policy = load_policy(ALL, brought.source, CPU)
    trains_as_plain(policy, AutoModelForCausalLM.from_pretrained(brought.folder, dtype=torch.float32).eval())
    assert not policy.remarks


@pytest.mark.parametrize("lora", [None, Lora(rank=2)], ids=["all weights", "adapters"])
def test_all_weights_or_new_adapters_train_from_an_adapter(brought: Brought, tmp_path: Path, lora: Lora | None) -> None:
    folder = brought.adapter(tmp_path / "adapter")
    policy = load_policy(Model(lora=lora), Pretrained(str(folder), None, brought.source), CPU)
    assert lora is not None or len(policy.parameters()) > 10
    trains_as_plain(policy)


def _copied_in_eight_bits(brought: Brought) -> None:
    held = load_file(brought.folder / "model.safetensors")
    save_file({name: each.to(torch.int8) for name, each in held.items()}, brought.folder / "consolidated.safetensors")


UNUSUAL: dict[str, Callable[[Brought], object]] = {
    "a mask of truths beside the weights": lambda one: one.weights(
        lambda held: {**held, "rotary_emb.inv_freq": torch.ones(4, 4, dtype=torch.bool)}
    ),
    "a copy in eight bits": _copied_in_eight_bits,
    "weights that the model does not use": lambda one: one.weights(
        lambda held: {**held, "vision.proj": torch.zeros(3)}
    ),
    "fewer layers than its files hold": lambda one: one.config(num_hidden_layers=1, layer_types=None),
    "half precision": lambda one: one.weights(lambda held: {name: each.half() for name, each in held.items()}),
    "twice in its folder": lambda one: shutil.copy(
        one.folder / "model.safetensors", one.folder / "consolidated.safetensors"
    ),
}


@pytest.mark.parametrize("change", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_files_train_and_are_remarked_on(brought: Brought, change: Callable[[Brought], object]) -> None:
    change(brought)
    policy = load_policy(Model(), brought.source, CPU)
    silent = ("a mask of truths beside the weights", "half precision", "twice in its folder", "a copy in eight bits")
    unused = not any(change is UNUSUAL[name] for name in silent)
    assert [("does not use: " in remark) for remark in policy.remarks] == [True] * unused
    trains_as_plain(policy)


def test_a_model_that_lies_twice_in_its_folder_has_the_size_of_what_is_loaded(brought: Brought) -> None:
    UNUSUAL["twice in its folder"](brought)
    offered = OfferedModels(brought.folder.parent, brought.folder, brought.folder)
    offered.look()
    assert [one.parameters for one in offered.models] == [
        sum(one.numel() for one in load_file(TINY / "model.safetensors").values())
    ]


def _renamed(held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.replace("q_proj", "query"): each for name, each in held.items()}


def _first_layer(held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: each for name, each in held.items() if "layers.0." in name}


REFUSED: dict[str, tuple[Callable[[Brought], object], str]] = {
    "a layer is missing": (lambda one: one.weights(_first_layer), "would be drawn at random: "),
    "every key has a prefix": (
        lambda one: one.weights(lambda held: {f"module.{name}": each for name, each in held.items()}),
        "They hold others that it does not know: module.",
    ),
    "its configuration is deeper": (lambda one: one.config(num_hidden_layers=9, layer_types=None), "drawn at random: "),
    "its configuration is wider": (lambda one: one.config(intermediate_size=999), "should be [999, "),
    "stored in eight bits": (
        lambda one: one.weights(lambda held: {name: each.to(torch.int8) for name, each in held.items()}),
        "weights of it are stored as I8, as quantized ones are",
    ),
    "reads both ways": (lambda one: one.family("bert"), "it reads what comes after a token, too"),
    **{
        f"quantized by {method}": (
            lambda one, method=method: one.config(quantization_config={"quant_method": method, "bits": 4}),  # type: ignore[misc]
            f"it is quantized ({method}), and quantized weights cannot be trained",
        )
        for method in ("gptq", "awq", "bitsandbytes", "fp8")
    },
    **{
        kind: (lambda one, kind=kind, more=more: one.family(kind, **more), "it has recurrent layers")  # type: ignore[misc]
        for kind, more in {
            "mamba": {"state_size": 4},
            "lfm2": {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]},
            "qwen3_next": {"num_key_value_heads": 2, "num_experts": 2, "num_experts_per_tok": 1},
            "falcon_h1": {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8},
        }.items()
    },
}


@pytest.mark.parametrize(("change", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_trained_is_refused_by_name(
    brought: Brought, change: Callable[[Brought], object], says: str
) -> None:
    change(brought)
    with pytest.raises(RunFailure, match="cannot be loaded") as refused:
        load_policy(Model(), brought.source, CPU)
    assert says in refused.value.message
    if says.startswith("it "):  # before it is chosen, then
        assert brought.problem().startswith(says)


@pytest.mark.parametrize("change", [_renamed, _first_layer], ids=["renamed keys", "one layer of several"])
@pytest.mark.parametrize("resumed", [True, False], ids=["resumed", "as a base"])
def test_an_adapter_in_part_is_refused(brought: Brought, tmp_path: Path, change: Any, resumed: bool) -> None:
    folder = brought.adapter(tmp_path / "adapter")
    save_file(change(load_file(folder / "adapter_model.safetensors")), folder / "adapter_model.safetensors")
    base, lora = (brought.source, Lora(rank=2)) if resumed else (Pretrained(str(folder), None, brought.source), None)
    with pytest.raises(RunFailure, match=r"adapter_model.safetensors (lacks|has)"):
        load_policy(Model(lora=lora), base, CPU, resume=folder if resumed else None)


def test_a_reference_in_part_is_refused_at_a_resume(brought: Brought, tmp_path: Path) -> None:
    load_policy(Model(), brought.source, CPU).save(tmp_path / "saved")
    brought.weights(_first_layer)
    with pytest.raises(RunFailure, match="drawn at random"):
        load_policy(Model(), brought.source, CPU, resume=tmp_path / "saved", reference=True)


def test_a_pass_that_works_only_in_training_is_refused(brought: Brought) -> None:
    policy = load_policy(ALL, brought.source, CPU, fast=False)
    layer = policy.model.get_decoder().layers[0]
    forward = layer.forward
    layer.forward = lambda x, *given, **named: forward(x + 0.1 * layer.training, *given, **named)
    with pytest.raises(RunFailure, match="in training are"), recomputing(policy.model):
        policy.logprobs(TokenBatch.of([[4, 6]], [[3, 5, 7]], CPU), temperature=1.0)


def test_a_model_that_reads_ahead_is_refused_at_its_first_pass(brought: Brought) -> None:
    torch.manual_seed(0)
    policy = load_policy(ALL, brought.source, CPU, fast=False)
    embed = policy.model.get_input_embeddings().forward
    policy.model.get_input_embeddings().forward = lambda ids: embed(ids) + embed(ids)[:, -1:]
    with pytest.raises(RunFailure, match="reads ahead"):
        policy.logprobs(TokenBatch.of([[4, 6]], [[3, 5, 7]], CPU), temperature=1.0)


def test_an_adapter_in_eight_bits_or_without_a_module_that_it_names_is_refused(
    brought: Brought, tmp_path: Path
) -> None:
    folder = brought.adapter(tmp_path / "adapter")
    weights, settings = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"modules_to_save": ["lm_head"]}))
    with pytest.raises(RunFailure, match=r"lacks '.*lm_head.weight', which its adapter_config.json names"):
        load_policy(Model(), Pretrained(str(folder), None, brought.source), CPU)
    save_file({name: each.to(torch.int8) for name, each in load_file(weights).items()}, weights)
    with pytest.raises(RunFailure, match="stored as I8"):
        load_policy(Model(), Pretrained(str(folder), None, brought.source), CPU)


@pytest.mark.parametrize("ends", ["</s>", [[2]]])
def test_ends_that_are_no_tokens_are_refused_by_name(brought: Brought, ends: Any) -> None:
    (brought.folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    with pytest.raises(RunFailure, match="where tokens have numbers"):
        load_reader(brought.source)


# ---- templates and prompts


def chat_item(question: str, *, system: str = "", row: int | None = None) -> Item:
    turns = ({"role": "system", "content": system},) * bool(system) + ({"role": "user", "content": question},)
    return Item(question, question, turns, "5", {"kind": "exact"}, row=row)


def reader_of(brought: Brought) -> Reader:
    return Reader.of(*load_reader(brought.source))


@pytest.mark.parametrize("template", [CHATML, NO_SYSTEM], ids=["plain", "without a system role"])
def test_a_turn_ends_with_the_token_of_the_template_although_it_is_no_eos(brought: Brought, template: str) -> None:
    brought.chatml(template)
    policy = load_policy(Model(), brought.source, CPU)
    end = policy.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert end != policy.tokenizer.eos_token_id
    assert policy.stop_ids == {end, policy.tokenizer.eos_token_id}
    assert policy.encode_answered(chat_item("1 + 1"), "2")[-1] == end
    trains_as_plain(policy)


def test_the_end_of_a_turn_is_found_in_a_template_that_insists_on_a_system_turn(brought: Brought) -> None:
    brought.chatml(NO_SYSTEM.replace("== 'system'", "!= 'system'"))
    policy = load_policy(Model(), brought.source, CPU)
    assert policy.tokenizer.convert_tokens_to_ids("<|im_end|>") in policy.stop_ids


def test_an_answer_ends_with_the_first_of_several_ends_and_opens_its_thoughts_once(brought: Brought) -> None:
    brought.chatml(
        CHATML.replace("{% endfor %}", "{% endfor %}<e>").replace(
            "assistant\n{% endif %}", "assistant\n<think>{% endif %}"
        )
    )
    policy = load_policy(Model(), brought.source, CPU)
    text = policy.tokenizer.decode(policy.encode_answered(chat_item("1 + 1"), "<think>1</think>2"))
    assert text.endswith("assistant\n<think>1</think>2<|im_end|>")


def test_an_answer_ends_before_the_turn_that_a_template_opens_behind_it(brought: Brought) -> None:
    brought.chatml(CHATML.replace("{% if add_generation_prompt %}", "").replace("{% endif %}", ""))
    chat = reader_of(brought).chat
    item = chat_item("1 + 1")
    prompt = chat.tokens([chat.text(item)], rendered=True)[0]
    assert chat.tokenizer.decode(chat.encode_answered(item, "2")[len(prompt) :]).strip() == "2<|im_end|>"


def test_logits_with_a_cap_are_computed_whole_since_a_small_model_does_not_show_it(brought: Brought) -> None:
    brought.family("gemma2", **GROUPED)
    assert load_policy(ALL, brought.source, CPU).computed_by.startswith("plain")


def test_an_adapter_on_an_embedding_that_is_the_head_is_not_merged(brought: Brought, tmp_path: Path) -> None:
    brought.config(tie_word_embeddings=True)
    brought.weights(lambda held: {name: each for name, each in held.items() if name != "lm_head.weight"})
    lora = Lora(rank=2, target_modules=["embed_tokens", "q_proj"])
    load_policy(Model(lora=lora), brought.source, CPU).save(tmp_path / "adapter")
    with pytest.raises(RunFailure, match="merging would change both"):
        load_policy(Model(), Pretrained(str(tmp_path / "adapter"), None, brought.source), CPU)


def test_an_adapter_without_a_tokenizer_is_read_with_that_of_its_base(brought: Brought, tmp_path: Path) -> None:
    folder = brought.adapter(tmp_path / "adapter")
    for file in folder.glob("token*"):
        file.unlink()
    trains_as_plain(load_policy(Model(), Pretrained(str(folder), None, brought.source), CPU))


def test_what_a_template_strips_of_an_answer_is_trained_on(brought: Brought) -> None:
    brought.chatml(STRIPS)
    policy = load_policy(Model(), brought.source, CPU)
    whole = policy.encode_answered(chat_item("1 + 1"), "<think>1</think>2")
    assert policy.tokenizer.decode(whole).endswith("<think>1</think>2<|im_end|>")
    made = Pair("1", "1 + 1", chat_item("1 + 1").messages, Response("<think>1</think>2"), Response("3"))
    objective, source = DirectPreference(policy, beta=0.1), DatasetPairs(source="upload:1")
    assert fit_pairs(Pairs([made], [], 0), source, objective, quiet)[1] == [STRIPPED]
    trains_as_plain(policy)


def test_a_model_whose_template_ends_no_turn_is_remarked_on(brought: Brought) -> None:
    brought.tokenizer(template="{% for m in messages %}{{ m['content'] }}\n{% endfor %}")
    _, remarks = fit(Items([chat_item("1 + 1")], []), Dataset(source="upload:1"), reader_of(brought), 8, quiet)
    [said] = remarks
    assert said.startswith("the chat template ends an assistant's turn with none of the tokens that end a completion")


LLAMA_2 = (
    "{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] }}<|im_end|>{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "left"),
    [
        (CHATML, ""),
        (LLAMA_2, ""),
        (CHATML.replace("{% if add_generation_prompt %}", "").replace("{% endif %}", ""), ""),  # opened always
        (CHATML.partition("{% if")[0], repr("<|im_start|>assistant")),
    ],
)
def test_a_template_that_does_not_open_the_models_turn_is_remarked_on(
    brought: Brought, template: str, left: str
) -> None:
    brought.chatml(template)
    _, remarks = fit(Items([chat_item("1 + 1")], []), Dataset(source="upload:1"), reader_of(brought), 8, quiet)
    assert ["ignores add_generation_prompt" in said and left in said for said in remarks] == [True] * bool(left)


def test_prompts_rendered_twice_and_open_thoughts_are_remarked_on(brought: Brought) -> None:
    brought.chatml(CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"))
    asked = [chat_item("<|im_start|>user\n1 + 1"), chat_item("1 + 1")]
    _, remarks = fit(Items(asked, []), Dataset(source="upload:1"), reader_of(brought), 8, quiet)
    assert [said.split(",")[0].split(" end ")[0].split(" hold ")[0] for said in remarks] == [
        "1 of 2 prompts",
        "2 of 2 prompts",
    ]


UNFIT: dict[str, tuple[str | None, list[Item], str]] = {
    "a system turn": (
        NO_SYSTEM,
        [chat_item("1 + 1", row=1), chat_item("1 + 1", system="Be brief.", row=2)],
        "Row 2, column prompt: the model's chat template refuses it: System role not supported",
    ),
    "a template that cannot be parsed": (
        "{% for m in messages %}{{ m['content'] }",
        [chat_item("1 + 1", row=1)],
        "Row 1, column prompt: the model's chat template refuses it: ",
    ),
    "a prompt that is too long": (
        None,
        [chat_item("1 + 1", row=1), chat_item("1 + " * 500, row=2)],
        "Row 2, column prompt: ",
    ),
    "a template that reads parts of contents": (
        CHATML.replace("{{ m['content'] }}", "{% for part in m['content'] %}{{ part['text'] }}{% endfor %}"),
        [chat_item("1 + 1", row=1)],
        "Row 1, column prompt: the model's chat template leaves the user's message out",
    ),
    "a template that leaves system turns out": (
        CHATML.replace("<|im_start|>{{", "{% if m['role'] != 'system' %}<|im_start|>{{").replace(
            "\n{% endfor %}", "{% endif %}{% endfor %}"
        ),
        [chat_item("1 + 1", row=1), chat_item("1 + 1", system="Be brief.", row=2)],
        "Row 2, column prompt: the model's chat template leaves the system's message out",
    ),
    "a prompt without tokens": ("", [chat_item("1 + 1", row=1)], "Row 1, column prompt: it has no tokens"),
}


@pytest.mark.parametrize(("template", "asked", "says"), UNFIT.values(), ids=UNFIT)
def test_prompts_that_cannot_be_asked_are_named_or_left_out_if_that_is_wanted(
    brought: Brought, template: str | None, asked: list[Item], says: str
) -> None:
    brought.chatml(CHATML if template is None else template)
    reader, items = reader_of(brought), Items(asked, [])
    with pytest.raises(RunFailure) as refused:
        fit(items, Dataset(source="upload:1"), reader, 8, quiet)
    assert refused.value.code == "prompts_unfit"
    assert says in refused.value.message
    assert ("have them left out (leave_out_unfit)" in refused.value.message) == (len(asked) > 1)
    wanted = Dataset(source="upload:1", leave_out_unfit=True)
    if len(asked) == 1:  # nothing would be left
        with pytest.raises(RunFailure, match="cannot be asked"):
            fit(items, wanted, reader, 8, quiet)
        return
    left, remarks = fit(items, wanted, reader, 8, quiet)
    assert list(left.train) == asked[:1]
    assert "1 of 2 prompts are left out; the first: " in remarks[-1]


def test_tokens_beyond_the_embedding_are_named_with_what_to_do(brought: Brought) -> None:
    brought.tokenizer("<|im_start|>", "<|im_end|>", template=CHATML)
    with pytest.raises(RunFailure, match=r"'<\|im_start\|>'.*model.resize_token_embeddings\(\d+\)"):
        fit(Items([chat_item("1 + 1")], []), Dataset(source="upload:1"), reader_of(brought), 8, quiet)


@pytest.mark.parametrize("wanted", [True, False])
def test_pairs_that_cannot_be_read_are_named_or_left_out(brought: Brought, wanted: bool) -> None:
    objective = DirectPreference(load_policy(Model(), brought.source, CPU, reference=True), beta=0.1)
    long, short = (Response("1 + " * times) for times in (500, 1))
    made = [Pair(f"{row}", "1 + 1", None, answer, Response("3"), row) for row, answer in ((1, short), (7, long))]
    source = DatasetPairs(source="upload:1", leave_out_unfit=wanted)
    if not wanted:
        with pytest.raises(RunFailure, match=r"row 7, “1 \+ 1”: a prompt with its completion has"):
            fit_pairs(Pairs(made, [], 0), source, objective, quiet)
        return
    left, [said] = fit_pairs(Pairs(made, [], 0), source, objective, quiet)
    assert (list(left.train), said[:31]) == (made[:1], "1 of 2 pairs are left out; the ")


def test_a_policy_without_trained_parameters_is_refused(brought: Brought, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = AutoModelForCausalLM.from_pretrained(brought.folder).requires_grad_(False)
    monkeypatch.setattr(loading, "_causal_lm", lambda *_: frozen)
    with pytest.raises(RunFailure, match="has no parameter that is trained"):
        load_policy(Model(), brought.source, CPU)
