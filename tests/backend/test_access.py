"""Everything needs the token but /healthz, and no other site's page may act."""

import os
import re
import stat
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from acting import GRPO
from fastapi import FastAPI
from pydantic import SecretStr
from serving import TOKEN, Backend
from starlette.routing import BaseRoute, Mount

from backend.app import create_app
from backend.auth import token_of
from backend.settings import Settings

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE")


def paths(app: FastAPI) -> list[str]:
    """Every path the application knows, with numbers filled in; of what is mounted, its beginning and a path below it."""
    return sorted({re.sub(r"{[\w:]+}", "1", path) for route in app.routes for path in _paths_of(route)})


def _paths_of(route: BaseRoute) -> list[str]:
    if isinstance(route, Mount):
        inner = [f"{route.path}{path}" for one in route.routes or () for path in _paths_of(one)]
        return [route.path, f"{route.path}/anything", *inner]
    router = getattr(route, "original_router", None)
    if router is not None:
        return [path for one in router.routes for path in _paths_of(one)]
    path = getattr(route, "path", None)
    assert isinstance(path, str), f"{route} needs a walk of its own"
    return [path]


SPELLINGS = (
    "/{0} {0}/ {0}// {0}%2f {0}%2e {0}. {0};x=1 {0}%00 {0}%20 /.{0} /%2e{0} /x/..{0} /x/%2e%2e{0} "
    "/healthz/..{0} /healthz/%2e%2e{0} /healthz;{0} /healthz%2f..{0}"
).split()


def spellings(path: str) -> set[str]:
    """Other ways to write a path, which a server or a proxy might take for it."""
    replaced = [path.replace("/", "/%2f", 1), path.replace("/", "\\\\", 1), path.replace("e", "%65", 1)]
    return {path.upper(), f"{path}?token={TOKEN}", *replaced, *(spelling.format(path) for spelling in SPELLINGS)}


def status_of(url: str, method: str, target: str) -> int:
    """What is answered to a request whose target is written as it stands here: a client would tidy it up."""
    host, port = url.removeprefix("http://").split(":")
    connection = HTTPConnection(host, int(port), timeout=30)
    try:
        connection.putrequest(method, target, skip_host=False)
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.slow
def test_every_route_needs_the_token(shared_backend: Backend, tmp_path: Path) -> None:
    known = paths(create_app(Settings(home=tmp_path, token=SecretStr(TOKEN))))
    assert len(known) > 50
    assert {"/metrics", "/api/v1/openapi.json", "/api/v1/runs/1/events"} <= set(known)
    unknown = ["/", "/docs", "/redoc", "/openapi.json", "/api/v1/nothing"]
    with httpx.Client(base_url=shared_backend.url) as stranger:
        for path in [*known, *unknown]:
            for method in METHODS:
                status = stranger.request(method, path).status_code
                is_open = path == "/healthz" and method in ("GET", "HEAD", "OPTIONS")
                assert is_open or status == 401, (method, path, status)


@pytest.mark.slow
def test_no_spelling_of_a_path_goes_around_the_token(shared_backend: Backend) -> None:
    for path in ("/metrics", "/api/v1/runs", "/healthz"):
        for target in spellings(path) | {"*", "//healthz", f"http://127.0.0.1{path}/", "http://evil.example/healthz/"}:
            if target in (f"/healthz?token={TOKEN}", "/h%65althz"):
                continue  # that is its path
            for method in METHODS:
                status = status_of(shared_backend.url, method, target)
                assert status in (400, 401), (method, target, status)


def test_a_route_that_is_mounted_is_walked(tmp_path: Path) -> None:
    app = create_app(Settings(home=tmp_path, token=SecretStr(TOKEN)))
    app.mount("/beside", FastAPI())
    assert {"/beside", "/beside/anything", "/beside/docs"} <= set(paths(app))


FORMS = ["", "{}", "Bearer", "Basic {}", "Bearer {}x", "Bearer \xff", "Bearer\t{}", "Bearer {},", 'Bearer "{}"']
FORMS += ["Bearer Bearer {}", "Token {}", "Bearer {} x", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN.upper()}"]


@pytest.mark.parametrize("header", [form.format(TOKEN) for form in FORMS])
def test_a_near_miss_is_a_miss(shared_backend: Backend, header: str) -> None:
    answer = shared_backend.http.get("/api/v1/runs", headers={"Authorization": header.encode("latin-1")})  # type: ignore[dict-item]
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["code"] == "unauthorized"


FOREIGN = ["evil.example", "127.0.0.1.evil.example", "", "[", "localhost@evil.example"]
LOOPBACK = ["localhost:9", "127.0.0.1", "[::1]:8000", "LOCALHOST"]


@pytest.mark.parametrize("host", FOREIGN + LOOPBACK)
def test_loopback_names_alone_are_served_so_that_no_page_can_rebind_its_name_to_us(
    shared_backend: Backend, host: str
) -> None:
    answer = shared_backend.http.get("/api/v1/runs", headers={"Host": host})
    assert answer.status_code == (200 if host in LOOPBACK else 400)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
    ],
)
def test_a_page_of_another_site_changes_nothing_even_with_the_token(
    shared_backend: Backend, headers: dict[str, str]
) -> None:
    run = shared_backend.client.create_run(GRPO)
    for method, path in (
        ("POST", f"/api/v1/runs/{run.id}/stop"),
        ("DELETE", f"/api/v1/runs/{run.id}"),
        ("PATCH", f"/api/v1/runs/{run.id}"),
    ):
        answer = shared_backend.http.request(method, path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site")
    assert shared_backend.client.run(run.id).status == "queued"


def test_json_sent_as_plain_text_is_refused(shared_backend: Backend) -> None:
    run = shared_backend.client.create_run(GRPO)
    answer = shared_backend.http.patch(
        f"/api/v1/runs/{run.id}", content=b'{"name": "x"}', headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 422


def test_a_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    token = token_of(settings)
    assert len(token) >= 32
    assert token_of(settings) == token
    assert stat.S_IMODE((tmp_path / "home" / "token").stat().st_mode) == 0o600
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["token"]


@pytest.mark.slow
def test_listening_to_other_machines_without_a_token_is_refused(tmp_path: Path) -> None:
    environment = {**os.environ, "GROUPSCOPE_HOME": str(tmp_path / "home"), "GROUPSCOPE_BACKEND_HOST": "0.0.0.0"}  # noqa: S104
    environment.pop("GROUPSCOPE_TOKEN", None)
    command = [sys.executable, "-m", "backend.app"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "set GROUPSCOPE_TOKEN" in ended.stderr
