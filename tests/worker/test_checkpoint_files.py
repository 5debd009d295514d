"""Checkpoints: whole ones alone are used, and what is removed of a run's folder is what the backend has forgotten, and nothing else."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from wire import Wire, claimed, worker
from worker_models import tiny_policy

from backend.contract.protocol import CheckpointRef, Fail
from worker import checkpoint, compute
from worker.checkpoint import (
    Saved,
    TrainingState,
    complete_checkpoint,
    damage,
    remove_checkpoints,
    remove_partial,
    remove_unfinished,
    write_checkpoint,
)
from worker.job import run_claim
from worker.store import Store

SAMPLE: dict[str, object] = {"kind": "sample", "prompts": ["Calculate 2 + 2 x 6"], "group_size": 1}


def whole(folder: Path, step: int = 1) -> Saved:
    """A checkpoint as training writes it."""
    policy = tiny_policy(reference=False)
    state = TrainingState(step=step, cursor=0, num_tokens=0, samples=0, elapsed_seconds=0.0)
    write_checkpoint(folder, policy, torch.optim.AdamW(policy.parameters()), state)
    return complete_checkpoint(folder)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("what", ["manifest.json", "state.json", "optimizer.safetensors", "model/model.safetensors"])
def test_a_bit_that_flipped_anywhere_in_a_checkpoint_is_noticed(tmp_path: Path, what: str) -> None:
    saved = whole(tmp_path / "run-7" / "step-1")
    assert damage(saved.folder, saved.sha256) is None
    flip_a_bit(saved.folder / what)
    assert damage(saved.folder, saved.sha256) == f"hash of {what} differs"
    (saved.folder / what).unlink()
    assert damage(saved.folder, saved.sha256) == f"{Path(what).name} cannot be read: No such file or directory"


def test_a_damaged_checkpoint_is_replaced_by_an_earlier_one_of_the_live_history_and_by_no_other(tmp_path: Path) -> None:
    offered = list[CheckpointRef]()
    for step, attempt in ((2, 1), (3, 1), (4, 2)):
        path = f"run-7/step-{step}-attempt-{attempt}"
        sha256 = whole(tmp_path / path, step).sha256
        offered.append(CheckpointRef(run_id=7, step=step, store="store", path=path, sha256=sha256))
    # Attempt 2 began at 2: what attempt 1 saved at 3 is whole, and no part of the history any more.
    claim = claimed(SAMPLE).model_copy(update={"resume": offered[2], "earlier": [offered[0]]})
    first, last = tmp_path / "run-7/step-2-attempt-1", tmp_path / "run-7/step-4-attempt-2"
    assert compute._checkpoint_to_resume(Store(tmp_path), claim) == (last, [])
    (last / "state.json").write_text("{}")
    newest = "checkpoint step 4 is damaged (size of state.json differs)"
    said = [f"{newest}; the run goes on from step 2"]
    assert compute._checkpoint_to_resume(Store(tmp_path), claim) == (first, said)
    flip_a_bit(first / "model/model.safetensors")
    oldest = "checkpoint step 2 is damaged (hash of model/model.safetensors differs)"
    said = [f"{newest}; {oldest}; no checkpoint is whole, so the run begins at step 0"]
    assert compute._checkpoint_to_resume(Store(tmp_path), claim) == (None, said)


def test_a_run_does_not_start_from_a_checkpoint_of_another_whose_weights_are_damaged(tmp_path: Path) -> None:
    wire = Wire()
    one = worker(tmp_path, wire)
    saved = whole(one.settings.store / "run-3" / "step-1-attempt-1")
    flip_a_bit(saved.folder / "model" / "model.safetensors")
    named = CheckpointRef(run_id=3, step=1, store="s", path="run-3/step-1-attempt-1", sha256=saved.sha256)
    claim = claimed({**SAMPLE, "model": {"source": "run:3@1"}}).model_copy(update={"source_checkpoint": named})
    run_claim(one, claim)
    [told] = [message.error for message in wire.told if isinstance(message, Fail)]
    assert told.code == "checkpoint_unreadable"
    assert "Checkpoint 1 of run 3, which this run names, is damaged (hash of model/model.safetensors" in told.message


def saved(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name / "model").mkdir(parents=True)
        (folder / name / "model" / "model.safetensors").write_bytes(b"w")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_kept_what_waits_to_be_registered_and_what_is_no_checkpoint_stays(tmp_path: Path) -> None:
    run = tmp_path / "run-7"
    kept, waiting = "step-20-attempt-1", ["step-60-attempt-2", "step-80-attempt-2"]
    beside = ["step-30", "step-a-attempt-1", ".step-90-attempt-2.partial"]
    saved(run, kept, "step-40-attempt-1", "step-100-attempt-1", "step-40-attempt-2", *waiting, *beside)
    (run / "pairs.jsonl").write_text("")
    remove_checkpoints(run, [f"run-7/{kept}"], upto=(2, 40))
    assert names(run) == sorted([kept, *waiting, *beside, "pairs.jsonl"])


def test_a_removal_that_is_cut_short_leaves_no_checkpoint_and_one_that_fails_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    run, forgotten = tmp_path / "run-7", "step-20-attempt-1"
    saved(run, forgotten, "step-40-attempt-1")
    for place, name, does, stays in (
        (checkpoint.os, "replace", refuse, forgotten),
        (shutil, "rmtree", lambda path, ignore_errors=False: None, f".{forgotten}.removed"),  # killed in this moment
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, does)
            remove_checkpoints(run, ["run-7/step-40-attempt-1"], upto=(1, 40))
        assert names(run) == sorted([stays, "step-40-attempt-1"])
    remove_partial(tmp_path)
    assert names(run) == ["step-40-attempt-1"]


def test_a_worker_that_starts_removes_what_a_crash_left_and_leaves_what_another_worker_writes(tmp_path: Path) -> None:
    for number in (7, 8):
        saved(tmp_path / f"run-{number}", ".step-1.partial")
    abandoned = tmp_path / "run-7" / ".step-1.partial"
    for path in (abandoned, *abandoned.rglob("*")):
        os.utime(path, (0, 0))
    remove_partial(tmp_path)
    assert names(tmp_path / "run-7") == []
    assert (tmp_path / "run-8" / ".step-1.partial" / "model" / "model.safetensors").exists()


def test_an_attempt_begins_without_what_earlier_ones_were_writing(tmp_path: Path) -> None:
    run = tmp_path / "run-7"
    written = [".step-40-attempt-2.partial", ".step-20-attempt-3.partial", ".other.partial", "step-20-attempt-1"]
    saved(run, ".step-20-attempt-1.partial", *written)
    remove_unfinished(run, before=2)
    assert names(run) == sorted(written), "what a later attempt writes is not ours to remove"
