"""How a claimed run ends: the backend learns why, whatever stands in the way, and the worker lives on."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from full_disk import disk_of
from wire import Wire, claimed, worker
from worker_models import tiny_policy

from backend.contract.client import ApiError, Unreachable
from backend.contract.protocol import Accepted, CheckpointRef, ClaimReply, Fail, Finish, Report
from worker import compute, job, main
from worker.checkpoint import Saved, TrainingState, complete_checkpoint, damage, remove_partial, write_checkpoint
from worker.failure import device_lost, failure
from worker.job import Spent, run_claim
from worker.policy.policy import Policy
from worker.process import Process
from worker.store import Store

SAMPLE: dict[str, object] = {"kind": "sample", "prompts": ["Calculate 2 + 2 x 6"], "group_size": 1}


def test_a_refused_report_is_told_also_where_the_end_was_stored_behind_it(tmp_path: Path) -> None:
    wire = Wire()
    wire.trouble = ApiError(422, "invalid", "groups: too many")
    run_claim(worker(tmp_path, wire), claimed(SAMPLE))
    ends = [message for message in wire.told if isinstance(message, Finish | Fail)]
    assert [end.error.code for end in ends if isinstance(end, Fail)] == ["report_refused"]
    assert len(ends) == 1


def test_a_disk_that_cannot_even_hold_the_failure_does_not_hide_it(tmp_path: Path) -> None:
    wire = Wire()
    with disk_of(0):
        run_claim(worker(tmp_path, wire), claimed(SAMPLE))
    assert [message.error.code for message in wire.told if isinstance(message, Fail)] == ["disk_full"]


def test_why_a_run_ended_is_kept_until_a_backend_whose_disk_is_full_can_store_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_TELL_AGAIN", 0.01)
    wire, refused = Wire(), list[Fail]()
    take = wire.fail

    def full_at_first(run_id: int, fail: Fail) -> Accepted:
        if len(refused) == 3:
            return take(run_id, fail)
        refused.append(fail)
        raise ApiError(507, "disk_full", "The disk is full; nothing was changed.")

    monkeypatch.setattr(wire, "fail", full_at_first)
    with disk_of(0):
        run_claim(worker(tmp_path, wire), claimed(SAMPLE))
    [told] = [message.error for message in wire.told if isinstance(message, Fail)]
    assert told.code == "disk_full"
    assert f"The worker's disk is full: {tmp_path}, " in told.message
    assert "bytes free" in told.message


@pytest.mark.parametrize(("few", "has_reserve"), [(2**20, True), (0, False)])
def test_the_last_reports_of_a_run_may_have_the_reserve_of_a_backend_whose_disk_is_full_unless_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, has_reserve: bool
) -> None:
    monkeypatch.setattr(job, "_FEW_BYTES", few)
    wire, refused = Wire(), threading.Event()
    take = wire.report

    def with_reserve(run_id: int, report: Report) -> Accepted:
        if refused.is_set() and ((run_id, report.attempt) in wire.ending) == has_reserve:
            return take(run_id, report)
        refused.set()
        raise ApiError(507, "disk_full", "The disk is full; nothing was changed.")

    monkeypatch.setattr(wire, "report", with_reserve)
    run_claim(worker(tmp_path, wire), claimed(SAMPLE))
    assert [type(message) for message in wire.told][-2:] == [Report, Finish]


@pytest.mark.parametrize("answer", ["14", "fourteen"])
def test_a_sample_is_scored_whether_its_answer_is_a_number_or_a_text(tmp_path: Path, answer: str) -> None:
    wire = Wire()
    run_claim(worker(tmp_path, wire), claimed({**SAMPLE, "answer": answer, "rewards": {}}))
    [report] = [message for message in wire.told if isinstance(message, Report)]
    assert report.groups[0].completions[0].reward is not None
    assert isinstance(wire.told[-1], Finish)


def test_a_sample_in_progress_goes_back_to_the_queue_when_the_worker_is_told_to_end(tmp_path: Path) -> None:
    wire = Wire()
    begun: list[bool] = []
    run_claim(worker(tmp_path, wire, lambda: len(begun) > 3 or begun.append(True) is not None), claimed(SAMPLE))
    assert [message.outcome for message in wire.told if isinstance(message, Finish)] == ["released"]
    assert not any(isinstance(message, Report) for message in wire.told)


def test_training_ends_with_a_sample_between_its_steps_that_lost_the_device_and_not_with_one_that_found_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, of_a_sample = Wire(), claimed(SAMPLE)
    monkeypatch.setattr(wire, "ask", lambda request: ClaimReply(claim=of_a_sample))

    def between_steps(error: str) -> None:
        def fails(*given: object, **named: object) -> None:
            raise RuntimeError(error)

        monkeypatch.setattr(compute, "_load", fails)
        job._serve_samples(worker(tmp_path, wire), SimpleNamespace(samples_waiting=True))  # type: ignore[arg-type]

    between_steps("CUDA out of memory")
    with pytest.raises(RuntimeError) as caught:
        between_steps("CUDA error: device-side assert triggered")
    assert device_lost(caught.value)


@pytest.mark.slow
def test_a_worker_told_to_end_does_not_wait_for_an_absent_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_DRAIN_ON_SHUTDOWN", 0.1)
    wire = Wire()
    wire.trouble = Unreachable("away")
    spool = tmp_path / "spool"
    assert not run_claim(
        worker(tmp_path, wire, lambda: any(b"finish" in file.read_bytes() for file in spool.rglob("*.jsonl"))),
        claimed(SAMPLE),
    )
    assert [file.name for file in spool.rglob("*.jsonl")] == ["run-7-attempt-1.jsonl"]


def test_a_damaged_checkpoint_is_replaced_by_an_earlier_one_of_the_live_history_and_by_no_other(tmp_path: Path) -> None:
    policy = tiny_policy(reference=False)
    optimizer = torch.optim.AdamW(policy.parameters())
    offered = []
    for step, attempt in ((2, 1), (3, 1), (4, 2)):
        state = TrainingState(step=step, cursor=0, num_tokens=0, samples=0, elapsed_seconds=0.0)
        name = f"run-7/step-{step}-attempt-{attempt}"
        sha256 = save_checkpoint(tmp_path / name, policy, optimizer, state).sha256
        offered.append({"run_id": 7, "step": step, "store": "store", "path": name, "sha256": sha256})
    # Attempt 2 began at 2: what attempt 1 saved at 3 is whole, and no part of the history any more.
    claim = claimed(SAMPLE).model_copy(
        update={
            "resume": CheckpointRef.model_validate(offered[2]),
            "earlier": [CheckpointRef.model_validate(offered[0])],
        }
    )
    assert compute._checkpoint_to_resume(Store(tmp_path), claim) == (tmp_path / "run-7/step-4-attempt-2", [])
    (tmp_path / "run-7/step-4-attempt-2/state.json").write_text("{}")
    newest = "checkpoint step 4 is damaged (size of state.json differs)"
    assert compute._checkpoint_to_resume(Store(tmp_path), claim) == (
        tmp_path / "run-7/step-2-attempt-1",
        [f"{newest}; the run goes on from step 2"],
    )
    weights = tmp_path / "run-7/step-2-attempt-1/model/model.safetensors"
    flip_a_bit(weights)
    oldest = "checkpoint step 2 is damaged (hash of model/model.safetensors differs)"
    told = f"{newest}; {oldest}; no checkpoint is whole, so the run begins at step 0"
    assert compute._checkpoint_to_resume(Store(tmp_path), claim) == (None, [told])


def save_checkpoint(folder: Path, policy: Policy, optimizer: torch.optim.Optimizer, state: TrainingState) -> Saved:
    write_checkpoint(folder, policy, optimizer, state)
    return complete_checkpoint(folder)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("what", ["manifest.json", "state.json", "optimizer.safetensors", "model/model.safetensors"])
def test_a_bit_that_flipped_anywhere_in_a_checkpoint_is_noticed(tmp_path: Path, what: str) -> None:
    policy = tiny_policy(reference=False)
    state = TrainingState(step=1, cursor=0, num_tokens=0, samples=0, elapsed_seconds=0.0)
    saved = save_checkpoint(tmp_path / "run-7" / "step-1", policy, torch.optim.AdamW(policy.parameters()), state)
    assert damage(saved.folder, saved.sha256) is None
    flip_a_bit(saved.folder / what)
    assert damage(saved.folder, saved.sha256) == f"hash of {what} differs"
    (saved.folder / what).unlink()
    assert damage(saved.folder, saved.sha256) == f"{Path(what).name} cannot be read: No such file or directory"


def test_a_run_does_not_start_from_a_checkpoint_of_another_whose_weights_are_damaged(tmp_path: Path) -> None:
    wire = Wire()
    policy = tiny_policy(reference=False)
    state = TrainingState(step=1, cursor=0, num_tokens=0, samples=0, elapsed_seconds=0.0)
    one = worker(tmp_path, wire)
    folder = one.settings.store / "run-3" / "step-1-attempt-1"
    saved = save_checkpoint(folder, policy, torch.optim.AdamW(policy.parameters()), state)
    flip_a_bit(folder / "model" / "model.safetensors")
    named = CheckpointRef(run_id=3, step=1, store="s", path="run-3/step-1-attempt-1", sha256=saved.sha256)
    claim = claimed({**SAMPLE, "model": {"source": "run:3@1"}}).model_copy(update={"source_checkpoint": named})
    run_claim(one, claim)
    [told] = [message.error for message in wire.told if isinstance(message, Fail)]
    assert told.code == "checkpoint_unreadable"
    assert "Checkpoint 1 of run 3, which this run names, is damaged (hash of model/model.safetensors" in told.message


def test_a_checkpoint_that_does_not_fit_gives_its_space_back_and_says_what_is_full(tmp_path: Path) -> None:
    policy = tiny_policy(reference=False)
    state = TrainingState(step=1, cursor=0, num_tokens=0, samples=0, elapsed_seconds=0.0)
    with disk_of(100_000), pytest.raises(Exception, match="too large") as caught:
        save_checkpoint(tmp_path / "run-7" / "step-1", policy, torch.optim.AdamW(policy.parameters()), state)
    assert not list((tmp_path / "run-7").iterdir())
    assert failure(1, caught.value).error.code == "disk_full"


def test_a_worker_that_starts_removes_what_a_crash_left_and_leaves_what_another_worker_writes(tmp_path: Path) -> None:
    abandoned, written = tmp_path / "run-7" / ".step-1.partial", tmp_path / "run-8" / ".step-1.partial"
    for partial in (abandoned, written):
        (partial / "model").mkdir(parents=True)
        (partial / "model" / "config.json").write_text("{}")
    for path in (abandoned, *abandoned.rglob("*")):
        os.utime(path, (0, 0))
    remove_partial(tmp_path)
    assert not abandoned.exists()
    assert (written / "model" / "config.json").exists()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA error: out of memory\nmore"),
        RuntimeError("CUDA driver error: out of memory"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUDA_ERROR_OUT_OF_MEMORY"),
        torch.OutOfMemoryError(),
    ],
)
def test_memory_that_ran_out_is_told_as_such_even_by_an_error_without_words(error: Exception) -> None:
    told = failure(1, error).error
    assert told.code == "out_of_memory"
    assert told.message.endswith(("(MemoryError)", "out of memory)", "OUT_OF_MEMORY)", "(OutOfMemoryError)"))


def test_a_gpu_that_cannot_even_give_memory_back_after_a_run_replaces_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*given: object) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    def unknown(*given: object, **named: object) -> None:
        raise RuntimeError("an error in words that nobody knows")

    wire = Wire()
    monkeypatch.setattr(wire, "ask", lambda request: ClaimReply(claim=claimed(SAMPLE)))
    monkeypatch.setattr(compute, "_load", unknown)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lost)
    with pytest.raises(Spent) as caught:
        main._serve(worker(tmp_path, wire), Process([]))
    assert caught.value.device_lost
    assert isinstance(wire.told[-1], Fail)
    assert wire.told[-1].error.code == "crash"


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: device-side assert triggered\nmore"),
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle )`"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        RuntimeError("cuDNN Frontend error: [cudnn_frontend] Error: No execution plans support the graph."),
        RuntimeError("cudnnFinalize failed cudnn_status: CUDNN_STATUS_NOT_SUPPORTED"),
        RuntimeError("cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`"),
        RuntimeError("cuFFT error: CUFFT_EXEC_FAILED"),
        RuntimeError("CUDA driver error: an illegal memory access was encountered"),
        RuntimeError("cuda runtime error (59) : device-side assert triggered at THCTensorCopy.cu:100"),
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
        RuntimeError("merge_sort: failed to synchronize: cudaErrorIllegalAddress: an illegal memory access"),
        RuntimeError("cuMemFree(buffer) failed with error CUDA_ERROR_ILLEGAL_ADDRESS"),
        torch.cuda.DeferredCudaCallError(
            "CUDA call failed lazily at initialization with error: CUDA error: unknown error"
        ),
    ],
)
def test_an_error_that_ends_all_work_on_a_gpu_is_tried_again_by_a_clean_process(error: Exception) -> None:
    told = failure(1, error)
    assert (told.error.code, told.retryable) == ("device_lost", True)
    assert told.error.message.endswith(f"({str(error).splitlines()[0]})")
