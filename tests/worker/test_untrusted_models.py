"""Models that somebody else wrote: nothing in them runs, nothing outside of the allowed places is read, nothing is fetched unasked."""

import io
import json
import os
import pickle
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch

from backend.contract.model import Lora, Model
from worker.errors import RunFailure
from worker.failure import failure
from worker.policy.classifier import load_reward_model, new_reward_model
from worker.policy.loading import load_policy
from worker.policy.sources import TINY_ARITHMETIC, Pretrained, resolve

CPU = torch.device("cpu")
TINY = Path(resolve(TINY_ARITHMETIC, converted=Path("unused"), root=None, checkpoint=None).location)
LOADS_ALTHOUGH_PICKLES_LIE_BESIDE = ("rng_state.pth", "optimizer.pt", "training_args.bin", "pytorch_model.bin")


class Canary:
    """Unpickled, it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.open, (str(self.file), os.O_CREAT)


class Room:
    """A model root with a copy of the tiny model in `model`, and a canary."""

    def __init__(self, folder: Path) -> None:
        self.root, self.canary = folder / "root", folder / "canary"
        self.model = self.root / "model"
        shutil.copytree(TINY, self.model)

    def pickled(self) -> bytes:
        return pickle.dumps({"weight": Canary(self.canary)})

    def zipped(self) -> bytes:
        buffer = io.BytesIO()
        torch.save({"weight": Canary(self.canary)}, buffer)
        return buffer.getvalue()

    def elsewhere(self) -> Path:
        """A model outside of the root, and a link to it."""
        folder = self.root.parent / "elsewhere"
        shutil.copytree(TINY, folder)
        (self.root / "link").symlink_to(folder)
        return folder

    def index(self, file: str) -> None:
        """From here on the model's one weight lies in this file."""
        (self.model / "model.safetensors").rename(self.root / "model.safetensors")
        index = {"metadata": {}, "weight_map": {"lm_head.weight": file}}
        (self.model / "model.safetensors.index.json").write_text(json.dumps(index))

    def adapter(self, base: str) -> Path:
        """An adapter in `adapter`, on the base of this name."""
        folder = self.root / "adapter"
        load_policy(Model(lora=Lora(rank=2)), Pretrained(str(TINY)), CPU).save(folder)
        self.change(folder / "adapter_config.json", base_model_name_or_path=base)
        return folder

    @staticmethod
    def change(file: Path, **values: object) -> None:
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    def resolve(self, name: str, **places: Path) -> Pretrained:
        return resolve(f"local:{name}", converted=self.root / "none", root=self.root, checkpoint=None, **places)

    def load(self, name: str) -> None:
        load_policy(Model(), self.resolve(name), CPU)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def refused(room: Room, name: str, reason: str) -> str:
    """The model is refused in words, once and for all, and nothing in it ran. Returns the details."""
    with pytest.raises(RunFailure, match=reason) as caught:
        room.load(name)
    told = failure(1, caught.value)
    assert (told.error.code, told.retryable) == ("model_unavailable", False)
    assert not room.canary.exists()
    return told.error.details or ""


def test_the_canary_of_these_tests_sings(room: Room) -> None:
    pickle.loads(room.pickled())  # noqa: S301 — that it may is what the others rest on
    assert room.canary.exists()


FORMS = pytest.mark.parametrize("form", [Room.pickled, Room.zipped])


@FORMS
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "shard.bin"])
def test_pickled_weights_are_refused_by_name_and_by_content(
    room: Room, name: str, form: Callable[[Room], bytes]
) -> None:
    if name == "shard.bin":
        room.index(name)
    (room.model / "model.safetensors").unlink(missing_ok=True)
    (room.model / name).write_bytes(form(room))
    refused(room, "model", "cannot be loaded")
    with pytest.raises(RunFailure, match="cannot be loaded"):
        load_reward_model(room.resolve("model"), CPU, "float32")
    assert not room.canary.exists()


@FORMS
def test_pickles_beside_a_model_are_never_opened(room: Room, form: Callable[[Room], bytes]) -> None:
    for name in LOADS_ALTHOUGH_PICKLES_LIE_BESIDE:
        (room.model / name).write_bytes(form(room))
    room.load("model")
    assert not room.canary.exists()


def test_an_adapter_is_merged_into_the_base_that_it_names_unless_its_weights_are_a_pickle(room: Room) -> None:
    for base in (str(room.model), "../model"):
        folder = room.adapter(base)
        room.load("adapter")
    (folder / "adapter_model.safetensors").unlink()
    for form in (room.pickled, room.zipped):
        (folder / "adapter_model.bin").write_bytes(form())
        refused(room, "adapter", "a pickle, which could run code")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"peft_type": "XLORA"}, "XLORA"),
        ({"corda_config": {"cache_file": "evil.pt"}, "init_lora_weights": "corda"}, "corda"),
        ({"megatron_config": {"a": 1}, "megatron_core": "evil"}, "megatron"),
        ({"arrow_config": {"router_temperature": 1}}, "arrow_config"),
        ({"r": "many"}, "cannot be loaded"),
        ({"no such thing": 1}, "no such thing"),
    ],
)
def test_an_adapters_settings_that_do_more_than_apply_it_are_refused(
    room: Room, settings: dict[str, object], named: str
) -> None:
    room.change(room.adapter(str(room.model)) / "adapter_config.json", **settings)
    refused(room, "adapter", named)


def test_an_adapters_base_outside_of_the_allowed_places_is_refused_and_itself(room: Room) -> None:
    elsewhere = room.elsewhere()
    for base in (str(elsewhere), "../../elsewhere", str(room.root / "link"), str(room.root / ".." / "elsewhere"), "~"):
        room.adapter(base)
        refused(room, "adapter", "is not a directory below this worker's model root")
    for itself in ("../adapter", "local:adapter"):
        room.adapter(itself)
        refused(room, "adapter", "names no base model that can be used")


