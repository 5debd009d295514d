"""The reward functions that run in a process: one that a completion hung or crashed is replaced, and only that call is lost."""

import logging
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from backend.contract.base import Json
from backend.contract.reward import Python, RewardFunction
from worker.errors import RunFailure
from worker.rewards.child import Child, ChildLost, ChildNotReady, ChildRefused
from worker.rewards.resources import RewardUnavailable
from worker.tasks.items import Item

logger = logging.getLogger(__name__)


class RewardProcessError(RunFailure):
    """The process that runs the reward functions does not start."""


class FunctionProcess:
    """Starts with the first call and lives until `close`, after which another one starts. For one thread at a time."""

    def __init__(
        self, functions: Sequence[RewardFunction], *, time_limit: float, path: Path | None, functions_module: str
    ) -> None:
        self._functions, self._time_limit, self._path = functions, time_limit, path
        self._functions_module = functions_module
        self._child: Child | None = None

    def payload(self, item: Item, text: str, token_count: int) -> dict[str, Json]:
        """A sample as the functions get it: with the prompt and the whole row, which may be long, only where one reads them."""
        payload: dict[str, Json] = {
            "text": text,
            "token_count": token_count,
            "answer": item.answer,
            "verifier": dict(item.verifier),
        }
        if any(isinstance(function, Python) for function in self._functions):
            prompt: Json = item.question if item.messages is None else [dict(message) for message in item.messages]
            payload |= {"prompt": prompt, "columns": dict(item.columns)}
        return payload

    def outcomes(self, payloads: list[Json], waiting: Callable[[], None]) -> Generator[dict[str, Json]]:
        """The outcome of every function on every sample, payload by payload, as it comes; `process.py` says what is in both.

        `waiting` is called now and then while one is awaited, and may raise to end it. A caller that leaves before the end calls
        `close`. Raises RewardProcessError where the process does not start, RewardUnavailable where it cannot import a function.
        """
        width = len(self._functions)
        done, total = 0, len(payloads) * width
        while done < total:
            is_new = self._child is None
            batch: dict[str, Json] = {"samples": payloads[done // width :], "first": done % width}
            try:
                self._child = self._child or Child(self._settings(), self._functions_module, waiting)
                for outcome in self._child.outcomes(
                    batch, calls=total - done, time_limit=self._time_limit, waiting=waiting
                ):
                    done += 1
                    yield outcome
            except ChildLost as lost:
                self.close()
                done += 1
                yield {"error": str(lost)}
            except ChildRefused as refusal:
                self.close()
                raise _not_importable(str(refusal)) from None
            except ChildNotReady as reason:
                self.close()
                if is_new:
                    raise RewardProcessError(
                        "reward_process", "the process that runs the reward functions does not start", str(reason)
                    ) from None

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

    def _settings(self) -> dict[str, Json]:
        functions: list[Json] = [
            {"kind": function.kind, "params": function.model_dump(mode="json", exclude={"name", "kind", "weight"})}
            for function in self._functions
        ]
        path: list[Json] = [str(self._path.resolve())] if self._path else []
        return {"functions": functions, "time_limit": self._time_limit, "path": path}


def _not_importable(reason: str) -> RewardUnavailable:
    summary, _, trace = reason.partition("\n")
    hint = "GROUPSCOPE_REWARD_PATH names the folder that the worker looks in, beside what is installed with it"
    return RewardUnavailable("reward_unavailable", f"The reward function {summary}. {hint}.", trace)
