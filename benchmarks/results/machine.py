"""Where and when something was measured."""

import os
import platform
import subprocess
import time
from pathlib import Path

import torch


def where() -> dict[str, str]:
    """The machine and the day."""
    return {"machine": f"{_processor()}, {os.cpu_count()} cores", "date": time.strftime("%Y-%m-%d")}


def gpu() -> str | None:
    """The first NVIDIA GPU, and what drives it; None where there is none."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None
    card, _, driver = name.partition(", ")
    return f"{card}, driver {driver}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
