"""The judge: a language model reads prompt and completion and says a number; `ranking.py` has the one that orders a group."""

import hashlib
import json
import logging
import re
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Lock, Thread
from typing import TypeVar

from backend.contract.base import Json
from backend.contract.reading import FIRST
from backend.contract.reward import Judge, Ranking
from worker.ranks.ranks import ALONE, Ranks
from worker.rewards.child_process import LOOK_SECONDS
from worker.rewards.judge_endpoint import EXCERPT, JudgeEndpoint, JudgeFailed
from worker.rewards.judge_reply import Reply
from worker.rewards.verdict import NoVerdict, verdict, without_thoughts
from worker.tasks.items import Item

Known = tuple[Reply, bool]
"""A reply, and whether it was known without a request."""

AskAboutGroup = Callable[[Sequence[tuple[Item, str]]], Iterator[dict[str, Json]]]
"""Asks about a group's items and completions; gives their outcomes, in order."""

AskQuestion = Callable[[str], Callable[[], str]]
"""Asks a question; what it gives waits for the reply, and raises Unscored if none can be used."""

_PLACE = re.compile(r"\{(prompt|completion|completions|answer)\}")


def question(instruction: str, item: Item, **answers: str) -> str:
    """The instruction with its places filled, in one pass: what is filled in is text, whatever it holds."""
    values = {"prompt": prompt_text(item), "answer": item.answer or "", **answers}
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), instruction)


def prompt_text(item: Item) -> str:
    """What the model was asked, as a judge reads it: one message as it is, a conversation with its roles."""
    if item.messages is None or len(item.messages) == 1:
        return item.question if item.messages is None else item.messages[0]["content"]
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in item.messages)


BUSY_SECONDS = 5.0
T = TypeVar("T")
log = logging.getLogger(__name__)


class JudgeCache:
    """Replies by a hash of who was asked what; several threads and workers may use one file.

    It saves money and decides nothing: if it cannot be read or written, judges are asked.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()

    def find(self, key: str) -> Reply | None:
        """The reply that was kept, if any."""

        def select(database: sqlite3.Connection) -> Reply | None:
            row = database.execute("SELECT reply FROM reply WHERE key = ?", (key,)).fetchone()
            return Reply(**json.loads(row[0])) if row else None

        return self._with_database(select)

    def keep(self, key: str, reply: Reply) -> None:
        """Keep a reply."""
        values = (key, json.dumps(asdict(reply)))
        self._with_database(lambda database: database.execute("INSERT OR REPLACE INTO reply VALUES (?, ?)", values))

    def _with_database(self, act: Callable[[sqlite3.Connection], T]) -> T | None:
        if self._path is None:
            return None
        try:
            with self._lock, closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as database, database:
                database.execute("CREATE TABLE IF NOT EXISTS reply (key TEXT PRIMARY KEY, reply TEXT NOT NULL)")
                return act(database)
        except (sqlite3.Error, ValueError, TypeError) as error:
            log.warning("the judges' cache %s cannot be used: %s", self._path, error)
            return None


class Unscored(Exception):
    """No verdict came: the message is the outcome's error."""


