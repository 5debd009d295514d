"""Who may ask: the Host check, the refusal of cross-site requests, and the bearer token, before any route is looked at."""

import hmac
import os
import secrets
from collections.abc import Collection
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.contract.home import TOKEN, stored_token
from backend.error_answers import error_response
from backend.server.origin import known_host, of_another_site
from backend.settings import Settings

OPEN_PATHS = frozenset({"/healthz"})
UNAUTHORIZED = "This needs the backend's token, as Authorization: Bearer <token>. It lies in <home>/token there, or is its GROUPSCOPE_TOKEN."
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def token_of(settings: Settings) -> str:
    """The token that clients must show: the setting's, else the one in `<home>/token`, made at the first start. Raises CannotStart."""
    if settings.token is not None:
        return settings.token.get_secret_value()
    path = settings.home / TOKEN
    settings.home.mkdir(parents=True, exist_ok=True)
    if not path.exists():  # it is made whole or not at all, also when two processes start at once
        partial = path.with_name(f".token.{os.getpid()}.partial")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            os.fsync(file.fileno())  # a power cut may leave no file, never an empty one
        try:
            with suppress(FileExistsError):  # the other process was first: its token counts
                os.link(partial, path)
        finally:
            partial.unlink()
    return stored_token(settings.home)


class Gate:
    """ASGI middleware: everything but /healthz needs a known Host, no foreign origin, and the token."""

    def __init__(self, app: ASGIApp, *, token: str, allowed_hosts: Collection[str]) -> None:
        if not token:
            raise ValueError("an empty token would let everybody in")
        self.app = app
        self._token = token.encode()
        self._hosts = frozenset(allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400, 401 or 403."""
        refusal = None if scope["type"] == "lifespan" else self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            status, code, message = refusal
            headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
            await error_response(status, code, message, headers=headers)(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        if scope["type"] != "http":
            return 403, "forbidden", "Only plain HTTP is spoken here."
        headers = Headers(scope=scope)
        if not known_host(headers, self._hosts):
            return 400, "bad_host", "This Host is not served; name it in GROUPSCOPE_BACKEND_ALLOWED_HOSTS."
        if scope["method"] not in SAFE_METHODS and of_another_site(headers):
            return 403, "cross_site", "A page of another site may not do this."
        if scope["path"] in OPEN_PATHS and scope["method"] in SAFE_METHODS:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token):
            return None
        return 401, "unauthorized", UNAUTHORIZED
