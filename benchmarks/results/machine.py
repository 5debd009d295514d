"""Where and when something was measured."""

import os
import platform
import time
from pathlib import Path


def where() -> dict[str, str]:
    """The machine and the day."""
    return {"machine": f"{_processor()}, {os.cpu_count()} cores", "date": time.strftime("%Y-%m-%d")}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
