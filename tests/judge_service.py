"""A real chat service on a loopback port, to be a judge: it answers as a test says, and keeps what it was asked."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Act = Callable[["Service", BaseHTTPRequestHandler], None]


class Service(ThreadingHTTPServer):
    """A chat service that answers as `act` says; it keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.act: Act = says('{"score": 5}')
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.now, self.most = 0, 0  # requests under way
        self.counting = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    @classmethod
    @contextmanager
    def serving(cls) -> Iterator["Service"]:
        """Answers until the end."""
        with cls() as one:
            threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True).start()
            yield one
            one.shutdown()


class Handler(BaseHTTPRequestHandler):
    server: Service
    body: dict[str, Any]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        service = self.server
        with service.counting:
            service.bodies.append(body)
            service.headers.append(dict(self.headers) | {"path": self.path})
            service.times.append(time.monotonic())
            service.now += 1
            service.most = max(service.most, service.now)
        try:
            service.act(service, self)
        finally:
            with service.counting:
                service.now -= 1

    def do_GET(self) -> None:
        raise AssertionError("a redirect was followed")

    def log_message(self, format: str, *args: object) -> None:
        pass


def answer(handler: BaseHTTPRequestHandler, status: int, content: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in ({"Content-Length": str(len(content))} | headers).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(content)


def completion(text: object, finish_reason: str = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()


def says(text: object, finish_reason: str = "stop") -> Act:
    return lambda _, handler: answer(handler, 200, completion(text, finish_reason))


def hang(_: Service, handler: BaseHTTPRequestHandler) -> None:
    handler.rfile.read(1)  # until the client gives up
