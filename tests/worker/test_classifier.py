"""The reward model: what it reads, where it reads its score, and what it refuses."""

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from transformers import AutoModelForSequenceClassification
from worker_models import CPU

from backend.contract.model import Lora
from worker.errors import RunFailure
from worker.policy import classifier
from worker.policy.classifier import RewardModel, load_reward_model, new_reward_model
from worker.policy.sources import TINY_ARITHMETIC, Pretrained, resolve

TINY = resolve(TINY_ARITHMETIC, converted=Path("/nowhere"), root=None, checkpoint=None)
CHAT = [{"role": "user", "content": "Calculate 2 + 2 x 6"}]


@pytest.fixture(scope="module")
def model() -> RewardModel:
    return new_reward_model(TINY, CPU, "float32", seed=0)


def test_it_reads_the_chat_as_the_policy_does_then_the_completion_and_the_end(model: RewardModel) -> None:
    ids = model.token_ids(CHAT, "<answer>14</answer>")
    assert model.tokenizer.decode(ids) == "<user>Calculate 2 + 2 x 6<assistant><answer>14</answer><end>"
    assert model.tokenizer.decode(model.token_ids("2 + 2 = ", "4")) == "2 + 2 = 4<end>"


def test_a_score_is_what_transformers_itself_reads_off_a_row_that_is_padded_beside_none(
    model: RewardModel, tmp_path: Path
) -> None:
    model.save(tmp_path)
    opened = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    texts = ["4", "a much longer completion than the others", "", "<answer>14</answer>"]
    sequences = [model.token_ids(CHAT, text) for text in texts]
    with torch.no_grad():
        alone = [opened(input_ids=torch.tensor([sequence])).logits.item() for sequence in sequences]
    assert model.scores(sequences) == pytest.approx(alone, abs=1e-5)
    assert len(set(alone)) == len(alone)


def test_equal_completions_score_exactly_the_same_whatever_batch_they_would_fall_into(
    model: RewardModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ("2 x 6 = 12; 2 + 12 = 14", "2 x 6 = 12; 2 + 12 = 14; and some more to be longer")
    short, long = (model.token_ids(CHAT, f"<think>{text}</think><answer>14</answer>") for text in texts)
    monkeypatch.setattr(classifier, "SCORING_TOKENS", 50 * len(long))
    scores = model.scores([long] * 20 + [short] * 108)
    assert (len(set(scores[:20])), len(set(scores[20:]))) == (1, 1)


def test_the_end_is_read_also_where_it_is_the_padding(model: RewardModel, tmp_path: Path) -> None:
    ids = [model.token_ids(CHAT, text) for text in ("14", "a longer one")]
    expected = model.scores(ids)
    model.save(tmp_path)
    same = load_reward_model(Pretrained(str(tmp_path)), CPU, "float32")
    same.model.config.pad_token_id = same.tokenizer.eos_token_id
    same.tokenizer.pad_token = same.tokenizer.eos_token
    again = RewardModel(same.model, same.tokenizer, CPU, "float32")
    assert again.scores(ids) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("lora", [None, Lora(rank=2)], ids=["all weights", "adapters"])
def test_gradients_reach_all_that_is_trained_and_equal_seeds_begin_alike(model: RewardModel, lora: Lora | None) -> None:
    other = new_reward_model(TINY, CPU, "float32", seed=0, lora=lora)
    ids = [other.token_ids(CHAT, text) for text in ("14", "24")]
    assert other.scores(ids) == model.scores(ids)
    rewards_N = other.rewards_N(ids)
    assert rewards_N.shape == (2,)
    torch.autograd.backward(rewards_N[0] - rewards_N[1])
    named = dict(other.named_parameters())
    assert all(weight.grad is not None for weight in named.values())
    if lora is not None:
        assert len(named) == 4 * 7 * 2 + 1
        assert {name.split(".")[-3] for name in named} == {"lora_A", "lora_B", "modules_to_save"}


def test_saved_adapters_give_the_same_scores_on_their_base_merged_or_trained_on(tmp_path: Path) -> None:
    adapted = new_reward_model(TINY, CPU, "float32", seed=0, lora=Lora(rank=2))
    with torch.no_grad():
        for _, weight in adapted.named_parameters():
            weight.add_(0.05)
    ids = [adapted.token_ids(CHAT, text) for text in ("14", "24")]
    expected = adapted.scores(ids)
    adapted.save(tmp_path)
    saved = Pretrained(str(tmp_path), base=TINY)
    assert load_reward_model(saved, CPU, "float32", trainable=True).scores(ids) == expected
    assert load_reward_model(saved, CPU, "float32").scores(ids) == pytest.approx(expected, abs=1e-4)


def test_saved_adapters_name_their_base_as_the_configuration_did_and_the_hub_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("somebody wanted to connect"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in (TINY_ARITHMETIC, "owner/name"):  # of the second PEFT would ask for the size of its embeddings
        base = replace(TINY, name=name)
        saved, again = tmp_path / name / "saved", tmp_path / name / "again"
        new_reward_model(base, CPU, "float32", seed=0, lora=Lora(rank=2)).save(saved)
        load_reward_model(Pretrained(str(saved), base=base), CPU, "float32", trainable=True).save(again)
        for folder in (saved, again):
            assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == name
            assert TINY.location not in (folder / "README.md").read_text()


def test_what_is_no_reward_model_is_refused(model: RewardModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    for source, label, why in (
        (TINY, 0, r"not a sequence classifier: it lacks score\.weight"),
        (Pretrained(str(tmp_path)), 1, "1 outputs"),
        (Pretrained(str(tmp_path / "nothing")), 0, "cannot be loaded"),
    ):
        with pytest.raises(RunFailure, match=why, check=lambda one: one.code == "reward_model_unavailable"):
            load_reward_model(source, CPU, "float32", label=label)
