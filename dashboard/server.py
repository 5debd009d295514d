"""The dashboard's process: the pages, the downloads that are too large for a page's memory, and the door before both.

The door lets in requests under our own names from our own pages, and marks answers so that no other site can use them. The dashboard
holds the backend's token, so a page of another site must neither read it, nor press its buttons, nor show it in a frame.
"""

import argparse
import base64
import gc
import hashlib
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import get_args

import streamlit
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnected
from streamlit import config
from streamlit.starlette import App

from backend.contract.home import in_words, load, make_private
from backend.server.connections import listen, raise_file_limit, serve
from backend.server.log import set_up_log
from backend.server.origin import known_host, of_another_site
from dashboard.downloads.routes import ROUTES
from dashboard.requests import finish_callbacks, let_people_go_first, worth_an_answer
from dashboard.session import PageName
from dashboard.settings import Settings

UNKNOWN_NAME = (
    "The dashboard does not answer under this name. Open it under 127.0.0.1, or start it with the name in "
    "GROUPSCOPE_DASHBOARD_ALLOWED_HOSTS."
)
ANOTHER_SITE = "A page of another site may not use the dashboard. Open its address in a tab of its own."
# Streamlit's own page, which says where its server is: a browser that opens /run would look for it at /run/_stcore first, in vain.
_SERVER = "<script>window.__streamlit = { BACKEND_BASE_URL: location.origin }</script>"
_PAGE = (
    (Path(streamlit.__file__).parent / "static" / "index.html").read_text("utf-8").replace("<head>", f"<head>{_SERVER}")
)


def policy() -> str:
    """The content policy: scripts, pictures, fonts and connections of this server only.

    `blob:` is where Streamlit puts the scripts of our own components and the files it offers; its charts and its grid write styles in place.
    The scripts that stand in the page itself are named by their hashes.
    """
    inline = re.findall(r"<script>(.*?)</script>", _PAGE, flags=re.DOTALL)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in inline)
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' blob: {hashes}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "media-src 'self'",
            "manifest-src 'self'",
            "worker-src 'self' blob:",
            "form-action 'self'",
            "base-uri 'self'",
            "frame-ancestors 'none'",
        )
    )


class Door:
    """ASGI middleware around the whole dashboard: pages, Streamlit's own paths, downloads and the WebSocket."""

    def __init__(self, app: ASGIApp, *, names: Collection[str]) -> None:
        self.app = app
        self._names = frozenset(names)
        self._headers = {
            "Content-Security-Policy": policy(),
            "X-Frame-Options": "DENY",  # for browsers that do not know frame-ancestors
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400 or 403."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            with suppress(WebSocketDisconnected):  # a tab was closed while its page was on the way
                await self.app(scope, worth_an_answer(receive), guarded)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # before it was accepted: the server answers 403
        else:
            status, reason = refusal
            await PlainTextResponse(f"{reason}\n", status)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if not known_host(headers, self._names):
            return 400, UNKNOWN_NAME
        if of_another_site(headers) and not _opened_by_a_link(scope, headers):
            return 403, ANOTHER_SITE
        return None


def _opened_by_a_link(scope: Scope, headers: Headers) -> bool:
    """Whether a person follows a link to the dashboard from elsewhere: a tab of its own, which the other site cannot read."""
    return (
        scope["type"] == "http"
        and scope["method"] in ("GET", "HEAD")
        and headers.get("origin") is None
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104  # addresses to listen on, which name no machine


async def _page(_: Request) -> HTMLResponse:
    return HTMLResponse(_PAGE, headers={"Cache-Control": "no-cache"})


def application(names: Collection[str]) -> ASGIApp:
    """The whole dashboard, served under these names and those of this machine."""
    finish_callbacks()
    let_people_go_first()
    pages = [Route(f"/{name}", _page) for name in get_args(PageName)]
    return Door(App(Path(__file__).with_name("app.py"), routes=[*ROUTES, *pages]), names=names)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="groupscope dashboard", description="Serve the dashboard.")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=8501, help="the port to serve on")
    given = parser.parse_args()
    raise_file_limit()
    with in_words():
        settings = load(Settings)
        if settings.home.exists():
            make_private(settings.home)
        sockets = listen(given.host, given.port)
    app = application({*settings.dashboard_allowed_hosts, given.host}.difference(_ANYWHERE))
    set_up_log()  # after Streamlit has set up its own
    config.set_option("server.address", given.host)
    config.set_option("server.port", given.port)
    gc.collect()
    gc.freeze()  # imported modules stay: collecting them again and again would delay everybody's page
    serve(app, sockets, message_bytes=config.get_option("server.maxMessageSize") * 10**6)


if __name__ == "__main__":
    main()
