"""What every benchmark prints and keeps: its command line, the machine, Markdown tables, and their place in a page."""

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
MEASURED = ROOT / "docs" / "measured"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def command_line(doc: str | None, *, kept: Path | None = None, page: Path | None = None) -> argparse.ArgumentParser:
    """A parser whose help is the script's own text; with --out if measurements are `kept`, and --write if there is a page for tables."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if kept is not None:
        parser.add_argument(
            "--out", type=Path, default=kept, help=f"the measurements, {kept.relative_to(ROOT)} by default"
        )
    if page is not None:
        parser.add_argument("--write", action="store_true", help=f"put the tables into {page.relative_to(ROOT)}")
    return parser


def where() -> dict[str, str]:
    """The machine and the day."""
    return {"machine": f"{_processor()}, {os.cpu_count()} cores", "date": time.strftime("%Y-%m-%d")}


def stack(*names: str) -> dict[str, str]:
    """The versions of these packages."""
    return {name: version(name) for name in names}


def gpu() -> str | None:
    """The first NVIDIA GPU, and what drives it; None if there is none."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None
    card, _, driver = name.partition(", ")
    return f"{card}, driver {driver}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"


def keep(path: Path | None, **content: object) -> None:
    """As JSON in this file, if there is one to be."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n")


def home_in(folder: Path | None, name: str) -> Path:
    """The home directory of a benchmark's backend: this one, made if need be, or a temporary one that stays."""
    home = folder or Path(tempfile.mkdtemp(prefix=f"groupscope-{name}-"))
    home.mkdir(parents=True, exist_ok=True)
    return home


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def replace_tables(page: Path, text: str, *, begin: str = BEGIN, end: str = END) -> None:
    """Replace the text between the marks. Raises ValueError if the page lacks them."""
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} has no marks {begin} and {end} to put the tables between")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")
