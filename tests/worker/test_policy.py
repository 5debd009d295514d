"""Loading policies."""

from pathlib import Path
from typing import cast

import pytest
import torch

from backend.contract.model import Lora, Model
from backend.contract.training import Decoding
from worker.errors import RunFailure
from worker.policy.loading import load_policy
from worker.policy.sources import SMOLLM2, TINY_ARITHMETIC, Pretrained, resolve
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.sampler import NativeEngine

CPU = torch.device("cpu")


def tiny() -> Pretrained:
    return resolve(TINY_ARITHMETIC, converted=Path("unused"), root=None, checkpoint=None)


def test_an_adapter_is_opened_on_the_revision_that_it_was_trained_on(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run-1" / "step-1-attempt-1"
    load_policy(Model(lora=Lora(rank=2)), Pretrained(tiny().location, "v1"), CPU).save(checkpoint / "model")
    settings = checkpoint / "model" / "adapter_config.json"
    settings.write_text(settings.read_text().replace(tiny().location, "owner/name"))
    opened = resolve("run:1@1", converted=tmp_path, root=None, checkpoint=checkpoint, store=tmp_path)
    assert opened.base == Pretrained("owner/name", "v1")


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
def test_smollm2_comes_out_of_its_package_and_knows_a_capital(tmp_path: Path) -> None:
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
