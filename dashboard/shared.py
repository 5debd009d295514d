"""What many people's pages need at the same time is read and computed once."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from time import monotonic
from typing import Generic, TypeVar

V = TypeVar("V")


class Shared(Generic[V]):
    """Values by key. The first who asks makes one; others who ask meanwhile, or within `seconds`, get the same.

    Nobody may change a value. At most `most` are kept, the newest ones. An error reaches all who waited for it, and is not kept.
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
        """Make all anew from now on; what is being made reaches only those who wait for it already."""
        with self._lock:
            self._kept.clear()
