"""A proxy before a vLLM server, which can keep an update from it while it says that all is well."""

import json
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx


class Proxy(ThreadingHTTPServer):
    """Passes everything on, but for the loads with the numbers in `swallowed`, counted from 1."""

    daemon_threads = True

    def __init__(self, server: str, *, swallowed: Collection[int], checker: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.http = httpx.Client(base_url=server, timeout=600)
        self.swallowed, self.checker = swallowed, checker
        self.loads = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def proxy(server: str, *, swallowed: Collection[int] = (), checker: bool = True) -> Iterator[Proxy]:
    """Answers until the end; without `checker` as a server would that has no /weight_checker."""
    with Proxy(server, swallowed=swallowed, checker=checker) as one:
        threading.Thread(target=one.serve_forever, args=(0.05,), daemon=True).start()
        yield one
        one.shutdown()
        one.http.close()


class Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._pass_on(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/weight_checker" and not self.server.checker:
            return self._answer(404, b'{"detail": "Not Found"}')
        if self.path == "/collective_rpc":
            self.server.loads += 1
            if self.server.loads in self.server.swallowed:
                return self._answer(200, json.dumps({"results": [None]}).encode())
        return self._pass_on(body)

    def _pass_on(self, body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        answer = self.server.http.request(self.command, self.path, content=body, headers=headers)
        self._answer(answer.status_code, answer.content)

    def _answer(self, status: int, content: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):  # the worker gave up
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass
