"""The spool."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from full_disk import disk_of
from processes import wait_until
from wire import Wire

from backend.contract.client import ApiError, Unreachable
from backend.contract.protocol import Accepted, Finish, Report, Reports
from backend.contract.spool import Damaged, Recovery, Refused, Spool, SpoolFull, read, send, spool_file
from worker.failure import failure

REPORTS = [Report(attempt=1, seq=seq, step=seq, metrics={"reward": seq / 10}) for seq in range(4)]
BY_ITSELF = REPORTS[1].model_copy(update={"part": True})
MISTAKE = ApiError(500, "internal", "The backend failed; its log says why.")


class FarEnd(Wire):
    """A client whose far end can be away, refuse, or have taken the run from us."""

    def __init__(self) -> None:
        super().__init__()
        self.received, self.together = list[int](), list[int]()  # reports, and how many were in one request
        self.lost = list[bool]()
        self.not_together: Exception | None = None
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()

    def report(self, run_id: int, report: Report) -> Accepted:
        self.asked.set()
        assert self.may_answer.wait(10)
        accepted = super().report(run_id, report)
        self.received.append(report.seq)
        return accepted

    def reports(self, run_id: int, together: Reports) -> Accepted:
        if self.not_together is not None:
            raise self.not_together
        accepted = super().reports(run_id, together)
        self.together.append(len(together.reports))
        return accepted


@pytest.fixture
def wire() -> FarEnd:
    return FarEnd()


Start = Callable[..., Spool]


@pytest.fixture
def spool(tmp_path: Path, wire: FarEnd) -> Iterator[Start]:
    """Starts a spool with these reports, and closes it in the end."""
    with contextlib.ExitStack() as started:

        def start(reports: Sequence[Report] = (), *, cap: int = 2**20) -> Spool:
            path, deliver = spool_file(tmp_path, 7, 1), partial(send, wire, 7)
            one = Spool(path, deliver, on_lost=lambda: wire.lost.append(True), cap_bytes=cap)
            started.callback(one.close)
            for report in reports:
                one.append("report", report)
            return one

        yield start


@pytest.fixture
def unsent(wire: FarEnd, spool: Start) -> Start:
    """Starts one whose reports wait for a backend that is away."""
    wire.trouble = Unreachable("away")
    return spool


@pytest.fixture
def _long_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.contract.spool._PACE", 300.0)


def in_file(sending: Spool) -> list[int]:
    return [message.model_dump()["seq"] for _, message, _ in read(sending.path)]


TROUBLE = [Unreachable("away"), *(ApiError(status, "trouble", "come back later") for status in (401, 503, 507))]


@pytest.mark.parametrize("trouble", TROUBLE)
def test_what_a_backend_in_trouble_did_not_take_is_sent_by_the_next_process(
    tmp_path: Path, wire: FarEnd, unsent: Start, trouble: Exception
) -> None:
    unsent(REPORTS).close()
    wire.trouble = trouble
    with pytest.raises(type(trouble)):
        Recovery(tmp_path, wire).advance()
    wire.trouble = None
    Recovery(tmp_path, wire).advance()
    assert wire.received == [0, 1, 2, 3]
    assert not list(tmp_path.iterdir())


def test_a_record_that_is_torn_or_in_which_a_bit_flipped_is_dropped_with_what_follows(unsent: Start) -> None:
    sending = unsent(REPORTS[:3])
    sending.close()
    whole = sending.path.read_bytes()
    first, second = whole.index(b"\n") + 1, whole.index(b"\n", whole.index(b"\n") + 1) + 1
    for at in range(first, second):
        sending.path.write_bytes(whole[:at])
        assert in_file(sending) == [0], at
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << bit
            sending.path.write_bytes(flipped)
            assert in_file(sending) == [0], (at, bit)


def test_a_record_that_was_damaged_while_it_waited_leaves_no_gap_but_ends_the_attempt(
    tmp_path: Path, wire: FarEnd, unsent: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.contract.spool._KEPT_BYTES", 300)
    reports = [Report(attempt=1, seq=seq, step=seq, metrics={"reward": 1.0}) for seq in range(6)]
    sending = unsent(reports)  # the first ones are kept in memory, too
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


def test_reports_that_wait_arrive_in_order_in_one_request_and_leave_nothing_behind(
    tmp_path: Path, wire: FarEnd, unsent: Start
) -> None:
    sending = unsent(REPORTS)
    wire.trouble = None
    assert sending.drain(5)
    sending.close()
    assert not list(tmp_path.iterdir())
    assert wire.received == [0, 1, 2, 3]
    assert sum(wire.together) in (3, 4), "the first may have been tried by itself"
    assert len(wire.together) <= 2


@pytest.mark.usefixtures("_long_pace")
def test_who_reports_often_asks_the_backend_twice_a_second(wire: FarEnd, spool: Start) -> None:
    sending = spool(REPORTS[:1])
    assert wire.asked.wait(5), "the first one does not wait"
    for report in REPORTS[1:]:
        sending.append("report", report)
    sending.append("finish", Finish(attempt=1, outcome="finished"))
    wait_until(lambda: isinstance(wire.told[-1], Finish), "an end does not wait either")
    assert (wire.received, wire.together) == ([0, 1, 2, 3], [3])


@pytest.mark.usefixtures("_long_pace")
def test_who_waits_for_all_to_be_sent_or_closes_waits_for_no_pace(wire: FarEnd, spool: Start) -> None:
    sending = spool(REPORTS[:3])
    assert sending.drain(30)
    sending.append("report", REPORTS[3])
    sending.close()
    assert not sending._thread.is_alive()
    assert wire.received == [0, 1, 2]
    assert sending.path.exists(), "what was not sent waits for the next process"


@pytest.mark.usefixtures("_long_pace")
def test_a_small_cap_is_not_reached_by_what_waits_for_the_pace(spool: Start) -> None:
    sending = spool(cap=1000)
    for seq in range(20):
        sending.append("report", REPORTS[0].model_copy(update={"seq": seq}))
        wait_until(lambda: sending.waiting_bytes <= 500, "a part of it is sent", 30)


@pytest.mark.usefixtures("_long_pace")
@pytest.mark.parametrize(
    ("bounds", "reports", "arrive"),
    [
        ({"MOST_TOGETHER": 2}, REPORTS, 3),
        ({"_TOGETHER_BYTES": 1}, REPORTS, 3),
        ({"_WORN_BYTES": -1}, REPORTS, 3),
        ({}, [REPORTS[0], BY_ITSELF, REPORTS[2]], 2),
    ],
    ids=["fills a request", "is large", "keeps a long file", "comes by itself, also if a report came after it"],
)
def test_what_does_not_wait_for_the_pace(
    wire: FarEnd,
    spool: Start,
    monkeypatch: pytest.MonkeyPatch,
    bounds: dict[str, int],
    reports: list[Report],
    arrive: int,
) -> None:
    for bound, value in bounds.items():
        monkeypatch.setattr(f"backend.contract.spool.{bound}", value)
    wire.may_answer.clear()
    spool(reports)
    wire.may_answer.set()
    wait_until(lambda: len(wire.received) >= arrive, "more than the first was sent", 10)


@pytest.mark.usefixtures("_long_pace")
def test_what_was_refused_together_does_not_wait_for_the_pace(
    wire: FarEnd, spool: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.not_together = ApiError(404, "not_found", "an earlier version")
    wire.may_answer.clear()
    spool(REPORTS)
    monkeypatch.setattr("backend.contract.spool.MOST_TOGETHER", 3)
    wire.may_answer.set()
    wait_until(lambda: wire.received == [0, 1, 2, 3], "each was sent", 30)


@pytest.mark.parametrize("large", [BY_ITSELF, REPORTS[1]])
def test_what_is_large_or_has_to_come_by_itself_does(
    wire: FarEnd, unsent: Start, monkeypatch: pytest.MonkeyPatch, large: Report
) -> None:
    monkeypatch.setattr("backend.contract.spool._TOGETHER_BYTES", 2**20 if large.part else 200)
    sending = unsent([REPORTS[0], large, *REPORTS[2:]])
    wire.trouble = None
    assert sending.drain(5)
    assert (wire.received, wire.together) == ([0, 1, 2, 3], [2] if large.part else [])


@pytest.mark.parametrize("refusal", [ApiError(422, "invalid", "no"), MISTAKE, Unreachable("too slow")])
def test_what_is_not_taken_together_is_sent_one_by_one(wire: FarEnd, unsent: Start, refusal: Exception) -> None:
    wire.not_together = refusal
    sending = unsent(REPORTS)
    wire.trouble = None
    assert sending.drain(5)
    assert (wire.received, wire.together, sending.trouble) == ([0, 1, 2, 3], [], None)


@pytest.mark.parametrize("lost", [True, False])
def test_a_lost_lease_and_a_refusal_end_the_sending_at_once_and_are_told(
    wire: FarEnd, spool: Start, lost: bool
) -> None:
    wire.may_answer.clear()
    wire.trouble = ApiError(409, "lease_lost", "") if lost else ApiError(422, "invalid", "groups: too many")
    sending, woken = spool(REPORTS[:1]), list[bool]()
    assert wire.asked.wait(5)
    waiting = threading.Thread(target=lambda: woken.append(sending.drain(600)), daemon=True)
    waiting.start()
    wait_until(lambda: sending._changed._waiters, "it waits")  # type: ignore[attr-defined]
    wire.may_answer.set()
    waiting.join(60)
    assert (woken, wire.lost) == ([True], [True] * lost)
    if not lost:
        with pytest.raises(Refused, match="groups: too many"):
            sending.append("report", REPORTS[1])
    sending.close()
    assert not sending.path.exists()


def test_what_the_backend_took_does_not_fill_the_spool_and_a_full_one_says_so(wire: FarEnd, spool: Start) -> None:
    sending = spool(cap=100)
    for _ in range(5):
        sending.append("report", REPORTS[0])
        assert sending.drain(5)
    assert sending.path.stat().st_size == 0
    assert wire.received == [0] * 5
    wire.trouble = Unreachable("away")
    sending.append("report", REPORTS[0])
    with pytest.raises(SpoolFull, match="did not take"):
        sending.append("report", REPORTS[1])


def test_a_record_that_the_disk_had_no_room_for_spoils_none_before_or_after_it(wire: FarEnd, unsent: Start) -> None:
    sending = unsent(REPORTS[:1])
    whole = sending.path.stat().st_size
    with disk_of(whole + 10), pytest.raises(OSError, match="too large"):
        sending.append("report", REPORTS[1])
    assert sending.path.stat().st_size == whole, "the part that found room is gone, too"
    sending.append("report", REPORTS[2])
    assert in_file(sending) == [0, 2]
    wire.trouble = None
    assert sending.drain(10)
    assert wire.received == [0, 2]


def test_a_mistake_of_the_backends_is_reported_in_the_end_instead_of_repeated_for_ever(
    wire: FarEnd, spool: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.contract.spool._LONGEST_WAIT", 0.01)
    wire.trouble = MISTAKE
    sending = spool(REPORTS[:1])
    assert sending.drain(20)
    with pytest.raises(Refused, match="internal: The backend failed; its log says why"):
        sending.append("report", REPORTS[1])


def test_a_mistake_of_the_backends_with_one_file_keeps_no_worker_from_its_work_for_ever(
    tmp_path: Path, wire: FarEnd, unsent: Start
) -> None:
    sending = unsent(REPORTS[:1])
    sending.close()
    wire.trouble = MISTAKE
    recovery, stays = Recovery(tmp_path, wire), []
    for _ in range(20):
        with contextlib.suppress(ApiError):
            recovery.advance()
        stays.append(sending.path.exists())
    assert stays == [True] * 19 + [False]
    recovery.advance()


@pytest.mark.parametrize("code", ["busy", "disk_full", "database_damaged"])
def test_what_an_operator_can_mend_is_waited_for(
    wire: FarEnd, spool: Start, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr("backend.contract.spool._LONGEST_WAIT", 0.01)
    wire.trouble = ApiError(500, code, "later")
    sending = spool(REPORTS[:1])
    assert not sending.drain(1.0)
    wire.trouble = None
    assert sending.drain(10)
    assert wire.received == [0]
