"""What a worker removes of a run's folder: checkpoints that the backend has forgotten, and nothing else."""

import shutil
from pathlib import Path

import pytest

from worker import checkpoint
from worker.checkpoint import remove_checkpoints, remove_partial, remove_unfinished


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


def test_a_removal_that_was_cut_short_leaves_no_checkpoint_and_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run-7"
    saved(run, "step-20-attempt-1", "step-40-attempt-1")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path, ignore_errors=False: None)  # killed in this moment
        remove_checkpoints(run, ["run-7/step-40-attempt-1"], upto=(1, 40))
    assert names(run) == [".step-20-attempt-1.removed", "step-40-attempt-1"]
    remove_partial(tmp_path)
    assert names(run) == ["step-40-attempt-1"]


def test_an_attempt_begins_without_what_earlier_ones_were_writing(tmp_path: Path) -> None:
    run = tmp_path / "run-7"
    written = [".step-40-attempt-2.partial", ".step-20-attempt-3.partial", ".other.partial", "step-20-attempt-1"]
    saved(run, ".step-20-attempt-1.partial", *written)
    remove_unfinished(run, before=2)
    assert names(run) == sorted(written), "what a later attempt writes is not ours to remove"


def test_a_checkpoint_that_cannot_be_removed_now_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run-7"
    saved(run, "step-20-attempt-1", "step-40-attempt-1")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "replace", refuse)
        remove_checkpoints(run, ["run-7/step-40-attempt-1"], upto=(1, 40))
    assert names(run) == ["step-20-attempt-1", "step-40-attempt-1"]
    remove_checkpoints(run, ["run-7/step-40-attempt-1"], upto=(1, 60))
    assert names(run) == ["step-40-attempt-1"]
