"""A model of the Hub is one commit for a run: weights and tokenizer, in every attempt."""

from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from hub import FIRST, NAME, SECOND, Hub

from backend.contract.model import Lora, Model
from worker.errors import RunFailure
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
    assert f'"revision": "{FIRST}"' in (tmp_path / "model" / "adapter_config.json").read_text()


def test_a_model_that_lies_on_the_disk_has_no_commit(hub: Hub) -> None:
    tiny = named(TINY_ARITHMETIC)
    assert pinned(tiny, FIRST) == tiny
    assert commit_of(tiny) is None


def test_a_model_that_is_not_there_is_refused_as_before(hub: Hub) -> None:
    missing = pinned(named("nobody/nothing"))
    assert commit_of(missing) is None
    with pytest.raises(RunFailure, match="nobody/nothing"):
        load(missing)
