"""Values that many people's pages need at the same time, read and computed once."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from time import monotonic
from typing import Generic, TypeVar

V = TypeVar("V")


class Shared(Generic[V]):
    """Values by key. The first caller makes a value; callers that come meanwhile, or within `seconds`, get the same one.

    Values must not be changed. The newest `most` are kept. An error reaches every caller that waited for it, and is not kept.
    """

    def __init__(self, *, seconds: float, most: int) -> None:
        self._seconds, self._most = seconds, most
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, tuple[float, Future[V]]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value at this key. Raises what `make` raises."""
        with self._lock:
            until, value = self._kept.get(key, (0.0, Future[V]()))
            known = key in self._kept and (not value.done() or monotonic() < until)
            if not known:
                value = Future()
                self._kept[key] = monotonic() + self._seconds, value
                self._kept.move_to_end(key)
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
        if known:
            return value.result()
        try:
            value.set_result(make())
        except BaseException as error:
            with self._lock:
                if self._kept.get(key, (0.0, None))[1] is value:
                    del self._kept[key]
            value.set_exception(error)
            raise
        return value.result()

    def forget(self) -> None:
        """Forget all values; one that is being made reaches only the callers that wait for it already."""
        with self._lock:
            self._kept.clear()
