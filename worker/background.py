"""Work that a step leaves to be done beside the next ones: in order, in one thread, and never far behind."""

import logging
import threading
from collections.abc import Callable
from queue import Queue
from types import TracebackType

log = logging.getLogger(__name__)

Task = Callable[[], None]

MOST_WAITING = 4
"""The most tasks that may wait; beyond that, `put` blocks. A step brings two or three."""


class Background:
    """Does what it is given, while it is entered. After a task that raised, no other is done; the next caller gets its error.

    Leaving the context waits for the tasks to be done. The caller's own exception wins over a task's.
    """

    def __init__(self, name: str) -> None:
        self._tasks: Queue[Task | None] = Queue(MOST_WAITING)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def __enter__(self) -> "Background":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._tasks.put(None)
        self._thread.join()
        if error is None:
            self.check()
        elif self._error is not None and self._error is not error:
            log.error("a task that was still waiting failed, too", exc_info=self._error)

    def put(self, task: Task) -> None:
        """Have a task done after those before it. Raises the error of one of them."""
        self.check()
        self._tasks.put(task)

    def wait(self) -> None:
        """Until all is done. Raises the error of a task."""
        self._tasks.join()
        self.check()

    def check(self) -> None:
        """Raises the error of a task."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while self._do(self._tasks.get()):
            self._tasks.task_done()

    def _do(self, task: Task | None) -> bool:
        """False if there are no further tasks. A function of its own, so that nothing of a task is kept while the next is awaited."""
        if task is None:
            return False
        if self._error is None:
            try:
                task()
            except Exception as error:  # noqa: BLE001 — the boundary of a thread: the next caller gets it
                self._error = error
        return True
