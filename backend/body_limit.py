"""The largest body that is read, counted as it arrives: a header can lie, and a chunked body has none.

FastAPI has a limit of its own; docs/decisions/0036 says why it is not used.
"""

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.contract.protocol import REPORT_BYTES
from backend.error_answers import error_response

DEFAULT_BYTES = 2 * 2**20
KEEP_BYTES = 32 * 2**20
"""For the prompt ids of a band: 100,000 of 200 letters."""


class BodyLimit:
    """ASGI middleware: 413 beyond 2 MiB, 64 MiB where workers report, and `upload_bytes` where files are uploaded."""

    def __init__(self, app: ASGIApp, *, upload_bytes: int) -> None:
        self.app = app
        self._of_paths = {"/api/v1/uploads": upload_bytes, "/api/v1/uploads/keep": KEEP_BYTES}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse by the declared length at once, and by the received bytes as soon as they are too many."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        usual = REPORT_BYTES if scope["path"].startswith("/api/v1/worker/") else DEFAULT_BYTES
        limit = self._of_paths.get(scope["path"].rstrip("/"), usual)
        message = f"The body is larger than {limit:,} bytes; send less at once."
        declared = Headers(scope=scope).get("content-length", "0")
        if not (declared.isascii() and declared.isdigit()) or len(declared) > 18:
            await error_response(400, "bad_request", "Content-Length is not a number.")(scope, receive, send)
            return
        if int(declared) > limit:
            await error_response(413, "too_large", message)(scope, receive, send)
            return
        received = 0

        async def counting() -> Message:
            nonlocal received
            event = await receive()
            received += len(event.get("body", b""))
            if received > limit:
                raise HTTPException(413, message)  # any other exception would become FastAPI's own 400
            return event

        await self.app(scope, counting, send)
