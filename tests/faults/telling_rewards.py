"""A reward function that tells what its process knows of the token: from its environment and the command lines around it."""

import os
import sys
from pathlib import Path


def tell(completions: list[str], **_: object) -> list[float]:
    """Raises with all of it."""
    secrets = [value for value in os.environ.values() if "canary" in value]
    parent = Path(f"/proc/{os.getppid()}/cmdline").read_text()
    raise RuntimeError(f"{secrets} {sys.argv} {parent} {sorted(os.environ)}"[:1800])
