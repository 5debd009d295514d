"""What a worker says of the models on its disk: sizes without loading a weight, and nothing that lies outside."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hub import NAME, Hub
from processes import wait_until
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM
from worker_models import CPU

from backend.catalog import SHAPES
from backend.contract.model import Lora, Model
from backend.contract.model_shape import COUNTED, shape_in
from backend.contract.records import MOST_MODELS, OfferedModel
from worker.policy import offered_models, sources
from worker.policy.loading import load_policy
from worker.policy.offered_models import OfferedModels, shape_of
from worker.policy.sources import SMOLLM2, TINY_ARITHMETIC, Pretrained, resolve

TINY = Path(resolve(TINY_ARITHMETIC, converted=Path("unused"), root=None, checkpoint=None).location)
SHAPE = SHAPES[TINY_ARITHMETIC]
NOT_CAUSAL = "it is of the kind {}, and only causal language models are trained"
SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}


class Disk:
    """A model root and an empty cache of the Hub."""

    def __init__(self, folder: Path) -> None:
        self.root, self._folder = folder / "root", folder
        self.root.mkdir()
        self.cache = folder / "hub"
        self._offered: OfferedModels | None = None

    def put(self, name: str) -> Path:
        return Path(shutil.copytree(TINY, self.root / name))

    def change(self, name: str, **values: object) -> None:
        file = self.root / name / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    def offered(self) -> dict[str, OfferedModel]:
        """As the same worker sees it at its next look."""
        self._offered = self._offered or self.watched()
        self._offered.look()
        return {one.source: one for one in self._offered.models}

    def watched(self) -> OfferedModels:
        """Looked at all the while, once it is entered."""
        return OfferedModels(self.root, self._folder / "converted", self.cache)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_directory_is_offered_with_its_size_and_its_shape_without_a_look_at_its_weights(disk: Disk) -> None:
    [weights] = disk.put("lab/tiny").glob("*.safetensors")
    header = 8 + int.from_bytes(weights.read_bytes()[:8], "little")
    sparse = weights.with_name("sparse")
    with sparse.open("wb") as file:  # the same header, and weights that were never written
        file.write(weights.read_bytes()[:header])
        file.truncate(weights.stat().st_size)
    sparse.replace(weights)
    one = OfferedModel(source="local:lab/tiny", parameters=SHAPE.parameters, shape=SHAPE)
    assert disk.offered() == {"local:lab/tiny": one}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("config", "model"), [(LlamaConfig, LlamaForCausalLM), (Qwen2Config, Qwen2ForCausalLM)], ids=["llama", "qwen2"]
)
def test_the_shape_accounts_for_the_weights_of_a_model(
    config: type[LlamaConfig | Qwen2Config], model: type[PreTrainedModel], tied: bool
) -> None:
    made = config(vocab_size=512, num_key_value_heads=2, tie_word_embeddings=tied, **SIZES)
    counted = sum(one.numel() for one in model(made).parameters())
    biases = 3 * (64 + 2 * 32) if config is Qwen2Config else 0
    shape = shape_of(made)
    assert shape is not None
    assert shape.parameters + biases == counted


def test_a_new_directory_and_a_changed_one_are_seen_at_the_next_look(disk: Disk) -> None:
    assert disk.offered() == {}
    [weights] = disk.put("tiny").glob("*.safetensors")
    first = disk.offered()["local:tiny"].parameters
    tensors = load_file(weights)
    save_file({**tensors, "more": torch.zeros(5)}, weights, {"format": "pt"})
    assert first is not None
    assert disk.offered()["local:tiny"].parameters == first + 5


@pytest.mark.parametrize("package", [True, False], ids=["with the package", "without it"])
def test_to_list_an_adapter_on_smollm2_nothing_is_converted_and_the_hub_is_not_asked(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: bool
) -> None:
    if not package:
        monkeypatch.setattr(sources, "find_spec", lambda name: None)
    for name in ("_convert", "_silence"):
        monkeypatch.setattr(sources, name, lambda *_, called=name: pytest.fail(f"{called} was called"))
    base = disk.put("base")
    load_policy(Model(lora=Lora(rank=2)), Pretrained(str(base), name=SMOLLM2), CPU).save(disk.root / "adapter")
    assert disk.offered()["local:adapter"] == OfferedModel(source="local:adapter")
    shutil.copytree(TINY, tmp_path / "converted" / SMOLLM2.removeprefix("builtin:"))  # as a run leaves it
    one = OfferedModel(source="local:adapter", parameters=SHAPE.parameters, shape=SHAPE)
    assert disk.offered()["local:adapter"] == one


def test_what_was_downloaded_from_the_hub_is_offered_by_its_name_with_or_without_its_weights(
    disk: Disk, tmp_path: Path
) -> None:
    Hub(tmp_path)
    assert disk.offered() == {NAME: OfferedModel(source=NAME, parameters=SHAPE.parameters, shape=SHAPE)}
    for weights in disk.cache.rglob("*.safetensors"):
        weights.unlink()
    assert disk.offered()[NAME].parameters == SHAPE.parameters  # as its config describes it


def test_a_model_that_writes_no_text_is_not_offered_from_the_cache_and_refused_below_the_root(
    disk: Disk, tmp_path: Path
) -> None:
    Hub(tmp_path)
    disk.put("classifier")
    other = ["LlamaForSequenceClassification"]
    disk.change("classifier", architectures=other)
    for config in disk.cache.rglob("config.json"):
        config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": other}))
    [only] = disk.offered().values()
    assert only.source == "local:classifier"
    assert only.problem == NOT_CAUSAL.format("LlamaForSequenceClassification")


@pytest.mark.parametrize(
    ("model_type", "kind", "problem"),
    [
        ("gpt2", ["GPT2LMHeadModel"], None),
        ("gemma3", ["Gemma3ForConditionalGeneration"], None),
        ("openai-gpt", ["OpenAIGPTLMHeadModel"], None),
        ("llama", ["LLaMAForCausalLM"], None),
        ("gpt2", None, None),
        ("clip", None, NOT_CAUSAL.format("clip")),
    ],
)
def test_what_transformers_loads_as_a_causal_language_model_can_be_trained_whatever_it_is_called(
    disk: Disk, model_type: str, kind: list[str] | None, problem: str | None
) -> None:
    disk.put("tiny")
    disk.change("tiny", model_type=model_type, architectures=kind)
    assert disk.offered()["local:tiny"].problem == problem


@pytest.mark.parametrize("kind", sorted(COUNTED))
def test_what_a_config_json_leaves_out_is_what_transformers_takes_for_it(kind: str) -> None:
    made = AutoConfig.for_model(kind, **SIZES)
    left_out = {"model_type": kind, **SIZES, "vocab_size": made.vocab_size}
    given, known = shape_in(left_out), shape_of(made)
    assert known is not None
    assert given.model_copy(update={"context": known.context}) == known


@pytest.mark.parametrize("change", [{"model_type": "gpt2", "n_embd": 128}, {"hidden_size": 4 * 10**30}])
def test_another_architecture_and_dimensions_beyond_any_model_have_a_size_and_no_shape(
    disk: Disk, change: dict[str, object]
) -> None:
    disk.put("tiny")
    disk.change("tiny", **change)
    one = disk.offered()["local:tiny"]
    assert (one.parameters, one.shape) == (SHAPE.parameters, None)


def test_a_link_out_of_the_root_is_not_followed(disk: Disk, tmp_path: Path) -> None:
    outside = Path(shutil.copytree(TINY, tmp_path / "outside"))
    (disk.root / "linked").symlink_to(outside)
    disk.put("half")
    (disk.root / "half" / "model.safetensors").unlink()
    (disk.root / "half" / "model.safetensors").symlink_to(outside / "model.safetensors")
    [only] = disk.offered().values()
    assert (only.source, only.parameters) == ("local:half", None)
    assert "model.safetensors in it is a link that leads out of" in (only.problem or "")


UNREADABLE = {
    "empty": "",
    "a list": "[]",
    "deep": "[" * 100_000,
    "unknown": '{"model_type": "nobody-knows"}',
    "a text for a number": '{"model_type": "llama", "hidden_size": "wide"}',
    "zeros": '{"model_type": "llama", "hidden_size": 0, "num_attention_heads": 0}',
    "code of its own": '{"model_type": "nobody-knows", "auto_map": {"AutoConfig": "code.Config"}}',
    "a number for a kind": '{"model_type": "llama", "architectures": [7]}',
    "a kind": '{"model_type": "llama", "architectures": "LlamaForCausalLM"}',
    "a table": '{"model_type": "llama", "architectures": {"LlamaForCausalLM": 1}}',
}


@pytest.mark.parametrize("config", UNREADABLE.values(), ids=UNREADABLE)
def test_a_config_that_cannot_be_read_says_so_and_hides_no_other_model(disk: Disk, config: str) -> None:
    disk.put("broken")
    (disk.root / "broken" / "config.json").write_text(config)
    (disk.root / "broken" / "code.py").write_text(f"open({str(disk.root / 'ran')!r}, 'w')")
    disk.put("tiny")
    offered = disk.offered()
    assert (offered["local:broken"].problem or "").startswith("broken cannot be read: ")
    assert offered["local:tiny"].problem is None
    assert not (disk.root / "ran").exists()


def test_a_model_without_its_weights_says_what_is_missing(disk: Disk) -> None:
    for name in ("pickled", "half"):
        (disk.put(name) / "model.safetensors").unlink()
    (disk.root / "pickled" / "pytorch_model.bin").touch()
    shards = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (disk.root / "half" / "model.safetensors.index.json").write_text(json.dumps(shards))
    shutil.copy(TINY / "model.safetensors", disk.root / "half" / "model-1-of-2.safetensors")
    offered = disk.offered()
    assert (offered["local:pickled"].problem or "").startswith("it has no weights in a safetensors file")
    assert (offered["local:half"].problem or "").startswith("it lacks model-2-of-2.safetensors, which its")
    (disk.root / "half" / "model-1-of-2.safetensors").rename(disk.root / "half" / "model-2-of-2.safetensors")
    (disk.root / "half" / "model.safetensors.index.json").write_text("[")
    assert "model.safetensors.index.json cannot be read" in (disk.offered()["local:half"].problem or "")


def test_names_that_no_configuration_could_give_and_hidden_folders_are_left_out(disk: Disk) -> None:
    for name in (".hidden", "with space", "a/b/c/too-deep"):
        disk.put(name)
    assert disk.offered() == {}


def test_no_more_are_offered_than_a_claim_carries(disk: Disk) -> None:
    for number in range(MOST_MODELS + 1):
        folder = disk.root / f"m{number:03}"
        folder.mkdir()
        (folder / "config.json").write_bytes((TINY / "config.json").read_bytes())
    assert list(disk.offered()) == [f"local:m{number:03}" for number in range(MOST_MODELS)]


def test_whatever_goes_wrong_at_a_look_there_is_another_one(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offered_models, "LOOK_SECONDS", 0.01)
    fails = iter([OSError("the disk went away"), ZeroDivisionError("a library's mistake")])
    read = offered_models._described

    def described(source: str, folder: Path) -> OfferedModel:
        for error in fails:
            raise error
        return read(source, folder)

    monkeypatch.setattr(offered_models, "_described", described)
    disk.put("tiny")
    with disk.watched() as offered:
        wait_until(lambda: offered.models, "the model is listed")
    [one] = offered.models
    assert one.source == "local:tiny"
