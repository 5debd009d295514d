"""Preflight's estimate of memory against steps that are really trained, each work in a process of its own.

    python benchmarks/estimates.py --models DIRECTORY [WORK …]      # the table of docs/inspector/before-launch.md

What a process holds before it loads a model (Python, PyTorch) is not a part of an estimate, and is shown beside it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from results.page import command_line
from sides.process import environment, ours
from sides.workloads import LONG, QUICKSTART_WORK, REFERENCE, Workload

from backend.contract.records import Offers
from backend.preflight.facts import Facts
from backend.preflight.preflight import preflight

WORKS = {"quickstart": QUICKSTART_WORK, "reference": REFERENCE, "long": LONG}
STEPS = 3
MIB = 2**20
IMPORTED = "import sides.groupscope_side, sides.messages; print(sides.messages.peak_memory())"


def row(work: Workload, models: Path, log: Path) -> str:
    """A line of the table."""
    with ours(work, models, log) as side:
        peak = max(side.step().trained.peak_memory or 0 for _ in range(STEPS))
    command = [sys.executable, "-c", IMPORTED]
    before = int(subprocess.run(command, env=environment(), capture_output=True, check=True).stdout)
    memory = preflight(work.config, Facts(workers=[Offers(device="CPU, 2 threads", memory_bytes=None)])).memory
    assert memory is not None
    parts = ", ".join(f"{part} {value / MIB:,.0f}" for part, value in memory.parts.items())
    return f"| {work.about} | {memory.total_bytes / MIB:,.0f} ({parts}) | {(peak - before) / MIB:,.0f} | {before / MIB:,.0f} |"


def main() -> None:
    """Print the table."""
    parser = command_line(__doc__)
    parser.add_argument("works", nargs="*", metavar="WORK", help=", ".join(WORKS))
    parser.add_argument("--models", type=Path, required=True, help="where models that were converted are kept")
    asked = parser.parse_args()
    print("| work | estimated, MiB | measured above that | before a model is loaded |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as logs:
        for name in asked.works or WORKS:
            print(row(WORKS[name], asked.models, Path(logs) / f"{name}.log"), flush=True)


if __name__ == "__main__":
    main()
