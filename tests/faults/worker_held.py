"""A worker that trains no further once TEST_HELD_AT steps of a run's first attempt are done, or once TEST_HELD_REPEATING steps were
done again, until its home has the file `go on`.

All else of it goes on: what it has done is reported, so that whoever kills it then knows what it leaves.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from worker.attempt import Attempt, Evaluate
from worker.groups import OnProgress, quiet
from worker.main import main
from worker.replay.replay import Replay
from worker.reporter import StepContent

_steps, _repeat = Attempt.steps, Replay.repeat


def _hold_at(step: int, variable: str) -> None:
    while str(step) == os.environ.get(variable) and not Path(os.environ["GROUPSCOPE_HOME"], "go on").exists():
        time.sleep(0.02)


def steps(self: Attempt, evaluate: Evaluate) -> Iterator[int]:
    for step in _steps(self, evaluate):
        if self._place.attempt == 1:
            _hold_at(step, "TEST_HELD_AT")
        yield step


def repeat(self: Replay, step: int, on_progress: OnProgress = quiet) -> StepContent:
    _hold_at(step, "TEST_HELD_REPEATING")
    return _repeat(self, step, on_progress)


if __name__ == "__main__":
    Attempt.steps, Replay.repeat = steps, repeat  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
