"""The OpenAPI document: FastAPI's own, with what the Gate, the body limit and the error handlers can answer on any route."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from backend.auth import OPEN_PATHS
from backend.contract.base import Json, Record

PATH = "/api/v1/openapi.json"
(OPEN,) = OPEN_PATHS  # needs no token, and opens neither a body nor the database
REFERENCE = "#/components/schemas/{model}"


class ErrorBody(Record):
    """`code` is for programs, `message` for people; `details` is often null."""

    code: str
    message: str
    details: Json = None


class ErrorAnswer(Record):
    """The one shape of every error."""

    error: ErrorBody


# What may happen to a request whatever its route; docs/api.md has the codes.
ERRORS = {
    400: "The request cannot be read, or its Host is not served.",
    401: "No token, or a wrong one.",
    403: "A page of another site asks.",
    404: "There is no such thing.",
    405: "The route has other methods.",
    409: "The thing's present state does not allow it.",
    413: "The body is too large.",
    422: "A field is wrong.",
    500: "The backend failed, or its database file is damaged.",
    503: "The backend is busy; nothing was changed.",
    507: "The disk is full; nothing was changed.",
}
OPEN_ERRORS = (400, 405)


def raw_body(media_type: str, schema: type[BaseModel] | dict[str, Any]) -> dict[str, Any]:
    """For the `openapi_extra` of a route that reads its body itself: what it expects there."""
    if isinstance(schema, type):
        schema = schema.model_json_schema(ref_template=REFERENCE)
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


def document(app: FastAPI) -> dict[str, Any]:
    """The document of an application; made once."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes)
        error = ErrorAnswer.model_json_schema(ref_template=REFERENCE)
        content = {"application/json": {"schema": {"$ref": REFERENCE.format(model=ErrorAnswer.__name__)}}}
        # what a schema defines for itself: in the document all definitions lie in one place
        shared = made["components"]["schemas"] | error.pop("$defs", {}) | {"ErrorAnswer": error}
        for path, operations in made["paths"].items():
            for operation in operations.values():
                for body in operation.get("requestBody", {}).get("content", {}).values():
                    shared |= body["schema"].pop("$defs", {})
                statuses = OPEN_ERRORS if path == OPEN else ERRORS
                operation["responses"] |= {
                    str(status): {"description": ERRORS[status], "content": content} for status in statuses
                }
                operation["security"] = [] if path == OPEN else [{"token": []}]
        for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's own shape, which no route answers
            shared.pop(unused, None)
        made["components"] = {"schemas": shared, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        app.openapi_schema = made
    return app.openapi_schema


def answer(request: Request) -> dict[str, Any]:
    """This document."""
    # FastAPI keeps the functions of routes for good: this one must not hold an application
    return document(request.app)
