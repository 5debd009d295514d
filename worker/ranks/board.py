"""What the processes of a run last said of themselves, as their worker shows it, and which of them holds the others up."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from statistics import median_low

from backend.contract.records import MOST_RANKS, SILENT_SECONDS, SLOWER, SLOWER_SECONDS, Progress, Rank, Ranks

ENDED = "ended"
"""The phase of one that has done all, while the first one may still have to report: nobody waits for it."""


class Board:
    """Empty unless a run has several processes. Threads may share it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._lock = now, threading.Lock()
        self._count = 0
        self._since = -math.inf  # when the last silence of all ended: then the worker itself was held up
        self._remarks: list[str] = []
        self._heard: dict[int, tuple[float, Rank]] = {}
        self._phases: dict[tuple[int, str], Rank] = {}  # the last word of each process from each phase

    def begin(self, count: int) -> None:
        """As many processes are started."""
        self._count = count

    def hear(self, rank: int, said: Rank) -> bool:
        """One of them says what it does. Whether it got further since its last word."""
        with self._lock:
            now, (at, before) = self._now(), self._heard.get(rank, (0.0, None))
            if now - max((other for other, _ in self._heard.values()), default=now) > SILENT_SECONDS:
                self._since = now
            silent = now - max(at, self._since)
            if before is not None and silent > SILENT_SECONDS:
                self._remarks.append(
                    f"process {rank} was not heard for {silent:.0f} s at step {before.step}, while others were"
                )
            self._heard[rank] = now, said
            if said.phase is not None:
                self._phases[rank, said.phase] = said
        return before is None or _place(before) != _place(said)

    def remarks(self) -> list[str]:
        """What the run's log should say of processes that were silent and are heard again, once."""
        with self._lock:
            said, self._remarks = self._remarks, []
        return said

    def whole(self, progress: Progress) -> Progress:
        """The first process's progress with the shares of all others added, as far as they have said them."""
        if progress.done is None or progress.total is None or progress.phase is None:
            return progress
        done, total = progress.done, progress.total
        with self._lock:
            for rank in range(1, self._count):
                share = self._phases.get((rank, progress.phase))
                if share is None or share.step != progress.step or share.total is None:
                    total += progress.total  # it has not come there yet
                    continue
                total += share.total
                passed = self._heard[rank][1].phase != progress.phase
                done += share.total if passed else share.done or 0
        return progress.model_copy(update={"done": done, "total": total})

    def picture(self) -> Ranks | None:
        """All of them now; None unless there are several."""
        if not self._count:
            return None
        now = self._now()
        with self._lock:
            ranks = [said.model_copy(update={"silent_seconds": now - at}) for at, said in self._heard.values()]
        worked = [one.step_seconds for one in ranks if one.step_seconds is not None]
        usual = median_low(worked) if worked else None
        ranks = _judged(ranks, usual or 0.0)
        ranks.sort(key=lambda one: (one.slow is None, -(one.step_seconds or 0.0) if self._count > MOST_RANKS else 0.0))
        held = [one.memory_bytes for one in ranks if one.memory_bytes is not None]
        shown = sorted(ranks[:MOST_RANKS], key=lambda one: one.rank)
        memory = sum(held) if held else None
        return Ranks(count=self._count, items=shown, memory_bytes=memory, step_seconds=usual)


def _place(said: Rank) -> tuple[int, str | None, int | None]:
    return said.step, said.phase, said.done


def _judged(ranks: Sequence[Rank], usual: float) -> list[Rank]:
    """The processes, each with whether it holds the others up; `usual`: seconds of work in a step."""
    all_silent = all(one.silent_seconds > SILENT_SECONDS for one in ranks if one.phase != ENDED)

    def judged(one: Rank) -> Rank:
        slow = None
        if one.phase == ENDED:
            return one
        if one.silent_seconds > SILENT_SECONDS and not all_silent:
            slow = "silent"
        elif one.step_seconds is not None and one.step_seconds >= max(SLOWER * usual, usual + SLOWER_SECONDS):
            slow = "slower"
        return one.model_copy(update={"slow": slow})

    return [judged(one) for one in ranks]
