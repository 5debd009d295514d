"""Where a request comes from: the name by which it asks, and whether a page of another site sent it."""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_OURS = ("same-origin", "none")  # of Sec-Fetch-Site; none: a person typed the address or chose a bookmark


def host_name(netloc: str) -> str | None:
    """The name without the port; None if it cannot be read."""
    try:
        return urlsplit(f"//{netloc}").hostname
    except ValueError:
        return None


def known_host(headers: Headers, names: Collection[str]) -> bool:
    """Whether the request names this server by loopback or by one of `names`.

    A name that somebody else owns may lead here (DNS rebinding): then the browser takes their page and ours for one site.
    """
    name = host_name(headers.get("host", ""))
    return name in LOOPBACK or name in {known.lower() for known in names}


def of_another_site(headers: Headers) -> bool:
    """Whether a page that this server did not send makes the request; another port of the same machine is another site."""
    if headers.get("sec-fetch-site", "none") not in _OURS:
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True
