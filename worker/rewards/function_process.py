"""The reward functions of a run in their process, which is replaced if a call hangs or crashes: only that call is lost."""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.contract.base import Json
from backend.contract.reading import FIRST
from backend.contract.reward import Correctness, Format, Python, RewardFunction
from worker.errors import RunFailure
from worker.rewards.child_process import Child, ChildLost, ChildNotReady, ChildRefused
from worker.rewards.process import lost_whole
from worker.rewards.resources import RewardUnavailable
from worker.tasks.items import Item

logger = logging.getLogger(__name__)

PROMPT_END = 200  # characters: more than a tag and the white space behind it


@dataclass(frozen=True)
class Call:
    """A call of a function, by its place in the configuration, on the samples from `first` to `end`."""

    function: int
    first: int
    end: int


class RewardProcessError(RunFailure):
    """The process that runs the reward functions does not start."""


class FunctionProcess:
    """Starts with the first call and lives until `close`, after which another one starts. For one thread at a time.

    A person's own functions are run from the texts that the first process imported, whatever becomes of the files.
    """

    def __init__(
        self,
        functions: Sequence[RewardFunction],
        *,
        time_limit: float,
        path: Path | None,
        own: Path | None,
        functions_module: str,
        reading: int,
    ) -> None:
        self.functions, self._time_limit, self._functions_module = functions, time_limit, functions_module
        self._reading = reading
        called: list[Json] = [
            {
                "kind": function.kind,
                "params": function.model_dump(mode="json", exclude={"name", "kind", "weight"})
                | ({"reading": reading} if isinstance(function, Correctness) else {}),
                "file": function.file if isinstance(function, Python) else None,
            }
            for function in functions
        ]
        folders: list[Json] = [str(path.resolve())] if path else []
        self._settings: dict[str, Json] = {
            "functions": called,
            "time_limit": time_limit,
            "path": folders,
            "own": str(own) if own and any(isinstance(one, Python) and one.file for one in functions) else None,
            "texts": None,
        }
        self._texts: dict[str, str] = {}
        self._child: Child | None = None

    def start(self, waiting: Callable[[], None] = lambda: None) -> Mapping[str, str]:
        """The texts of the person's own files that the functions were imported from, by name.

        Raises RewardProcessError if the process does not start, RewardUnavailable if it cannot import a function.
        """
        self._started(waiting)
        return self._texts

    def _started(self, waiting: Callable[[], None]) -> Child:
        if self._child is not None:
            return self._child
        try:
            self._child = Child(self._settings, self._functions_module, waiting)
        except ChildRefused as refusal:
            raise self._unavailable(refusal) from None
        except ChildNotReady as reason:
            text = "the process that runs the reward functions does not start"
            raise RewardProcessError("reward_process", text, str(reason)) from None
        self._texts = _texts(self._child.ready)
        self._settings["texts"] = dict(self._texts)
        return self._child

    def payload(
        self, item: Item, text: str, token_count: int, ids: Sequence[int] | None, read: str = ""
    ) -> dict[str, Json]:
        """A sample as the functions get it: with the prompt and the whole row, which may be long, only if one reads them. Of what the
        model `read` it has the end.
        """
        payload: dict[str, Json] = {
            "text": text,
            "token_count": token_count,
            "answer": item.answer,
            "verifier": dict(item.verifier),
        }
        if self._reading > FIRST and any(isinstance(function, Format) for function in self.functions):
            payload["prompt_end"] = read[-PROMPT_END:]
        if any(isinstance(function, Python) for function in self.functions):
            prompt: Json = item.question if item.messages is None else [dict(message) for message in item.messages]
            payload |= {
                "prompt": prompt,
                "question": item.question,
                "columns": dict(item.columns),
                "ids": None if ids is None else list(ids),
            }
        return payload

    def calls(self, first: int, count: int) -> list[Call]:
        """The calls for a group of `count` samples from `first` on, in their order: of each completion, then of the whole group."""
        of_groups = [isinstance(one, Python) and one.unit == "group" for one in self.functions]
        places = range(first, first + count)
        alone = [Call(index, at, at + 1) for at in places for index, whole in enumerate(of_groups) if not whole]
        return alone + [Call(index, first, first + count) for index, whole in enumerate(of_groups) if whole]

    def outcomes(
        self, payloads: list[Json], calls: Sequence[Call], waiting: Callable[[], None]
    ) -> Generator[list[Json]]:
        """The outcomes of every call, as they come; `process.py` says what is in both.

        `waiting` is called now and then while one is awaited, and may raise to end it. A caller that leaves before the end calls
        `close`. Raises what `start` raises.
        """
        done = 0
        while done < len(calls):
            is_new = self._child is None
            child = self._started(waiting)
            first = min(call.first for call in calls[done:])
            batch: dict[str, Json] = {
                "samples": payloads[first:],
                "calls": [[call.function, call.first - first, call.end - first] for call in calls[done:]],
            }
            limits = [self._time_limit * (call.end - call.first) for call in calls[done:]]
            try:
                for outcomes in child.outcomes(batch, limits=limits, waiting=waiting):
                    count = calls[done].end - calls[done].first
                    done += 1
                    yield outcomes * count if len(outcomes) == 1 else outcomes
            except ChildLost as lost:
                self.close()
                count = calls[done].end - calls[done].first
                done += 1
                yield [{"error": f"{lost}{lost_whole(count)}"}] * count
            except ChildNotReady as reason:
                self.close()
                if is_new:
                    text = "the process that runs the reward functions does not start"
                    raise RewardProcessError("reward_process", text, str(reason)) from None

    def log_printed(self) -> None:
        """Log what the functions printed since the last time."""
        printed = "" if self._child is None else self._child.take_printed()
        if printed:
            logger.info("the reward functions printed: %r", printed)

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self.log_printed()
            self._child.close()
            self._child = None

    @staticmethod
    def _unavailable(refusal: ChildRefused) -> RewardUnavailable:
        summary, _, trace = str(refusal).partition("\n")
        return RewardUnavailable("reward_unavailable", f"{summary}.", trace)


def _texts(ready: Json) -> dict[str, str]:
    texts = ready.get("ready") if isinstance(ready, dict) else None
    return {name: str(text) for name, text in texts.items()} if isinstance(texts, dict) else {}
