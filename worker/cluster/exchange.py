"""The line between the processes of a run on a cluster and the worker that holds its lease: an actor of Ray that passes words on.

Its own process imports this file alone, and not what the words are about: they travel as bytes.
"""

import asyncio
import pickle
from typing import Any

Word = tuple[str, object, object]


class Exchange:
    """Keeps what the processes say until the worker hears it, and what the worker answers until they do."""

    def __init__(self) -> None:
        self._said = asyncio.Queue[tuple[int, bytes]]()
        self._answers = dict[int, asyncio.Future[bytes]]()

    async def say(self, rank: int, word: bytes) -> None:
        """Say something that needs no answer."""
        await self._said.put((rank, word))

    async def ask(self, rank: int, word: bytes) -> bytes:
        """Ask, and wait for the answer. A process asks one thing at a time."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[rank] = answer
        await self._said.put((rank, word))
        return await answer

    async def hear(self, seconds: float) -> list[tuple[int, bytes]]:
        """All that was said since, by rank; nothing if nobody says anything for so long."""
        try:
            heard = [await asyncio.wait_for(self._said.get(), seconds)]
        except TimeoutError:
            return []
        while not self._said.empty():
            heard.append(self._said.get_nowait())
        return heard

    async def answer(self, rank: int, word: bytes) -> None:
        """Answer what a process asked last."""
        if (waiting := self._answers.pop(rank, None)) is not None:
            waiting.set_result(word)


class ExchangeEnd:
    """A process's end of its line."""

    def __init__(self, exchange: Any, rank: int) -> None:
        self._exchange, self._rank = exchange, rank
        self._asked: Any = None

    def send(self, message: Word, /) -> None:
        """Give it to the worker. Raises EOFError if the exchange is gone."""
        word = pickle.dumps(message)
        if message[0] == "ask":
            self._asked = self._exchange.ask.remote(self._rank, word)
        else:
            _get(self._exchange.say.remote(self._rank, word))

    def recv(self) -> tuple[bool, Any]:
        """The worker's answer. Raises EOFError if the exchange is gone."""
        answered, answer = pickle.loads(_get(self._asked))  # noqa: S301 — the worker's own words, on a cluster that runs its code
        return answered, answer


def _get(coming: Any) -> Any:
    import ray

    try:
        return ray.get(coming)
    except ray.exceptions.RayActorError as error:
        raise EOFError from error
