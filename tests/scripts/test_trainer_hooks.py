"""What the hooks of trainers read stands at its tokens; what goes wrong in those for verl and SkyRL is said, and the training goes on.

Neither is installed here: `tests/real_trainers` has them.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from serving import TOKEN, Backend

import groupscope
import groupscope.verl
from groupscope.rows import Rows


@pytest.fixture
def skyrl(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Our module for SkyRL, on a base class that has nothing."""
    name = "skyrl.train.utils.callbacks"
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:count]), ModuleType(".".join(parts[:count])))
    monkeypatch.setattr(sys.modules[name], "TrainingCallback", object, raising=False)
    yield importlib.import_module("groupscope.skyrl")
    del sys.modules["groupscope.skyrl"]


def test_rewards_that_skyrls_batch_lacks_leave_its_advantages_and_no_other_steps_rewards(
    skyrl: Any, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = skyrl.Recorder()
    recorder._uids, recorder._rewards = ["of the step before"], [1.0]
    batch = {"advantages": 0.5}  # neither rewards nor metadata
    assert recorder._keep_rewards(lambda data: data["advantages"], batch) == 0.5
    assert (recorder._uids, recorder._rewards) == ([], [])
    assert "the rewards of a step are not recorded" in caplog.text


def test_what_verls_hooks_cannot_read_leaves_the_training_as_it_is(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    output = SimpleNamespace(meta_info={})  # has no metrics

    class Stage:
        global_steps = 1

        def _update_actor(self, _: object) -> object:
            return output

        def _validate(self) -> None:
            return None

        def _load_checkpoint(self) -> None:
            return None

    trainer = groupscope.verl.recorded(Stage)()
    trainer._recorder.recording = groupscope.start_run("mine", backend=backend.url, home=tmp_path)
    trainer._recorder._groups = object()
    assert trainer._update_actor(None) is output
    assert trainer._validate() is None
    trainer._recorder.end(None)
    for what in ("groups of a step", "metrics of a step", "metrics of an evaluation"):
        assert f"the {what} are not recorded; the training goes on" in caplog.text
    [run] = backend.client.runs(kind="recorded").items
    assert run.status == "finished"


def test_values_of_rows_whose_padding_was_moved_stand_at_their_tokens() -> None:
    """A trainer measured over more columns than the completions have, as Unsloth does."""
    prompts = torch.tensor([[0, 0, 0, 11], [0, 21, 22, 23], [31, 32, 33, 34]])
    completions = torch.tensor([[12, 13, 0], [24, 25, 26], [35, 0, 0]])
    packed = torch.tensor([[11, 12, 13, 0, 0, 0, 0], [21, 22, 23, 24, 25, 26, 0], [31, 32, 33, 34, 35, 0, 0]])
    there = completions != 0  # the padding
    output: dict[str, Any] = {
        "prompt_ids": prompts,
        "completion_ids": completions,
        "completion_mask": there.int(),
        "old_per_token_logps": packed[:, -(3 + 3) :].float(),  # as many more as the shortest prompt has padding
    }
    rows = Rows.of([{}, {}, {}], output, 0)
    some = np.array([2, 0])
    rows.put("logprob", some, packed[some, -(3 + 3) :].float())  # a part of the batch, in another order
    assert (rows.values["old_logprob"] == completions.numpy())[there].all()
    assert (rows.values["logprob"] == completions.numpy())[some][there[some]].all()
    assert np.isnan(rows.values["logprob"][1]).all()
