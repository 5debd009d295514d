"""What ends a run: one root, whose fields are what the run's page shows."""


class RunFailure(Exception):
    """The run cannot go on.

    `code` is for programs, `message` tells the person who started the run what happened and what to do, `details`
    holds a traceback where there is one.
    """

    def __init__(self, code: str, message: str, details: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details
