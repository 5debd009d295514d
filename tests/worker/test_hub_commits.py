"""A model of the Hub is one commit for a run: weights and tokenizer, in every attempt."""

import json
import socket
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from hub import FIRST, NAME, SECOND, Hub

from backend.contract.model import Lora, Model
from worker.errors import RunFailure
from worker.policy.classifier import load_reward_model
from worker.policy.loading import load_policy
from worker.policy.policy import Policy
from worker.policy.sources import TINY_ARITHMETIC, Pretrained, commit_of, pinned, resolve

CPU = torch.device("cpu")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.chdir(tmp_path)
    one = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(one.cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return one


def named(source: str) -> Pretrained:
    return resolve(source, converted=Path("converted"), root=None, checkpoint=None)


def load(source: Pretrained, model: Model | None = None) -> Policy:
    return load_policy(model or Model(), source, CPU)


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for _, parameter in policy.named_parameters()])


def test_a_name_stands_for_the_commit_that_it_has_now(hub: Hub) -> None:
    first = pinned(named(NAME))
    assert (first.revision, commit_of(first)) == (FIRST, FIRST)
    hub.move_main(SECOND)
    assert commit_of(pinned(named(NAME))) == SECOND
    assert commit_of(pinned(named(f"{NAME}@{FIRST}"))) == FIRST
    assert commit_of(pinned(named(f"{NAME}@main"))) == SECOND


def test_a_later_attempt_begins_from_the_weights_of_the_first_although_the_name_moved(hub: Hub) -> None:
    before = weights(load(pinned(named(NAME))))
    hub.move_main(SECOND)
    assert not torch.equal(weights(load(pinned(named(NAME)))), before)
    again = pinned(named(NAME), FIRST)
    assert commit_of(again) == FIRST
    assert torch.equal(weights(load(again)), before)


def test_what_is_trained_on_a_hub_model_names_the_commit_under_it(hub: Hub, tmp_path: Path) -> None:
    policy = load(pinned(named(NAME)), Model(lora=Lora(rank=2, alpha=4)))
    policy.save(tmp_path / "model")
    settings = json.loads((tmp_path / "model" / "adapter_config.json").read_text())
    assert (settings["base_model_name_or_path"], settings["revision"]) == (NAME, FIRST)


def test_a_model_that_lies_on_the_disk_has_no_commit(hub: Hub) -> None:
    tiny = named(TINY_ARITHMETIC)
    assert pinned(tiny, FIRST) == tiny
    assert commit_of(tiny) is None


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


def test_without_a_connection_a_hub_model_is_loaded_from_the_cache(hub: Hub, questions: list[object]) -> None:
    source = pinned(named(NAME))
    assert commit_of(source) == FIRST
    load(source)
    with pytest.raises(RunFailure, match="not a sequence classifier"):
        load_reward_model(source, CPU, "float32")
    assert len(questions) == 1


def test_without_a_connection_what_the_cache_has_in_part_is_refused_at_once(hub: Hub, questions: list[object]) -> None:
    [weights_file] = (hub.cache / "models--owner--name" / "snapshots" / FIRST).glob("*.safetensors")
    weights_file.unlink()
    with pytest.raises(RunFailure, match="owner/name cannot be loaded"):
        load(pinned(named(NAME)))
    assert len(questions) == 1
