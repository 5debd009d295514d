"""What the backend refuses, as domain nouns; `error_answers.py` renders them. Imports little: the process that reads uploads raises them, too."""

from backend.contract.base import Json
from backend.field_errors import FieldError, summary


class Refusal(Exception):
    """A request that cannot be granted: `code` for programs, the message for people, `details` for either."""

    status = 400
    code = "bad_request"

    def __init__(self, message: str, details: Json = None) -> None:
        super().__init__(message)
        self.message, self.details = message, details


class BadRequest(Refusal):
    """The request cannot be read."""


class NotFound(Refusal):
    """There is no such thing."""

    status, code = 404, "not_found"


class Conflict(Refusal):
    """The thing's present state does not allow it."""

    status, code = 409, "conflict"


class LeaseLost(Refusal):
    """The attempt is not the run's current one, or the run is no longer running: what it sends changes nothing."""

    status, code = 409, "lease_lost"


class ReportConflict(Refusal):
    """The same number was used for something else before."""

    status, code = 409, "report_conflict"


class Unavailable(Refusal):
    """Something else that the request needs does not answer now."""

    status, code = 503, "unavailable"


class Invalid(Refusal):
    """Fields with wrong values; `details` lists them as {field, message}."""

    status, code = 422, "invalid"

    def __init__(self, *errors: FieldError) -> None:
        super().__init__(summary(errors), [{"field": error.field, "message": error.message} for error in errors])
        self.errors = errors