class EndpointScorer(ABC):
    """Scores by what a judge's endpoint replies. Equal questions are asked once, and none that the cache knows."""

    def __init__(self, function: Judge | Ranking, endpoint: JudgeEndpoint, cache: JudgeCache, reading: int) -> None:
        self.function, self.endpoint, self._cache, self._reading = function, endpoint, cache, reading
        self._spent: Counter[str] = Counter()

    @abstractmethod
    def outcomes(self, group: Sequence[tuple[Item, str]], ask: AskQuestion) -> Iterator[dict[str, Json]]:
        """Ask at once; the outcome of each completion of a group, in order, as the replies come."""

    def take_metrics(self, ranks: Ranks = ALONE) -> dict[str, float]:
        """Tokens paid for and replies that needed no request, since the last call, by all processes of the run."""
        names = ("prompt_tokens", "completion_tokens", "cached")
        every = ranks.gather(self._spent)
        metrics = {f"judge/{self.function.name}/{name}": float(sum(spent[name] for spent in every)) for name in names}
        self._spent.clear()
        return metrics

    @contextmanager
    def asking(self, waiting: Callable[[], None] = lambda: None) -> Iterator[AskAboutGroup]:
        """A function that asks about a group's items and completions at once, as far as the endpoint allows; a group may be
        asked about while others are. It gives the outcomes, in order, each as soon as it is there and those before it are taken.

        `waiting` is called now and then while a reply is awaited. Leaving early cancels what was not yet asked.
        """
        questions = _Questions(self._reply, self.endpoint.settings.max_concurrent)
        taken: set[str] = set()

        def ask(text: str) -> Callable[[], str]:
            reply = questions.ask(text)

            def take() -> str:
                repeated = text in taken
                taken.add(text)
                return self._said(reply, waiting, repeated=repeated)

            return take

        try:
            yield lambda group: self.outcomes(group, ask)
        finally:
            questions.cancel()

    def _reply(self, text: str) -> Known:
        request = [self.endpoint.identity, self.function.max_tokens, text]  # to one service and model
        key = hashlib.sha256(json.dumps(request).encode()).hexdigest()
        known = self._cache.find(key)
        if known is not None:
            return known, True
        reply = self.endpoint.ask(text, max_tokens=self.function.max_tokens)
        if reply.cut or not reply.flaw:  # a refusal may pass
            self._cache.keep(key, reply)
        return reply, False

    def _said(self, future: Future[Known], waiting: Callable[[], None], *, repeated: bool) -> str:
        """The text of a reply, whose cost is counted. Raises Unscored."""
        name = self.endpoint.name
        try:
            while not wait([future], timeout=LOOK_SECONDS).done:
                waiting()
            reply, known = future.result()
        except JudgeFailed as failure:
            if not repeated:
                self._spent.update(failure.spent)
            raise Unscored(f"reward_error: the judge {name!r}: {failure}") from None
        if known or repeated:
            self._spent["cached"] += 1
        else:
            self._spent["prompt_tokens"] += reply.prompt_tokens
            self._spent["completion_tokens"] += reply.completion_tokens
        if reply.cut or (reply.flaw and (self._reading > FIRST or not reply.text)):
            raise self.without_verdict(reply.flaw or "was cut at max_tokens", reply.text)
        return reply.text if self._reading == FIRST else without_thoughts(reply.text)

    def without_verdict(self, why: str, reply: str) -> Unscored:
        """The error of a reply from which no score can be read."""
        said = f"; it replied: {reply[:EXCERPT]}" if reply else ""
        return Unscored(f"reward_value: the reply of the judge {self.endpoint.name!r} {why}{said}")


class JudgeScorer(EndpointScorer):
    """Scores each completion by itself."""

    def __init__(self, judge: Judge, endpoint: JudgeEndpoint, cache: JudgeCache, reading: int) -> None:
        super().__init__(judge, endpoint, cache, reading)
        self._judge = judge

    def outcomes(self, group: Sequence[tuple[Item, str]], ask: AskQuestion) -> Iterator[dict[str, Json]]:
        """A question for each completion."""
        texts = [question(self._judge.instruction, item, completion=text) for item, text in group]
        return map(self._outcome, [ask(text) for text in texts])

    def _outcome(self, reply: Callable[[], str]) -> dict[str, Json]:
        try:
            text = reply()
            try:
                return {"value": verdict(text, self._judge.minimum, self._judge.maximum, self._reading)}
            except NoVerdict as reason:
                raise self.without_verdict(str(reason), text) from None
        except Unscored as unscored:
            return {"error": str(unscored)}


class _Questions:
    """Questions on their way: each is asked once, by one of at most `most` threads, which end when there is nothing to ask."""

    def __init__(self, reply: Callable[[str], Known], most: int) -> None:
        self._reply, self._most = reply, most
        self._replies: dict[str, Future[Known]] = {}
        self._unasked: deque[str] = deque()
        self._threads = 0
        self._lock = Lock()

    def ask(self, text: str) -> Future[Known]:
        """The reply, now or later."""
        with self._lock:
            if text not in self._replies:
                self._replies[text] = Future()
                self._unasked.append(text)
                if self._threads < self._most:
                    self._threads += 1
                    # Not a ThreadPoolExecutor: its threads would keep a worker that was asked to end until the last reply came.
                    Thread(target=self._work, name="judge", daemon=True).start()
            return self._replies[text]

    def cancel(self) -> None:
        """Ask nothing more."""
        for reply in self._replies.values():
            reply.cancel()

    def _work(self) -> None:
        """One thread: question after question, until none is left."""
        while True:
            with self._lock:
                if not self._unasked:
                    self._threads -= 1
                    return
                text = self._unasked.popleft()
            future = self._replies[text]
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._reply(text))
                except Exception as error:  # noqa: BLE001 — the boundary of a thread: the waiting caller gets it
                    future.set_exception(error)
