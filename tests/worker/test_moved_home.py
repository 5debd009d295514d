"""A home that was restored somewhere else: adapters name their base by the path that it had, and are opened all the same."""

import json
from pathlib import Path

import pytest
import torch

from backend.contract.model import Lora, Model
from worker.errors import RunFailure
from worker.policy import sources
from worker.policy.loading import load_policy
from worker.policy.policy import Policy
from worker.policy.sources import TINY_ARITHMETIC, Pretrained, resolve

CPU = torch.device("cpu")
BASE, ADAPTER = Path("run-1/step-2-attempt-1"), Path("run-2/step-4-attempt-1")


def opened(home: Path, checkpoint: Path) -> Pretrained:
    store = home / "checkpoints"
    return resolve("run:2@4", converted=home / "models", root=None, checkpoint=store / checkpoint, store=store)


def saved(home: Path) -> Policy:
    """A checkpoint of all weights, and on it one of adapters."""
    tiny = resolve(TINY_ARITHMETIC, converted=home, root=None, checkpoint=None)
    load_policy(Model(), tiny, CPU).save(home / "checkpoints" / BASE / "model")
    policy = load_policy(Model(lora=Lora(rank=2)), opened(home, BASE), CPU)
    policy.save(home / "checkpoints" / ADAPTER / "model")
    return policy


def renamed_base(home: Path, base: str) -> None:
    path = home / "checkpoints" / ADAPTER / "model" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": base}))


def test_an_adapter_on_a_checkpoint_is_opened_in_a_home_that_was_moved(tmp_path: Path) -> None:
    saved(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    found = opened(tmp_path / "new", ADAPTER)
    assert found.base is not None
    assert Path(found.base.location) == tmp_path / "new" / "checkpoints" / BASE / "model"
    load_policy(Model(), found, CPU)


def test_an_adapter_on_a_model_that_comes_along_is_opened_by_another_installation(tmp_path: Path) -> None:
    saved(tmp_path)
    renamed_base(tmp_path, "/another/venv/lib/python3.11/site-packages/worker/models/tiny_arithmetic")
    base = opened(tmp_path, ADAPTER).base
    assert base is not None
    assert base == resolve(TINY_ARITHMETIC, converted=tmp_path, root=None, checkpoint=None)


def test_a_converted_model_is_made_again_in_a_home_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    renamed_base(tmp_path, "/old/home/models/smollm2-135m-instruct")
    monkeypatch.setattr(sources, "smollm2_source", lambda models: f"{models}/made again")
    base = opened(tmp_path, ADAPTER).base
    assert base is not None
    assert base.location == f"{tmp_path}/models/made again"


@pytest.mark.parametrize("base", ["/old/checkpoints/../../outside", "/old/checkpoints/run-9/none", "/checkpoints"])
def test_a_moved_path_leads_nowhere_else(tmp_path: Path, base: str) -> None:
    saved(tmp_path / "home")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "config.json").write_text("{}")
    renamed_base(tmp_path / "home", base)
    with pytest.raises(RunFailure, match="is not a directory below"):
        opened(tmp_path / "home", ADAPTER)
