"""The one shape in which every error is answered."""

import logging
import sqlite3
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from backend.contract.base import Json, to_json
from backend.errors import Invalid, Refusal
from backend.field_errors import field_errors
from backend.reserve import error_code, is_disk_full

log = logging.getLogger(__name__)

DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
DAMAGED_WORDS = (
    "The database file is damaged, and part of it cannot be read. Stop Groupscope, run `groupscope doctor`, which says "
    "what is wrong, and put a backup in place with `groupscope restore`."
)
CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
}


def error_response(
    status: int, code: str, message: str, details: Json = None, headers: dict[str, str] | None = None
) -> Response:
    """The one shape."""
    body = {"error": {"code": code, "message": message, "details": details}}
    return Response(to_json(body), status_code=status, headers=headers, media_type="application/json")


async def _refusal(_request: Request, error: Refusal) -> Response:
    # a client that is sent away leaves its connection to others
    later = {"Retry-After": "5", "Connection": "close"} if error.status == 503 else None
    return error_response(error.status, error.code, error.message, error.details, later)


async def _http(request: Request, error: HTTPException) -> Response:
    message = str(error.detail)
    if error.status_code in (404, 405):
        message = f"{request.method} {request.url.path} is not a route of this backend"
    code = CODES.get(error.status_code, "http_error")
    return error_response(error.status_code, code, message, headers=dict(error.headers or {}))


async def _validation(_request: Request, error: RequestValidationError) -> Response:
    return await _refusal(_request, Invalid(*field_errors(error.errors(), error.body)))


async def _storage(request: Request, error: DatabaseError | PoolTimeout) -> Response:
    text = str(getattr(error, "orig", None) or error)
    if isinstance(error, PoolTimeout) or "locked" in text or "busy" in text:
        message = "The database is busy; nothing was changed. Try again."
        return error_response(503, "busy", message, headers={"Retry-After": "1"})
    if is_disk_full(error, _home(request)):
        return disk_full()
    # text that is no longer valid UTF-8 is found by Python's module, not by SQLite
    if error_code(getattr(error, "orig", None)) & 0xFF in DAMAGED or "Could not decode" in text:
        log.error("the database file is damaged: %s", text)
        return error_response(500, "database_damaged", DAMAGED_WORDS)
    return await _internal(request, error)


async def _twice(_request: Request, error: IntegrityError) -> Response:
    """The last fence: what is sent twice, or names what is gone, is refused before, with better words."""
    log.error("a row was refused by the database", exc_info=error)
    message = (
        "This contradicts what is stored: a number is used twice, or what it belongs to is gone. Nothing was changed."
    )
    return error_response(409, "conflict", message)


async def _file(request: Request, error: OSError) -> Response:
    return disk_full() if is_disk_full(error, _home(request)) else await _internal(request, error)


def _home(request: Request) -> Path:
    home: Path = request.app.state.services.settings.home
    return home


def disk_full() -> Response:
    """What is answered when a write found no room; nothing was changed."""
    text = "The disk is full, or its quota is used up; nothing was changed. Free some space and try again."
    return error_response(507, "disk_full", text)


async def _internal(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(500, "internal", "The backend failed; its log says why.")


def install(app: FastAPI) -> None:
    """Render every error in the one shape, without a thread: a refusal is fast when the backend is busy, too."""
    handlers: dict[type[Exception], Any] = {  # each handles its own kind
        Refusal: _refusal,
        HTTPException: _http,
        RequestValidationError: _validation,
        DatabaseError: _storage,
        IntegrityError: _twice,
        PoolTimeout: _storage,
        OSError: _file,
        Exception: _internal,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
