"""Another site's pages in a real browser: they read nothing of ours, press nothing, and show us in no frame."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from chromium import ARGUMENTS, PATIENCE, installed
from on_page import drawn
from playwright.sync_api import Browser, Page, expect
from processes import TOKEN
from stack import Stack

REBIND = "--host-resolver-rules=MAP evil.example 127.0.0.1"
# Whether a WebSocket opens from the page that stands there.
CONNECT = """(address) => new Promise((done) => {
  const socket = new WebSocket(address, ["streamlit"]);
  socket.onopen = () => done("open");
  socket.onerror = () => done("refused");
})"""
# Whether a picture loads there.
LOAD = """(address) => new Promise((done) => {
  const picture = new Image();
  picture.onload = () => done("loaded");
  picture.onerror = () => done("refused");
  picture.src = address;
})"""


class Evil(BaseHTTPRequestHandler):
    """A site that answers every address with the page that it was given."""

    page = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def evil() -> Iterator[int]:
    """The port of the other site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


@pytest.fixture(scope="module")
def rebinding(browser: Browser) -> Iterator[Browser]:
    """A browser for which evil.example is this machine."""
    chromium = browser.browser_type.launch(executable_path=installed(), args=[*ARGUMENTS, REBIND])
    yield chromium
    chromium.close()


@pytest.fixture
def visitor(rebinding: Browser) -> Iterator[Page]:
    """A page of it, of a person of its own."""
    page = rebinding.new_page()
    page.set_default_timeout(PATIENCE)
    yield page
    page.close()


def paths_of_the_dashboard(stack: Stack) -> list[str]:
    """Pages, Streamlit's own paths, a script, a font, a file of our own and one of Streamlit's."""
    index = httpx.get(stack.url).text
    script = index.split('src="./')[1].split('"')[0]
    font = index.split('href="./')[2].split('"')[0]
    pages = ["/", "/run?id=1", "/new-run", "/group?id=1", "/workers", "/no-such-page"]
    own = ["health", "host-config", "metrics", "stream", "agent/openapi.json", "agent/interact", "upload_file/a/b"]
    return [
        *pages,
        *(f"/_stcore/{name}" for name in own),
        f"/{script}",
        f"/{font}",
        "/media/0.png",
        "/component/x/y.js",
        "/downloads/x/1/report",
    ]


def test_a_rebound_name_gets_nothing_of_dashboard_or_backend(visitor: Page, stack: Stack) -> None:
    """A page of evil.example, whose name now leads to this machine, is one site with us for the browser."""
    backend = [
        "/",
        "/healthz",
        "/api/v1/runs",
        "/api/v1/runs/1",
        "/api/v1/runs/1/events",
        "/api/v1/catalog",
        "/metrics",
    ]
    for base, paths in ((stack.url, paths_of_the_dashboard(stack)), (stack.site.url, backend)):
        rebound = base.replace("127.0.0.1", "evil.example")
        statuses = {}
        for path in paths:
            answer = visitor.goto(rebound + path)
            assert answer is not None
            statuses[path] = answer.status
            assert not answer.text().lstrip().startswith("<!--"), path  # Streamlit's page
        assert {path: status for path, status in statuses.items() if status != 400} == {}
        read = "(address) => fetch(address, {headers: {Authorization: 'Bearer %s'}}).then((answer) => answer.status)"
        assert visitor.evaluate(read % TOKEN, rebound + paths[-1]) == 400
        for socket in ("/_stcore/stream", "/", "/api/v1/runs/1/events"):
            assert visitor.evaluate(CONNECT, rebound.replace("http", "ws") + socket) == "refused"


@pytest.mark.parametrize("site", ["evil.example", "127.0.0.1", "localhost"])
def test_another_sites_page_reaches_nothing_of_the_dashboard(visitor: Page, stack: Stack, evil: int, site: str) -> None:
    """Also a page on another port of this machine: some other program's."""
    Evil.page = b"<p>evil</p>"
    visitor.goto(f"http://{site}:{evil}/")
    for path in ("/", "/_stcore/health", "/_stcore/metrics", "/_stcore/host-config", "/media/0.png"):
        for mode in ("no-cors", "cors"):
            get = f"(address) => fetch(address, {{mode: '{mode}'}}).then((answer) => answer.text(), () => '')"
            assert visitor.evaluate(get, stack.url + path) == "", path
    assert visitor.evaluate(LOAD, stack.url + "/favicon.png") == "refused"
    assert visitor.evaluate(CONNECT, stack.url.replace("http", "ws") + "/_stcore/stream") == "refused"


@pytest.mark.parametrize("site", ["evil.example", "127.0.0.1"])
def test_a_frame_of_another_site_stays_empty(visitor: Page, stack: Stack, evil: int, site: str) -> None:
    Evil.page = f'<p>evil</p><iframe src="{stack.url}/run?id={stack.first}"></iframe>'.encode()
    opened: list[str] = []
    visitor.on("websocket", lambda socket: opened.append(socket.url))
    visitor.goto(f"http://{site}:{evil}/", wait_until="load")
    [_, frame] = visitor.frames
    assert frame.evaluate("document.querySelectorAll('#root, [data-testid]').length") == 0
    assert "recorded one" not in frame.evaluate("document.body?.innerText ?? ''")
    assert opened == []


def test_a_link_from_another_site_opens_the_dashboard_in_its_own_tab(visitor: Page, stack: Stack, evil: int) -> None:
    Evil.page = f'<a href="{stack.url}/run?id={stack.first}">the run</a>'.encode()
    visitor.goto(f"http://evil.example:{evil}/")
    visitor.get_by_text("the run").click()
    expect(visitor.get_by_text("recorded one").first).to_be_visible()


def test_our_own_token_view_works_and_breaks_no_policy(visitor: Page, stack: Stack) -> None:
    said: list[str] = []
    visitor.on("console", lambda line: said.append(line.text))
    group = stack.client.group(stack.client.groups(stack.traced[0], step=0).items[0].id)
    answer = visitor.goto(f"{stack.url}/group?id={group.id}&tokens=1")
    assert answer is not None
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    expect(visitor.get_by_role("listbox")).to_contain_text("<think>")
    drawn(visitor)
    assert [line for line in said if "Content Security Policy" in line] == []
