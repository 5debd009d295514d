"""Loading policies."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import cast

import gguf
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from backend.contract.model import Lora, Model
from backend.contract.training import Decoding
from worker.errors import RunFailure
from worker.policy import sources
from worker.policy.loading import load_policy
from worker.policy.sources import SMOLLM2, TINY_ARITHMETIC, Pretrained, resolve
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.sampler import NativeEngine

CPU = torch.device("cpu")


def tiny() -> Pretrained:
    return resolve(TINY_ARITHMETIC, converted=Path("unused"), root=None, checkpoint=None)


def test_an_adapter_is_opened_on_the_revision_that_it_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_silence", lambda location: None)
    checkpoint = tmp_path / "run-1" / "step-1-attempt-1"
    load_policy(Model(lora=Lora(rank=2)), Pretrained(tiny().location, "v1", name=TINY_ARITHMETIC), CPU).save(
        checkpoint / "model"
    )
    settings = checkpoint / "model" / "adapter_config.json"
    settings.write_text(settings.read_text().replace(TINY_ARITHMETIC, "owner/name"))
    opened = resolve("run:1@1", converted=tmp_path, root=None, checkpoint=checkpoint, store=tmp_path)
    assert opened.base == Pretrained("owner/name", "v1")


@pytest.mark.parametrize("base", [TINY_ARITHMETIC, "local:models/mine", "run:7@20"])
def test_an_adapter_names_its_base_as_people_do_and_opens_on_it_wherever_that_lies(tmp_path: Path, base: str) -> None:
    """Neither what it says nor its model card has a path of this worker; transformers and PEFT open it, too."""
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(tiny().location, old / "root" / "models" / "mine")
    shutil.copytree(tiny().location, old / "store" / "run-7" / "step-20-attempt-3" / "model")

    def opened(home: Path, source: str, checkpoint: Path) -> Pretrained:
        store = home / "store"
        return resolve(source, converted=home, root=home / "root", checkpoint=store / checkpoint, store=store)

    of_base, of_adapter = Path("run-7/step-20-attempt-3"), Path("run-8/step-1-attempt-1")
    policy = load_policy(Model(lora=Lora(rank=2)), opened(old, base, of_base), CPU)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    policy.save(old / "store" / of_adapter / "model")
    prompt = torch.tensor([policy.tokenizer.encode("Calculate 2 + 2 x 6")])
    expected = policy.model(input_ids=prompt).logits
    old.rename(new)
    folder = new / "store" / of_adapter / "model"
    named = json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert named == ("run-7/step-20-attempt-3/model" if base == "run:7@20" else base)
    texts = [path.read_text() for path in folder.iterdir() if path.suffix in (".json", ".md")]
    assert not [text for text in texts if str(tmp_path) in text or tiny().location in text]
    resumed = load_policy(Model(lora=Lora(rank=2)), opened(new, base, of_base), CPU, resume=folder)
    assert torch.equal(resumed.model(input_ids=prompt).logits, expected)
    merged = load_policy(Model(), opened(new, "run:8@1", of_adapter), CPU)
    by_hand = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny().location), folder)
    for model in (merged.model, by_hand):
        assert torch.allclose(model(input_ids=prompt).logits, expected, atol=1e-5)


def test_an_adapter_whose_base_names_itself_is_refused(tmp_path: Path) -> None:
    load_policy(Model(lora=Lora(rank=2)), tiny(), CPU).save(tmp_path / "round")
    settings = tmp_path / "round" / "adapter_config.json"
    settings.write_text(settings.read_text().replace(TINY_ARITHMETIC, "local:round"))
    with pytest.raises(RunFailure, match="names no base model that can be used"):
        resolve("local:round", converted=tmp_path, root=tmp_path, checkpoint=None)


def test_weights_that_are_damaged_are_a_reason_that_a_person_understands(tmp_path: Path) -> None:
    load_policy(Model(), tiny(), CPU).save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(RunFailure, match="cannot be loaded") as caught:
        load_policy(Model(), Pretrained(str(tmp_path)), CPU)
    assert caught.value.code == "model_unavailable"


def test_an_adapter_opens_no_gpu_but_the_one_that_the_worker_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_policy(Model(lora=Lora(rank=2)), tiny(), CPU).save(tmp_path)
    monkeypatch.setattr("peft.peft_model.infer_device", lambda: pytest.fail("PEFT chose a device by itself"))
    assert load_policy(Model(lora=Lora(rank=2)), tiny(), CPU, resume=tmp_path).adapted


@pytest.mark.parametrize("said", ["CUDA error: an illegal memory access was encountered", "CUDA out of memory"])
@pytest.mark.parametrize("loads", ["transformers.AutoModelForCausalLM", "worker.policy.adapter.PeftModel"])
def test_an_error_of_the_gpu_is_not_taken_for_one_of_the_model(
    said: str, loads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*given: object, **named: object) -> None:
        raise RuntimeError(said)

    load_policy(Model(lora=Lora(rank=2)), tiny(), CPU).save(tmp_path)
    monkeypatch.setattr(f"{loads}.from_pretrained", breaks)
    with pytest.raises(RuntimeError, match=said):
        load_policy(Model(lora=Lora(rank=2)), tiny(), CPU, resume=tmp_path)


@pytest.mark.slow
@pytest.mark.thorough
def test_smollm2_comes_out_of_its_package_and_knows_a_capital(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for read_again in ("GGUFReader", "get_tensor_name_map"):  # transformers reads the file 3 times, the names 397 times
        monkeypatch.setattr(gguf, read_again, cache(getattr(gguf, read_again)))
    source = resolve(SMOLLM2, converted=tmp_path, root=None, checkpoint=None)
    assert Path(source.location).parent == tmp_path  # converted, not found on the Hub
    policy = load_policy(Model(), source, CPU)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = cast(
        list[int], policy.tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
    )
    how = Decoding(max_new_tokens=12, temperature=0.01)
    (completion,) = NativeEngine(policy).sample(Request([prompt], 1, how, Draws(0, "train")))
    assert "Paris" in policy.tokenizer.decode(completion.ids)
