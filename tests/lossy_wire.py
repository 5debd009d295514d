"""A wire between a client and a backend that loses answers: the request arrives and is committed, and nobody hears of it."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

PASSED_ON = ("Authorization", "Content-Type", "Idempotency-Key", "Groupscope-Claim")


class Wire:
    """Listens on `url`. `loses`, if it is set, is asked after each answer of the backend whether the client may not have it."""

    def __init__(self, backend_url: str) -> None:
        self.loses: Callable[[str], bool] = lambda _path: False
        self.lost: list[str] = []
        self._backend = httpx.Client(base_url=backend_url, timeout=60)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._backend.close()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
                answer = wire._backend.request(self.command, self.path, content=body, headers=headers)
                if wire.loses(self.path):
                    wire.lost.append(self.path)
                    self.close_connection = True
                    return
                self.send_response(answer.status_code)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _pass_on

            def log_message(self, *_: Any) -> None:
                """Nothing is written down."""

        return Handler
