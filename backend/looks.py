"""Looks at the prompts of a configuration by a worker that has nothing else to do: in memory, since a worker keeps what it found.

A form asks, and never waits: the next free worker that has the model gets the wish with the answer to its claim, and says what
it found.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.config import RunConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.model import checkpoint_of
from backend.contract.preflight import NOT_LOOKED, Message
from backend.contract.records import Offers, Worker
from backend.contract.task import Dataset, digest

MOST = 100  # wishes, and answers, that are kept
WISHED_SECONDS = 30.0  # a form that is still open asks again


class Looks:
    """Wishes by their key, and what was found. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wished: OrderedDict[str, tuple[float, dict[str, Json]]] = OrderedDict()
        self._found: OrderedDict[str, tuple[float, p.PromptsLook]] = OrderedDict()

    def of(self, config: GrpoConfig, now: float, *, wish: bool = True) -> p.PromptsLook | None:
        """What was found in the prompts of this configuration; None, and if it is of use a `wish`, where nobody has looked yet."""
        whole = config.model_dump(mode="json")
        key = digest(repr([whole["model"]["source"], whole["task"], config.sampling.max_new_tokens]))
        with self._lock:
            at, look = self._found.get(key, (now, None))
            old = now - at > WISHED_SECONDS  # a model may be mended meanwhile; what stayed the same a worker has kept
            if wish and (look is None or old):
                self._wished[key] = now, whole
                _cut(self._wished)
            return None if look is not None and old and look.problem else look

    def wish(self, sources: Iterable[str], now: float) -> p.LookWish | None:
        """The newest wish for one of these models, which is then this worker's."""
        have = set(sources)
        with self._lock:
            for key, (at, config) in reversed(self._wished.items()):
                model = config["model"]
                if now - at < WISHED_SECONDS and isinstance(model, dict) and model["source"] in have:
                    del self._wished[key]
                    return p.LookWish(key=key, config=config)
        return None

    def found(self, key: str, look: p.PromptsLook, now: float) -> None:
        """A worker says what it found."""
        with self._lock:
            self._found[key] = now, look
            self._wished.pop(key, None)
            _cut(self._found)


def _cut(kept: OrderedDict[str, Any]) -> None:
    while len(kept) > MOST:
        kept.popitem(last=False)


def said(config: RunConfig, looks: Looks, alive: Iterable[Offers], now: float) -> Iterator[Message]:
    """What a form says of the prompts of a person's own rows, as the model reads them."""
    if not isinstance(config, GrpoConfig) or not isinstance(config.task, Dataset):
        return
    field, source = "task.prompt_column", config.model.source
    free = checkpoint_of(source) is None and any(
        source.startswith("builtin:") or source in {one.source for one in worker.models if one.problem is None}
        for worker in alive
        if not (isinstance(worker, Worker) and worker.run_id is not None)
    )
    found = looks.of(config, now, wish=free)
    if found is None:
        text = NOT_LOOKED if free else f"{NOT_LOOKED}; the run looks at every prompt before its first step"
        yield Message(level="info", field=field, text=text)
        return
    if found.problem:
        helps = found.unfit and not config.task.leave_out_unfit
        yield Message(
            level="error", field=field, text=found.problem, fix={"task.leave_out_unfit": True} if helps else None
        )
    for remark in found.remarks:
        yield Message(level="warning", field=field, text=remark)
    if found.prompts and not found.problem and not found.unfit:
        text = f"all {found.prompts:,} prompts fit the model; the longest has {found.longest:,} tokens"
        yield Message(level="info", field=field, text=text)
