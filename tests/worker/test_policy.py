"""Loading policies: adapters on their bases, also in a home that was moved, and models of the Hub, each at one commit for a run."""

import json
import shutil
import socket
from functools import cache
from pathlib import Path
from typing import cast

import gguf
import huggingface_hub.constants
import pytest
import torch
from hub import FIRST, NAME, SECOND, Hub
from peft import PeftModel
from transformers import AutoModelForCausalLM
from worker_models import CPU

from backend.contract.model import Lora, Model
from backend.contract.training import Decoding
from worker.errors import RunFailure
from worker.policy import sources
from worker.policy.classifier import load_reward_model
from worker.policy.loading import load_policy
from worker.policy.sources import SMOLLM2, TINY_ARITHMETIC, Pretrained, commit_of, pinned, resolve
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.sampler import NativeEngine

ADAPTERS = Model(lora=Lora(rank=2))


def named(source: str) -> Pretrained:
    return resolve(source, converted=Path("unused"), root=None, checkpoint=None)


TINY = named(TINY_ARITHMETIC)


@pytest.mark.parametrize("base", [TINY_ARITHMETIC, "local:models/mine", "run:7@20"])
def test_an_adapter_names_its_base_as_people_do_and_opens_on_it_wherever_that_lies(tmp_path: Path, base: str) -> None:
    """Neither what it says nor its model card has a path of this worker; transformers and PEFT open it, too."""
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(TINY.location, old / "root" / "models" / "mine")
    shutil.copytree(TINY.location, old / "store" / "run-7" / "step-20-attempt-3" / "model")

    def opened(home: Path, source: str, checkpoint: Path) -> Pretrained:
        store = home / "store"
        return resolve(source, converted=home, root=home / "root", checkpoint=store / checkpoint, store=store)

    of_base, of_adapter = Path("run-7/step-20-attempt-3"), Path("run-8/step-1-attempt-1")
    policy = load_policy(ADAPTERS, opened(old, base, of_base), CPU)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    policy.save(old / "store" / of_adapter / "model")
    prompt = torch.tensor([policy.tokenizer.encode("Calculate 2 + 2 x 6")])
    expected = policy.model(input_ids=prompt).logits
    old.rename(new)
    folder = new / "store" / of_adapter / "model"
    settings = json.loads((folder / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == ("run-7/step-20-attempt-3/model" if base == "run:7@20" else base)
    texts = [path.read_text() for path in folder.iterdir() if path.suffix in (".json", ".md")]
    assert not [text for text in texts if str(tmp_path) in text or TINY.location in text]
    resumed = load_policy(ADAPTERS, opened(new, base, of_base), CPU, resume=folder)
    assert torch.equal(resumed.model(input_ids=prompt).logits, expected)
    merged = load_policy(Model(), opened(new, "run:8@1", of_adapter), CPU)
    by_hand = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(TINY.location), folder)
    for model in (merged.model, by_hand):
        assert torch.allclose(model(input_ids=prompt).logits, expected, atol=1e-5)


def test_an_adapter_that_names_its_base_by_a_path_of_another_home_is_opened_on_what_lies_there_now_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "smollm2_source", lambda models: f"{models}/made again")
    store = tmp_path / "home" / "checkpoints"
    base, folder = store / "run-1" / "step-2-attempt-1" / "model", store / "run-2" / "step-4-attempt-1" / "model"
    load_policy(Model(), TINY, CPU).save(base)
    load_policy(ADAPTERS, Pretrained(str(base)), CPU).save(folder)
    settings = json.loads((folder / "adapter_config.json").read_text())
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "config.json").write_text("{}")

    def opened(path: str) -> Pretrained:
        (folder / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": path}))
        return resolve("run:2@4", converted=store.parent / "models", root=None, checkpoint=folder.parent, store=store)

    for path, location in (
        ("/old/checkpoints/run-1/step-2-attempt-1/model", str(base)),
        ("/another/venv/lib/python3.11/site-packages/worker/models/tiny_arithmetic", TINY.location),
        ("/old/home/models/smollm2-135m-instruct", f"{store.parent}/models/made again"),
    ):
        found = opened(path).base
        assert found is not None
        assert found.location == location
    for path in ("/old/checkpoints/../../outside", "/old/checkpoints/run-9/none", "/checkpoints"):
        with pytest.raises(RunFailure, match="is not a directory below"):
            opened(path)


def test_an_adapter_opens_no_gpu_but_the_one_that_the_worker_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_policy(ADAPTERS, TINY, CPU).save(tmp_path)
    monkeypatch.setattr("peft.peft_model.infer_device", lambda: pytest.fail("PEFT chose a device by itself"))
    assert load_policy(ADAPTERS, TINY, CPU, resume=tmp_path).adapted


@pytest.mark.parametrize("said", ["CUDA error: an illegal memory access was encountered", "CUDA out of memory"])
@pytest.mark.parametrize("loads", ["transformers.AutoModelForCausalLM", "worker.policy.adapter.PeftModel"])
def test_an_error_of_the_gpu_is_not_taken_for_one_of_the_model(
    said: str, loads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*given: object, **named: object) -> None:
        raise RuntimeError(said)

    load_policy(ADAPTERS, TINY, CPU).save(tmp_path)
    monkeypatch.setattr(f"{loads}.from_pretrained", breaks)
    with pytest.raises(RuntimeError, match=said):
        load_policy(ADAPTERS, TINY, CPU, resume=tmp_path)


@pytest.mark.slow
@pytest.mark.thorough
def test_smollm2_comes_out_of_its_package_and_knows_a_capital(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for read_again in ("GGUFReader", "get_tensor_name_map"):  # transformers reads the file 3 times, the names 397 times
        monkeypatch.setattr(gguf, read_again, cache(getattr(gguf, read_again)))
    source = resolve(SMOLLM2, converted=tmp_path, root=None, checkpoint=None)
    assert Path(source.location).parent == tmp_path  # converted, not found on the Hub
    policy = load_policy(Model(), source, CPU)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = cast(list[int], policy.tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=False))
    how = Decoding(max_new_tokens=12, temperature=0.01)
    (completion,) = NativeEngine(policy).sample(Request([prompt], 1, how, Draws(0, "train")))
    assert "Paris" in policy.tokenizer.decode(completion.ids)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.chdir(tmp_path)
    one = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(one.cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return one


def weights(source: Pretrained) -> torch.Tensor:
    policy = load_policy(Model(), source, CPU)
    return torch.cat([parameter.detach().flatten() for _, parameter in policy.named_parameters()])


def test_a_name_stands_for_the_commit_that_it_has_now_and_a_directory_for_none(hub: Hub) -> None:
    first = pinned(named(NAME))
    assert (first.revision, commit_of(first)) == (FIRST, FIRST)
    hub.move_main(SECOND)
    assert commit_of(pinned(named(NAME))) == SECOND
    assert commit_of(pinned(named(f"{NAME}@{FIRST}"))) == FIRST
    assert commit_of(pinned(named(f"{NAME}@main"))) == SECOND
    assert pinned(TINY, FIRST) == TINY
    assert commit_of(TINY) is None


def test_a_later_attempt_begins_from_the_weights_of_the_first_although_the_name_moved(hub: Hub) -> None:
    before = weights(pinned(named(NAME)))
    hub.move_main(SECOND)
    assert not torch.equal(weights(pinned(named(NAME))), before)
    again = pinned(named(NAME), FIRST)
    assert commit_of(again) == FIRST
    assert torch.equal(weights(again), before)


def test_what_is_trained_on_a_hub_model_names_the_commit_under_it_and_is_opened_on_that(
    hub: Hub, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "run-1" / "step-1-attempt-1"
    load_policy(ADAPTERS, pinned(named(NAME)), CPU).save(checkpoint / "model")
    settings = json.loads((checkpoint / "model" / "adapter_config.json").read_text())
    assert (settings["base_model_name_or_path"], settings["revision"]) == (NAME, FIRST)
    hub.move_main(SECOND)
    opened = resolve("run:1@1", converted=tmp_path, root=None, checkpoint=checkpoint, store=tmp_path)
    assert opened.base == Pretrained(NAME, FIRST, cached=True)


def test_a_model_that_is_not_there_is_refused_with_what_to_do(hub: Hub) -> None:
    with pytest.raises(
        RunFailure, match=r"nobody/nothing cannot be loaded: HF_HUB_OFFLINE is set, .*hf download nobody"
    ):
        named("nobody/nothing")


@pytest.fixture
def questions(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The hosts that this process looked up, in a world whose name service knows none."""
    asked: list[object] = []

    def unknown(host: object, *_: object, **__: object) -> None:
        asked.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    return asked


def test_without_a_connection_a_hub_model_is_refused_after_one_question(questions: list[object]) -> None:
    with pytest.raises(RunFailure) as refused:
        named("nobody/nothing")
    assert len(questions) == 1, "huggingface_hub's own repetitions take two minutes"
    assert refused.value.code == "model_unavailable"
    assert refused.value.message == (
        "The model nobody/nothing cannot be loaded: https://huggingface.co cannot be reached ([Errno -2] Name or service not "
        "known), and this worker's cache has no copy of nobody/nothing; mend the connection, or download it there first (hf download "
        "nobody/nothing)."
    )


def test_without_a_connection_a_hub_model_is_loaded_from_a_whole_cache_and_refused_at_once_from_a_part(
    hub: Hub, questions: list[object]
) -> None:
    source = pinned(named(NAME))
    assert commit_of(source) == FIRST
    load_policy(Model(), source, CPU)
    with pytest.raises(RunFailure, match="not a sequence classifier"):
        load_reward_model(source, CPU, "float32")
    [weights_file] = (hub.cache / "models--owner--name" / "snapshots" / FIRST).glob("*.safetensors")
    weights_file.unlink()
    with pytest.raises(RunFailure, match="owner/name cannot be loaded"):
        load_policy(Model(), source, CPU)
    assert len(questions) == 1
