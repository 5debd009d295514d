"""The spool."""

import contextlib
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from full_disk import disk_of
from processes import wait_until

from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.protocol import Accepted, Finish, Report, Reports
from backend.contract.spool import Damaged, Recovery, Refused, Spool, SpoolFull, read, send, spool_file
from worker.failure import failure

REPORTS = [Report(attempt=1, seq=seq, step=seq, metrics={"reward": seq / 10}) for seq in range(4)]


class Wire(Client):
    """A client whose wire is a list, and whose far end can be away, refuse, or have taken the run from us."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.received: list[int] = []
        self.together: list[int] = []  # how many reports were in one request
        self.trouble: Exception | None = None
        self.not_together: Exception | None = None
        self.ended = threading.Event()
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def report(self, run_id: int, report: Report) -> Accepted:
        self.asked.set()
        assert self.may_answer.wait(10)
        if self.trouble is not None:
            raise self.trouble
        self.received.append(report.seq)
        return Accepted()

    def finish(self, run_id: int, finish: Finish) -> Accepted:
        self.ended.set()
        return Accepted()

    def reports(self, run_id: int, together: Reports) -> Accepted:
        if self.not_together is not None:
            raise self.not_together
        accepted = [self.report(run_id, one) for one in together.reports]
        self.together.append(len(accepted))
        return accepted[-1]


def spool(folder: Path, wire: Wire, *, cap: int = 2**20, lost: list[bool] | None = None) -> Spool:
    deliver = partial(send, wire, 7)
    return Spool(
        spool_file(folder, 7, 1),
        deliver,
        on_lost=lambda: (lost if lost is not None else []).append(True),
        cap_bytes=cap,
    )


def unsent(folder: Path, wire: Wire, reports: Sequence[Report] = REPORTS) -> Spool:
    """With reports that wait for a backend that is away."""
    wire.trouble = Unreachable("away")
    sending = spool(folder, wire)
    for report in reports:
        sending.append("report", report)
    return sending


def test_reports_arrive_in_order_and_leave_nothing_behind(tmp_path: Path) -> None:
    wire = Wire()
    sending = spool(tmp_path, wire)
    for report in REPORTS:
        sending.append("report", report)
    assert sending.drain(5)
    sending.close()
    assert wire.received == [0, 1, 2, 3]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_an_absent_backend_did_not_take_is_sent_by_the_next_process(tmp_path: Path) -> None:
    wire = Wire()
    sending = unsent(tmp_path, wire)
    assert not sending.drain(0.3)
    sending.close()
    wire.trouble = None
    Recovery(tmp_path, wire).advance()
    assert wire.received == [0, 1, 2, 3]
    assert not list(tmp_path.iterdir())


def test_a_file_torn_at_any_byte_of_its_last_record_loses_that_record_only(tmp_path: Path) -> None:
    sending = unsent(tmp_path, Wire(), REPORTS[:2])
    sending.close()
    whole = sending.path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        sending.path.write_bytes(whole[:cut])
        assert [message.model_dump()["seq"] for _, message, _ in read(sending.path)] == [0]


def test_a_bit_that_flipped_anywhere_in_a_record_drops_it_and_what_follows(tmp_path: Path) -> None:
    sending = unsent(tmp_path, Wire(), REPORTS[:3])
    sending.close()
    whole = sending.path.read_bytes()
    first, second = whole.index(b"\n") + 1, whole.index(b"\n", whole.index(b"\n") + 1) + 1
    for at in range(first, second):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << bit
            sending.path.write_bytes(flipped)
            assert [message.model_dump()["seq"] for _, message, _ in read(sending.path)] == [0], (at, bit)


def test_a_record_that_was_damaged_while_it_waited_leaves_no_gap_but_ends_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire()
    monkeypatch.setattr("backend.contract.spool._KEPT_BYTES", 300)
    reports = [Report(attempt=1, seq=seq, step=seq, metrics={"reward": 1.0}) for seq in range(6)]
    sending = unsent(tmp_path, wire, reports)  # the first ones are kept in memory, too
    content = bytearray(sending.path.read_bytes())
    content[-10] ^= 1
    sending.path.write_bytes(content)
    wire.trouble = None
    assert sending.drain(20)
    assert wire.received == [0, 1, 2, 3, 4]
    with pytest.raises(Damaged, match="not what was written"):
        sending.append("report", REPORTS[0])
    told = failure(1, sending.trouble or Exception())
    assert (told.error.code, told.retryable) == ("spool_damaged", True)
    sending.close()
    assert not list(tmp_path.iterdir())


def test_reports_that_wait_are_one_request(tmp_path: Path) -> None:
    wire = Wire()
    sending = unsent(tmp_path, wire)
    wire.trouble = None
    assert sending.drain(5)
    sending.close()
    assert wire.received == [0, 1, 2, 3]
    assert sum(wire.together) in (3, 4), "the first may have been tried by itself"
    assert len(wire.together) <= 2


def test_who_reports_often_asks_the_backend_twice_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.contract.spool._PACE", 30.0)
    wire = Wire()
    sending = spool(tmp_path, wire)
    sending.append("report", REPORTS[0])
    assert wire.asked.wait(5), "the first one does not wait"
    for report in REPORTS[1:]:
        sending.append("report", report)
    sending.append("finish", Finish(attempt=1, outcome="finished"))
    assert wire.ended.wait(5), "an end does not wait either"
    assert (wire.received, wire.together) == ([0, 1, 2, 3], [3])
    sending.close()


def test_who_waits_for_all_to_be_sent_or_closes_waits_for_no_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.contract.spool._PACE", 300.0)
    wire = Wire()
    sending = spool(tmp_path, wire)
    for report in REPORTS[:3]:
        sending.append("report", report)
    assert sending.drain(30)
    sending.append("report", REPORTS[3])
    sending.close()
    assert not sending._thread.is_alive()
    assert wire.received == [0, 1, 2]
    assert sending.path.exists(), "what was not sent waits for the next process"


def test_a_small_cap_is_not_reached_by_what_waits_for_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.contract.spool._PACE", 300.0)
    wire = Wire()
    sending = spool(tmp_path, wire, cap=1000)
    for seq in range(20):
        sending.append("report", REPORTS[0].model_copy(update={"seq": seq}))
        wait_until(lambda: sending.waiting_bytes <= 500, "a part of it is sent", 30)
    sending.close()


def test_what_was_refused_together_does_not_wait_for_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.contract.spool._PACE", 300.0)
    wire = Wire()
    wire.not_together = ApiError(404, "not_found", "an earlier version")
    sending = spool(tmp_path, wire)
    wire.may_answer.clear()
    for report in REPORTS:
        sending.append("report", report)
    monkeypatch.setattr("backend.contract.spool.MOST_TOGETHER", 3)
    wire.may_answer.set()
    wait_until(lambda: wire.received == [0, 1, 2, 3], "each was sent", 30)
    sending.close()


@pytest.mark.parametrize(("bound", "value"), [("MOST_TOGETHER", 2), ("_TOGETHER_BYTES", 1), ("_WORN_BYTES", -1)])
def test_what_fills_a_request_does_not_wait_nor_what_keeps_a_long_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr("backend.contract.spool._PACE", 30.0)
    monkeypatch.setattr(f"backend.contract.spool.{bound}", value)
    wire = Wire()
    sending = spool(tmp_path, wire)
    for report in REPORTS:
        sending.append("report", report)
    wait_until(lambda: len(wire.received) >= 3, "more than the first was sent", 10)
    sending.close()


def test_what_has_to_come_by_itself_does_not_wait_because_a_report_came_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.contract.spool._PACE", 300.0)
    wire = Wire()
    sending = spool(tmp_path, wire)
    wire.may_answer.clear()
    for report in (REPORTS[0], REPORTS[1].model_copy(update={"part": True}), REPORTS[2]):
        sending.append("report", report)
    wire.may_answer.set()
    wait_until(lambda: wire.received == [0, 1], "it was sent", 30)
    sending.close()


@pytest.mark.parametrize("large", [REPORTS[1].model_copy(update={"part": True}), REPORTS[1]])
def test_what_is_large_or_has_to_come_by_itself_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: Report
) -> None:
    monkeypatch.setattr("backend.contract.spool._TOGETHER_BYTES", 2**20 if large.part else 200)
    wire = Wire()
    sending = unsent(tmp_path, wire, [REPORTS[0], large, *REPORTS[2:]])
    wire.trouble = None
    assert sending.drain(5)
    sending.close()
    assert (wire.received, wire.together) == ([0, 1, 2, 3], [2] if large.part else [])


@pytest.mark.parametrize(
    "refusal",
    [
        ApiError(422, "invalid", "no"),
        ApiError(404, "not_found", "no"),
        ApiError(500, "internal", "no"),
        Unreachable("too slow"),
    ],
)
def test_what_is_not_taken_together_is_sent_one_by_one(tmp_path: Path, refusal: Exception) -> None:
    wire = Wire()
    wire.not_together = refusal
    sending = unsent(tmp_path, wire)
    wire.trouble = None
    assert sending.drain(5)
    assert (wire.received, wire.together, sending.trouble) == ([0, 1, 2, 3], [], None)
    sending.close()


def test_a_lost_lease_ends_the_sending_and_is_told(tmp_path: Path) -> None:
    wire, lost = Wire(), list[bool]()
    sending = spool(tmp_path, wire, lost=lost)
    assert ends_a_wait(sending, wire, ApiError(409, "lease_lost", "another attempt runs"))
    assert lost == [True]
    sending.close()
    assert not list(tmp_path.iterdir())


def ends_a_wait(sending: Spool, wire: Wire, answer: ApiError) -> bool:
    """Whether who already waits for all to be sent is woken at once by this answer."""
    asked = threading.Event()
    wire.asked, wire.may_answer, wire.trouble = asked, threading.Event(), answer
    sending.append("report", REPORTS[0])
    assert asked.wait(5)
    woken = list[bool]()
    waiting = threading.Thread(target=lambda: woken.append(sending.drain(600)), daemon=True)
    waiting.start()
    wait_until(lambda: sending._changed._waiters, "it waits")  # type: ignore[attr-defined]
    wire.may_answer.set()
    waiting.join(60)
    return woken == [True]


def test_a_refused_report_stops_the_run_instead_of_vanishing(tmp_path: Path) -> None:
    wire = Wire()
    sending = spool(tmp_path, wire)
    assert ends_a_wait(sending, wire, ApiError(422, "invalid", "groups: too many"))
    with pytest.raises(Refused, match="groups: too many"):
        sending.append("report", REPORTS[1])


def test_a_full_spool_says_so(tmp_path: Path) -> None:
    wire = Wire()
    wire.trouble = Unreachable("away")
    sending = spool(tmp_path, wire, cap=100)
    sending.append("report", REPORTS[0])
    with pytest.raises(SpoolFull, match="did not take"):
        sending.append("report", REPORTS[1])
    sending.close()


def test_what_the_backend_took_does_not_fill_the_spool(tmp_path: Path) -> None:
    wire = Wire()
    sending = spool(tmp_path, wire, cap=100)
    for _ in range(5):
        sending.append("report", REPORTS[0])
        assert sending.drain(5)
    assert sending.path.stat().st_size == 0
    sending.close()
    assert wire.received == [0] * 5


def test_a_record_that_the_disk_had_no_room_for_spoils_none_before_or_after_it(tmp_path: Path) -> None:
    wire = Wire()
    sending = unsent(tmp_path, wire, REPORTS[:1])
    whole = sending.path.stat().st_size
    with disk_of(whole + 10), pytest.raises(OSError, match="too large"):
        sending.append("report", REPORTS[1])
    assert sending.path.stat().st_size == whole, "the part that found room is gone, too"
    sending.append("report", REPORTS[2])
    assert [message.model_dump()["seq"] for _, message, _ in read(sending.path)] == [0, 2]
    wire.trouble = None
    assert sending.drain(10)
    sending.close()
    assert wire.received == [0, 2]


@pytest.mark.parametrize("status", [401, 503, 507])
def test_a_backend_in_trouble_costs_nothing_of_what_an_earlier_process_left(tmp_path: Path, status: int) -> None:
    wire = Wire()
    sending = unsent(tmp_path, wire, REPORTS[:1])
    sending.close()
    wire.trouble = ApiError(status, "trouble", "come back later")
    with pytest.raises(ApiError):
        Recovery(tmp_path, wire).advance()
    wire.trouble = None
    Recovery(tmp_path, wire).advance()
    assert wire.received == [0]


def test_a_mistake_of_the_backends_is_reported_in_the_end_instead_of_repeated_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.contract.spool._LONGEST_WAIT", 0.01)
    wire = Wire()
    wire.trouble = ApiError(500, "internal", "The backend failed; its log says why.")
    sending = spool(tmp_path, wire)
    sending.append("report", REPORTS[0])
    assert sending.drain(20)
    with pytest.raises(Refused, match="internal: The backend failed; its log says why"):
        sending.append("report", REPORTS[1])
    sending.close()


def test_a_mistake_of_the_backends_with_one_file_keeps_no_worker_from_its_work_for_ever(tmp_path: Path) -> None:
    left, wire = tmp_path / "run-7-attempt-1.jsonl", Wire()
    sending = unsent(tmp_path, wire, REPORTS[:1])
    sending.close()
    wire.trouble = ApiError(500, "internal", "The backend failed; its log says why.")
    recovery, stays = Recovery(tmp_path, wire), []
    for _ in range(20):
        with contextlib.suppress(ApiError):
            recovery.advance()
        stays.append(left.exists())
    assert stays == [True] * 19 + [False]
    recovery.advance()


@pytest.mark.parametrize("code", ["busy", "disk_full", "database_damaged"])
def test_what_an_operator_can_mend_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr("backend.contract.spool._LONGEST_WAIT", 0.01)
    wire = Wire()
    wire.trouble = ApiError(500, code, "later")
    sending = spool(tmp_path, wire)
    sending.append("report", REPORTS[0])
    assert not sending.drain(1.0)
    wire.trouble = None
    assert sending.drain(10)
    sending.close()
    assert wire.received == [0]
