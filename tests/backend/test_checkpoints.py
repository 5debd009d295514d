"""Checkpoints: resumed by who reaches them, started from, downloaded, and never a way out of the data directory."""

import io
import shutil
import zipfile
from pathlib import Path

import pytest
from acting import GRPO, Actor, api_error, began
from processes import wait_until
from serving import Backend

from backend.checkpoints import files
from backend.contract.base import Json
from backend.contract.client import ApiError


def starting_from(run_id: int, step: int) -> dict[str, Json]:
    return {**GRPO, "model": {"source": f"run:{run_id}@{step}"}}


def saved(backend: Backend, store: str) -> Actor:
    """A finished run with checkpoint 1 in a store."""
    actor = began(backend.client, store=store)
    actor.report(0)
    actor.save(1)
    return actor


def model_at(store: Path, run_id: int) -> Path:
    model = store / f"run-{run_id}" / "step-1" / "model"
    (model / "sub").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "sub" / "model.safetensors").write_bytes(b"w" * 3_000_000)
    return model


def test_only_a_worker_that_reaches_the_checkpoint_goes_on_with_it(backend: Backend) -> None:
    actor = saved(backend, "/here#1")
    actor.finish("released")
    assert Actor(backend.client, store="/elsewhere#2").claim() is None
    resume = Actor(backend.client, "two", store="/here#1").claimed().resume
    assert resume is not None
    assert (resume.run_id, resume.step, resume.path) == (actor.run_id, 1, f"run-{actor.run_id}/step-1")


def test_a_run_starts_from_another_ones_checkpoint_where_that_lies_and_until_it_ends_that_one_stays(
    backend: Backend,
) -> None:
    source = saved(backend, "/here")
    source.finish()
    run = backend.client.create_run(starting_from(source.run_id, 1))
    assert Actor(backend.client, store="/elsewhere").claim() is None
    with pytest.raises(ApiError, match=f"Run {run.id} starts from a checkpoint"):
        backend.client.delete_run(source.run_id)
    actor = Actor(backend.client, store="/here")
    claim = actor.claimed()
    assert (claim.run_id, claim.resume) == (run.id, None)
    assert claim.source_checkpoint is not None
    assert (claim.source_checkpoint.run_id, claim.source_checkpoint.step) == (source.run_id, 1)
    actor.finish("stopped")
    backend.client.delete_run(source.run_id)


def test_a_checkpoint_that_is_not_there_is_refused_before_anything_runs(backend: Backend) -> None:
    source = saved(backend, "/here")
    for run_id, step in ((source.run_id, 2), (99, 1)):
        with pytest.raises(ApiError) as caught:
            backend.client.create_run(starting_from(run_id, step))
        message = f"run {run_id} has no checkpoint at step {step}; choose one it has"
        assert caught.value.details == [{"field": "model.source", "message": message}]


def test_a_model_is_downloaded_whole_without_what_a_link_in_it_leads_to_and_one_whose_files_are_gone_says_so(
    backend: Backend,
) -> None:
    store = backend.home / "checkpoints"
    actor = saved(backend, f"{store.resolve()}#ab12")
    (model_at(store, actor.run_id) / "token").symlink_to(backend.home / "groupscope.db")
    zipped = zipfile.ZipFile(io.BytesIO(b"".join(backend.client.download_checkpoint(actor.run_id, 1))))
    assert zipped.testzip() is None
    assert sorted(zipped.namelist()) == ["config.json", "sub/model.safetensors"]
    assert zipped.read("sub/model.safetensors") == b"w" * 3_000_000
    shutil.rmtree(store)
    with api_error(404, match="is gone"):
        list(backend.client.download_checkpoint(actor.run_id, 1))


def test_a_checkpoint_that_is_removed_while_it_is_downloaded_is_never_taken_for_whole(backend: Backend) -> None:
    model = model_at(backend.home / "checkpoints", 1)
    archive = files.archive(model)
    next(archive)  # the first file is on its way
    model.parent.rename(model.parent.with_name(".step-1.removed"))
    with pytest.raises(FileNotFoundError):
        list(archive)


@pytest.mark.parametrize(
    "store", ["{home}/..", "{home}/checkpoints/../..", "{home}/checkpoints/link", "{home}/checkpoints-not-ours"]
)
def test_no_path_of_a_worker_leads_out_of_the_store_and_nothing_outside_is_read_or_removed(
    backend: Backend, tmp_path: Path, store: str
) -> None:
    (backend.home / "checkpoints").mkdir()
    (backend.home / "checkpoints" / "link").symlink_to(tmp_path)
    outside = store.format(home=backend.home.resolve())
    actor = saved(backend, outside)
    model = model_at(tmp_path, actor.run_id)
    with api_error(409) as caught:
        list(backend.client.download_checkpoint(actor.run_id, 1))
    assert outside in caught.value.message
    actor.finish()
    backend.client.delete_run(actor.run_id)
    wait_until(lambda: not backend.client.deletions(), "the rows are removed")
    assert (model / "config.json").exists()


def test_a_deleted_run_takes_its_checkpoints_with_it_and_no_others(backend: Backend) -> None:
    store = backend.home / "checkpoints"
    runs = []
    for _ in range(2):
        actor = saved(backend, str(store.resolve()))
        model_at(store, actor.run_id)
        actor.finish()
        runs.append(actor.run_id)
    backend.client.delete_run(runs[0])
    wait_until(lambda: not backend.client.deletions(), "the files are removed")
    assert [path.name for path in store.iterdir()] == [f"run-{runs[1]}"]
