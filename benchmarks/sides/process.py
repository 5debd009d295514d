"""The driver's end: starting a side, telling it to train a step, and timing that."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from floor.rates import Rates
from pydantic import BaseModel

from sides.messages import Command, Job, Ready, Trained

_FOLDER = Path(__file__).parents[1]
Message = TypeVar("Message", bound=BaseModel)


def environment() -> dict[str, str]:
    """This process's, in which `sides` can be imported."""
    path = os.pathsep.join(filter(None, [str(_FOLDER), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}


class SideEnded(Exception):
    """A side's process ended where an answer was due."""


@dataclass(frozen=True)
class Step:
    """A step that a side trained, and its seconds: from the word to go until it was done and reported."""

    trained: Trained
    seconds: float


class Side:
    """One process. `ready` is what it said when it was prepared to train."""

    def __init__(self, module: str, job: Job, log: Path) -> None:
        self._module, self._log = module, log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"sides.{module}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment(),
            )
        try:
            self.ready = self._ask(job, Ready)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def step(self) -> Step:
        """Train one step."""
        began = time.perf_counter()
        trained = self._ask(Command(do="step"), Trained)
        return Step(trained, time.perf_counter() - began)

    def rates(self) -> Rates:
        """Measure the rates of its matrix products."""
        return self._ask(Command(do="rates"), Rates)

    def _ask(self, question: BaseModel, kind: type[Message]) -> Message:
        """Raises SideEnded with the end of the side's log."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(question.model_dump_json() + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise SideEnded(f"{self._module} ended:\n{self._log.read_text(errors='replace')[-4000:]}")
        return kind.model_validate_json(line)