def test_a_model_or_shard_that_a_link_or_two_dots_lead_to_outside_of_its_place_is_refused(room: Room) -> None:
    elsewhere = room.elsewhere()
    refused(room, "link", "no model directory of that name")
    refused(room, "../elsewhere", "no model directory of that name")
    room.index("../model.safetensors")
    refused(room, "model", "not a safetensors file beside it")
    (room.model / "model.safetensors").symlink_to(elsewhere / "model.safetensors")
    refused(room, "model", "a link that leads out")


def test_a_checkpoint_outside_of_the_store_is_not_reached(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "elsewhere" / "model")
    store = tmp_path / "store"
    for checkpoint in (tmp_path / "elsewhere", store / ".." / "elsewhere"):
        with pytest.raises(RunFailure, match="cannot reach that checkpoint"):
            resolve("run:1@1", converted=store, root=None, checkpoint=checkpoint, store=store)


@pytest.mark.parametrize("model_type", ["llama", "of-its-own"])
def test_code_that_a_models_configuration_names_does_not_run(room: Room, model_type: str) -> None:
    code = f"open({str(room.canary)!r}, 'w')\nclass Evil: pass\n"
    for folder in (room.model / "evil.py", room.model / "custom_generate" / "generate.py"):
        folder.parent.mkdir(exist_ok=True)
        folder.write_text(code)
    names = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}
    names["AutoModelForSequenceClassification"] = "evil.Evil"
    room.change(room.model / "config.json", auto_map=names, model_type=model_type)
    room.change(room.model / "tokenizer_config.json", auto_map=names)
    for load in (
        lambda: room.load("model"),
        lambda: load_reward_model(room.resolve("model"), CPU, "float32"),
        lambda: new_reward_model(room.resolve("model"), CPU, "float32", seed=0),
    ):
        with suppress(RunFailure):  # some load what transformers itself knows, and none runs the code
            load()
        assert not room.canary.exists()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Where this process tries to connect to, in a world without a network."""
    tried: list[object] = []

    def look_up(host: object, *_: object, **__: object) -> None:
        tried.append(host)
        raise RuntimeError("no network in this test")  # an error of the network would be tried again for a minute

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    return tried


def test_a_hub_model_that_only_an_adapter_names_is_used_if_the_cache_has_it_and_never_fetched(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: list[object]
) -> None:
    room.adapter("nobody/no-such-model")
    refused(room, "adapter", "nobody/no-such-model is not in this worker's cache")
    cached = tmp_path / "cache" / "models--owner--name"
    shutil.copytree(TINY, cached / "snapshots" / "abc")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    room.adapter("owner/name")
    room.load("adapter")
    assert connections == []


def test_the_base_of_our_own_adapter_is_fetched_since_its_run_named_it(room: Room, connections: list[object]) -> None:
    room.adapter("nobody/no-such-model")
    checkpoint = room.root.parent / "store" / "run-1" / "step-1-attempt-1"
    shutil.copytree(room.root / "adapter", checkpoint / "model")
    with pytest.raises(RuntimeError, match="no network in this test"):
        resolve("run:1@1", converted=room.root, root=None, checkpoint=checkpoint, store=room.root.parent / "store")
    assert connections != []


def test_an_adapter_of_a_language_model_is_no_reward_model(room: Room) -> None:
    room.adapter(str(room.model))
    for load, why in (
        (load_reward_model, r"it is an adapter of a language model: it lacks score\.weight"),
        (lambda *given: new_reward_model(*given, seed=0), "it is an adapter, and a reward model is trained on whole"),
    ):
        with pytest.raises(RunFailure, match=why):
            load(room.resolve("adapter"), CPU, "float32")
        with pytest.raises(RunFailure, match="it is an adapter"):
            load(Pretrained(str(room.root / "adapter")), CPU, "float32")


def test_a_folder_of_the_working_directory_is_not_taken_for_a_hub_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(TINY, tmp_path / "owner" / "name")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunFailure, match="working directory"):
        resolve("owner/name", converted=tmp_path, root=None, checkpoint=None)


def test_a_header_that_claims_to_be_larger_than_any_is_refused(room: Room) -> None:
    weights = room.model / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", 2**62) + weights.read_bytes()[8:])
    details = refused(room, "model", "cannot be loaded")
    assert "Traceback" in details  # a mistake of our own would be found by it
    assert "transformers" in details


_LOAD = """
import resource, sys
from pathlib import Path
import torch
from backend.contract.model import Model
from worker.policy.loading import load_policy
from worker.policy.sources import Pretrained
load_policy(Model(), Pretrained(sys.argv[1]), torch.device("cpu"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
load_policy(Model(), Pretrained(sys.argv[2]), torch.device("cpu"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_a_hundred_thousand_tensors_in_a_file_cost_seconds_and_a_bounded_memory(room: Room) -> None:
    weights = room.model / "model.safetensors"
    whole = weights.read_bytes()
    (size,) = struct.unpack("<Q", whole[:8])
    header, body = json.loads(whole[8 : 8 + size]), whole[8 + size :]
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [len(body), len(body)]}
    text = json.dumps(header | {f"none.{number}": empty for number in range(100_000)}).encode()
    text += b" " * (-len(text) % 8)
    weights.write_bytes(struct.pack("<Q", len(text)) + text + body)
    command = [sys.executable, "-c", _LOAD, str(TINY), str(room.model)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert int(done.stdout.split()[-1]) < 512 * 1024  # KiB; the file has 9 MB of names
