"""What the browser tests stand on, and the hostile texts among their records."""

from dataclasses import dataclass

from processes import Site

from backend.contract.client import Client
from backend.contract.protocol import Claim

SCRIPT = "<script>alert('script')</script>"
IMAGE = '<img src="http://evil.example/pixel.png" onerror="alert(\'image\')">'
MARKDOWN = "![a beacon](http://evil.example/beacon.png) [a link](javascript:alert(1)) # heading"
ESCAPES = "\x1b[2J\x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07"
HOSTILE = (SCRIPT, IMAGE, MARKDOWN, ESCAPES)


@dataclass(frozen=True)
class Stack:
    """A backend and a dashboard, and runs that were recorded before any worker could take them."""

    site: Site
    url: str  # the dashboard's
    live: tuple[int, Claim]
    first: int
    second: int
    hostile: int
    failed: int

    @property
    def client(self) -> Client:
        return self.site.client
