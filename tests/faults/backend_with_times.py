"""The real backend, which writes down how long each of its answers took: route, status and seconds, a line each."""

import json
import os
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend import app as backend

FILE = "GROUPSCOPE_TEST_TIMES"


class Times:
    """ASGI middleware around all that the backend does with a request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._file = open(os.environ[FILE], "a", buffering=1)  # noqa: SIM115  # as long as the process

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", scope["path"])
            line = {"method": scope["method"], "route": route, "status": status}
            self._file.write(json.dumps(line | {"seconds": time.perf_counter() - began, "at": time.monotonic()}) + "\n")


if __name__ == "__main__":
    create_app = backend.create_app
    backend.create_app = lambda *args, **kwargs: Times(create_app(*args, **kwargs))  # type: ignore[assignment,return-value]
    backend.main()
