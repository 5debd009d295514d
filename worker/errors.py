"""What ends a run: a failure, whose fields are what the run's page shows, or the worker's shutdown."""

from typing import Literal


class RunFailure(Exception):
    """The run cannot go on.

    `code` is for programs, `message` tells the person who started the run what happened and what to do, `details`
    holds a traceback where there is one.
    """

    def __init__(self, code: str, message: str, details: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details


class Interrupted(Exception):
    """The attempt ends at a point where nothing is lost: the weights are those of the last whole step.

    `released`: the worker shuts down; `stopped`, `paused`: somebody asked for it before the first step.
    """

    def __init__(self, ending: Literal["released", "stopped", "paused"] = "released") -> None:
        super().__init__(ending)
        self.ending = ending
