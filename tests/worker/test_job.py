"""How a claimed run ends: the backend learns why, whatever stands in the way, and the worker lives on; and its heartbeats."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from full_disk import disk_of
from processes import wait_until
from wire import Wire, claimed, worker

from backend.contract.client import ApiError, Unreachable
from backend.contract.protocol import Accepted, ClaimReply, Fail, Finish, Heartbeat, HeartbeatReply, Report
from backend.contract.records import RewardFile
from worker import compute, job, main
from worker.failure import device_lost, failure
from worker.job import Spent, run_claim
from worker.lease import Lease
from worker.process import Process

SAMPLE: dict[str, object] = {"kind": "sample", "prompts": ["Calculate 2 + 2 x 6"], "group_size": 1}


def test_a_refused_report_is_told_also_where_the_end_was_stored_behind_it(tmp_path: Path) -> None:
    wire = Wire()
    wire.trouble = ApiError(422, "invalid", "groups: too many")
    run_claim(worker(tmp_path, wire), claimed(SAMPLE))
    ends = [message for message in wire.told if isinstance(message, Finish | Fail)]
    assert [end.error.code for end in ends if isinstance(end, Fail)] == ["report_refused"]
    assert len(ends) == 1


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
    wire, begun = Wire(), list[bool]()
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
    wire, spool = Wire(), tmp_path / "spool"
    wire.trouble = Unreachable("away")
    assert not run_claim(
        worker(tmp_path, wire, lambda: any(b"finish" in file.read_bytes() for file in spool.rglob("*.jsonl"))),
        claimed(SAMPLE),
    )
    assert [file.name for file in spool.rglob("*.jsonl")] == ["run-7-attempt-1.jsonl"]


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


def test_the_first_heartbeat_tells_what_the_folder_offers_and_a_later_one_what_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that changes while the claim is under way would not be told otherwise."""
    wire, told, first, second = Wire(), list[object](), [RewardFile(name="one.py")], [RewardFile(name="two.py")]
    take, offered = wire.heartbeat, [first]

    def heartbeat(run_id: int, beat: Heartbeat) -> HeartbeatReply:
        told.append(beat.reward_files)
        return take(run_id, beat)

    monkeypatch.setattr(wire, "heartbeat", heartbeat)
    with Lease(wire, claimed(SAMPLE, lease_seconds=0.04), "one", lambda: offered[-1]):
        wait_until(lambda: len(told) > 1, "a second heartbeat")
        offered.append(second)
        wait_until(lambda: second in told and told[-1] is None, "the change is reported once")
    assert told[0] == first
    assert [files for files in told if files is not None] == [first, second]


NO_MEMORY = [
    MemoryError(),
    torch.OutOfMemoryError(),
    RuntimeError("CUDA error: out of memory\nmore"),
    RuntimeError("CUDA driver error: out of memory"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError("CUDA error: CUDA_ERROR_OUT_OF_MEMORY"),
]
LOST = [
    torch.AcceleratorError("in words that nobody knows"),
    torch.cuda.DeferredCudaCallError("CUDA call failed lazily with error: CUDA error: unknown error"),
    RuntimeError("CUDA error: unspecified launch failure\nmore"),
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
]


@pytest.mark.parametrize("error", [*NO_MEMORY, *LOST])
def test_memory_that_ran_out_is_told_as_such_and_a_lost_gpu_is_tried_again_by_a_clean_process(error: Exception) -> None:
    told = failure(1, error)
    lost = error in LOST
    assert (told.error.code, told.retryable) == ("device_lost" if lost else "out_of_memory", lost)
    assert told.error.message.endswith(f"({(str(error) or type(error).__name__).splitlines()[0]})")
