"""A worker that stops before some steps until the file `go on STEP` is in its home; of several processes the others wait for the last.

TEST_HELD_AT has the steps of a run's first attempt, TEST_HELD_REPEATING those of a trunk that is done again for a fork. The file
`held at STEP` says that it has come to one. The worker's other threads go on: what it did before is reported.
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
    home = Path(os.environ["GROUPSCOPE_HOME"])
    if str(step) in os.environ.get(variable, "").split():
        (home / f"held at {step}").touch()
        while not (home / f"go on {step}").exists():
            time.sleep(0.02)


def steps(self: Attempt, evaluate: Evaluate) -> Iterator[int]:
    for step in _steps(self, evaluate):
        ranks = self._trained.ranks
        if self._place.attempt == 1 and (ranks.alone or not ranks.first):
            _hold_at(step, "TEST_HELD_AT")
        yield step


def repeat(self: Replay, step: int, on_progress: OnProgress = quiet) -> StepContent:
    _hold_at(step, "TEST_HELD_REPEATING")
    return _repeat(self, step, on_progress)


if __name__ in ("__main__", "__mp_main__"):  # in each process of a run
    Attempt.steps, Replay.repeat = steps, repeat  # type: ignore[method-assign]
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
