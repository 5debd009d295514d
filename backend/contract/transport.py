"""Requests to one backend: the token, the error shape, models out of answers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, TypeAdapter

from backend.contract.base import Json

if TYPE_CHECKING:
    import httpx  # takes a tenth of a second, and code that asks no backend needs none

M = TypeVar("M", bound=BaseModel)


class ApiError(Exception):
    """The backend refused: `code` for programs, the message for people, `details` as it sent them."""

    def __init__(self, status: int, code: str, message: str, details: Json = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.details = status, code, message, details


# The backend closes a connection after five idle seconds; a request that is sent at that very moment gets no answer.
IDLE_SECONDS = 2.0


class Unreachable(Exception):
    """The backend did not answer: it is down, restarting, or the address is wrong."""


class Transport:
    """A connection. Thread-safe. Raises ApiError if the backend refuses and Unreachable if it does not answer or its address cannot be read."""

    def __init__(self, base_url: str, token: str, *, timeout: float) -> None:
        import httpx

        try:
            url = httpx.URL(base_url.rstrip("/"))
            url.host.encode("idna")  # what a connection would do with the name
        except (httpx.InvalidURL, UnicodeError) as error:
            raise Unreachable(f"the backend's address {base_url!r} cannot be read: {error}") from error
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_SECONDS),
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        query: BaseModel | None = None,
        body: BaseModel | Json = None,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> "httpx.Response":
        """The answer, within `timeout` seconds where it takes longer than others. `body` travels as JSON, `content` as it is; of
        `query` only what differs from its defaults.
        """
        import httpx

        params = query.model_dump(mode="json", exclude_defaults=True) if query else {}
        sent = dict(headers or {})
        if content is None and body is not None:
            content = (
                body.model_dump_json().encode() if isinstance(body, BaseModel) else TypeAdapter(Json).dump_json(body)
            )
            sent["Content-Type"] = "application/json"
        try:
            response = self._http.request(
                method, path, params=params, content=content, headers=sent, timeout=timeout or httpx.USE_CLIENT_DEFAULT
            )
        except httpx.TransportError as error:
            raise Unreachable(f"the backend at {self._http.base_url} does not answer: {error}") from error
        if response.is_success:
            return response
        raise _refusal(response)

    def get(self, model: type[M], path: str, query: BaseModel | None = None) -> M:
        """What a GET answers, as a model."""
        return model.model_validate_json(self.send("GET", path, query=query).content)

    def post(self, model: type[M], path: str, body: BaseModel | Json = None, **headers: str) -> M:
        """What a POST answers, as a model."""
        return model.model_validate_json(self.send("POST", path, body=body, headers=headers).content)

    def put(self, model: type[M], path: str, body: BaseModel | Json = None) -> M:
        """What a PUT answers, as a model."""
        return model.model_validate_json(self.send("PUT", path, body=body).content)

    def chunks(self, path: str) -> Iterator[bytes]:
        """A long answer, in chunks as they arrive."""
        import httpx

        try:
            with self._http.stream("GET", path) as response:
                if not response.is_success:
                    response.read()
                    raise _refusal(response)
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise Unreachable(f"the backend at {self._http.base_url} broke off: {error}") from error


def _refusal(response: "httpx.Response") -> ApiError:
    """The error shape of every route; a proxy's page or an empty body becomes one too."""
    try:
        error = response.json()["error"]
        return ApiError(response.status_code, error["code"], error["message"], error.get("details"))
    except (ValueError, KeyError, TypeError):
        text = f"HTTP {response.status_code} from {response.url.path}"
        return ApiError(response.status_code, "unexpected_answer", text)
