"""Who gets in to the dashboard: its own names and its own pages, on every path and by every method."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from processes import Site
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from dashboard.server import Door
from dashboard.settings import Settings

METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
ANOTHER_SITE = [
    *(
        {"Origin": f"http://{site}"}
        for site in ("evil.example", "evil.example:8501", "localhost:9999", "127.0.0.1", "[")
    ),
    *({"Origin": origin} for origin in ("null", "")),
    *({"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")),
    {**LINK, "Sec-Fetch-Dest": "iframe"},
    {**LINK, "Origin": "http://evil.example"},
]


def page(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ours")


async def socket(connection: WebSocket) -> None:
    await connection.accept("streamlit")
    with suppress(WebSocketDisconnect):
        while True:
            await connection.send_bytes(await connection.receive_bytes())


@pytest.fixture
def client() -> Iterator[TestClient]:
    routes = [Route("/{path:path}", page, methods=METHODS), WebSocketRoute("/_stcore/stream", socket)]
    door = Door(Starlette(routes=routes), names=["box.lan"])
    with TestClient(door, base_url="http://127.0.0.1:8501") as client:
        yield client


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8501", "localhost:8501", "[::1]:8501", "LOCALHOST", "box.lan", "Box.lan:80"]
)
def test_its_own_names_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/run", headers={"Host": host, "Origin": f"http://{host}"}).text == "ours"


@pytest.mark.parametrize(
    "host", ["evil.example:8501", "127.0.0.1.evil.example", "box.lan.evil.example", "", "[", "0.0.0.1"]
)
def test_a_foreign_name_is_refused_by_every_method(client: TestClient, host: str) -> None:
    for method in METHODS:
        answer = client.request(method, "/run", headers={"Host": host, "Origin": f"http://{host}"})
        assert answer.status_code == 400, method
        assert "ours" not in answer.text
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/_stcore/stream", headers={"Host": host}):
        pass


@pytest.mark.parametrize("headers", ANOTHER_SITE)
def test_a_page_of_another_site_is_refused_by_every_method(client: TestClient, headers: dict[str, str]) -> None:
    for method in METHODS:
        assert client.request(method, "/media/x", headers=headers).status_code == 403, method
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/_stcore/stream", headers=headers):
        pass


def test_a_page_of_our_own_may_do_everything_and_a_link_from_another_site_open_a_page(client: TestClient) -> None:
    assert client.get("/run?id=1", headers=LINK).text == "ours"
    assert client.post("/run?id=1", headers=LINK).status_code == 403
    own = {"Origin": "http://127.0.0.1:8501", "Sec-Fetch-Site": "same-origin"}
    for method in METHODS:
        assert client.request(method, "/_stcore/upload_file/1/2", headers=own).status_code == 200
    with client.websocket_connect("/_stcore/stream", ["streamlit"], headers={"Host": "127.0.0.1:8501", **own}):
        pass


def test_every_answer_forbids_frames_guesses_of_its_kind_and_scripts_of_others(client: TestClient) -> None:
    for headers in ({}, {"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        answer = client.get("/", headers=headers)
        policy = answer.headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "frame-ancestors 'none'", "connect-src 'self'"} <= set(policy)
        [scripts] = [part for part in policy if part.startswith("script-src")]
        assert "unsafe" not in scripts
        assert "http" not in scripts
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"


def test_names_are_listed_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPSCOPE_DASHBOARD_ALLOWED_HOSTS", "box.lan, gpu.example ,")
    assert Settings().dashboard_allowed_hosts == ("box.lan", "gpu.example")


WALK = """
from dashboard.server import application
app = application([]).app._build_starlette_app()
print(*(getattr(route, "path", "/") for route in app.routes), sep="\\n")
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_every_route_of_the_dashboard_is_behind_the_door(tmp_path: Path) -> None:
    walked = subprocess.run([sys.executable, "-c", WALK], capture_output=True, text=True, check=True, timeout=60)
    routes = {line for line in walked.stdout.splitlines() if line.startswith("/")}
    assert {f"/_stcore/{name}" for name in ("stream", "metrics", "host-config")} <= routes
    assert "/downloads/{ticket}/{run_id:int}/{what}" in routes
    paths = [*sorted(routes), "/", "/run", "//", "/%2e%2e/", "/_STCORE/health", "/_stcore/health/"]
    site = Site(tmp_path / "home")
    try:
        url = site.dashboard()
        name = url.removeprefix("http://").replace("127.0.0.1", "evil.example")
        strangers = ({"Host": name, "Origin": f"http://{name}"}, {"Origin": "http://evil.example"})
        with httpx.Client(base_url=url) as client:
            for path in paths:
                for method in [*METHODS, "TRACE"]:
                    for headers, status in zip(strangers, (400, 403), strict=True):
                        answer = client.request(method, path, headers=headers)
                        assert answer.status_code == status, (method, path)
            upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
            for headers in strangers:
                opening = {**upgrade, "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", **headers}
                assert client.get("/_stcore/stream", headers=opening).status_code == 403
    finally:
        site.close()
