"""What ends a run: a failure, whose fields are what the run's page shows, or the worker's shutdown."""


class RunFailure(Exception):
    """The run cannot go on.

    `code` is for programs, `message` tells the person who started the run what happened and what to do, `details`
    holds a traceback where there is one.
    """

    def __init__(self, code: str, message: str, details: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details


class Interrupted(Exception):
    """The worker shuts down where nothing is lost by stopping: the weights are those of the last whole step."""
