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
from typing import Self

from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
MEASURED = ROOT / "docs" / "measured"


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
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        processor = platform.processor() or platform.machine()
    return {"machine": f"{processor}, {os.cpu_count()} cores", "date": time.strftime("%Y-%m-%d")}


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
    import torch  # only here: it takes longer than a benchmark of the inspector needs to begin

    card, _, driver = name.partition(", ")
    return f"{card}, driver {driver}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"


class Kept(BaseModel):
    """Measurements as they are kept in JSON: raw, so that every table can be made again from them."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """What an earlier call left, or nothing yet."""
        return cls.model_validate_json(path.read_text()) if path.exists() else cls()

    def write(self, path: Path) -> None:
        """As JSON, without the parts that were not measured."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(exclude_none=True) + "\n")


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


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def show_tables(text: str, arguments: argparse.Namespace, began: float, mark: str) -> None:
    """Print them, and how long they took; with --write also put them into the page."""
    print(f"\n{text}\n\nin {(time.monotonic() - began) / 60:.1f} minutes; kept in {arguments.out}")
    if arguments.write:
        replace_tables(PAGE, text, mark)


def replace_tables(page: Path, text: str, mark: str) -> None:
    """Replace the text between the two marks of this name. Raises ValueError if the page lacks them."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} has no marks {begin} and {end} to put the tables between")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")
