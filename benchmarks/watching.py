"""What does `groupscope.watch` cost? TRL trains the same steps with it and without, in turns, with the backend up and away.

    python benchmarks/watching.py                     both models (make sure that nothing else computes): about 25 minutes on two cores
    python benchmarks/watching.py --only tiny         the tiny model alone: minutes
    python benchmarks/watching.py --trial             a trial of the benchmark itself; its figures mean nothing

Each side is a process of its own that trains a block of steps on request. Prints milliseconds a step by the clock, the processor time
of the training's process (not of the one beside it), and the difference and ratio of the two sides' blocks with 95 % intervals (Student's t over
the blocks, of the ratio's logarithm).
"""

import math
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

from results.page import command_line, where
from scale.site import TOKEN, site
from sides.process import Side, ours
from sides.workloads import QUICKSTART_WORK, REFERENCE, Workload, on_the_tiny_model

WORKS = {"tiny": (QUICKSTART_WORK, 10), "smollm2": (REFERENCE, 1)}  # and steps of a block: seconds of either
BLOCKS = 10
NOBODY = "http://127.0.0.1:9"  # a port on which nothing listens
T_95 = {3: 3.182, 9: 2.262}  # by degrees of freedom


def measure(work: Workload, block: int, blocks: int, models: Path, logs: Path) -> dict[str, list[dict[str, float]]]:
    """Of each side its blocks, after one that warms up."""
    work = replace(work, steps=block * (blocks + 2))
    home = logs / "home"
    home.mkdir()
    os.environ["GROUPSCOPE_TOKEN"] = TOKEN
    with ExitStack() as stack:
        up = stack.enter_context(site(home))
        with ours(work, models, logs / "prompts.log") as own:  # which model and prompts these are
            job = work.job().model_copy(update={"model": own.ready.model, "prompts": own.ready.prompts, "block": block})
        sides = {}
        for name, backend in (("without", ""), ("up", up.backend_url), ("away", NOBODY)):
            os.environ["GROUPSCOPE_HOME"] = str(home if name == "up" else logs / name)
            of_side = job.model_copy(update={"watch": backend})
            sides[name] = stack.enter_context(Side("watched_side", of_side, logs / f"{name}.log"))
        found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
        order = list(sides)
        for number in range(1 + blocks):
            order.append(order.pop(0))  # each goes first in every third turn
            for name in order:
                measured = {each: float(value or 0.0) for each, value in sides[name].step().trained.metrics.items()}
                print(
                    f"  {name:<8} {number or 'warm-up':<8} {measured['wall'] / block:.3f} s a step",
                    flush=True,
                )
                if number:
                    found[name].append(measured)
    return found


def ratio(ones: Sequence[float], others: Sequence[float]) -> str:
    """Of the pairs, with its 95 % interval."""
    logs = [math.log(one / other) for one, other in zip(ones, others, strict=True)]
    return "{:.3f} ({:.3f} to {:.3f})".format(*map(math.exp, interval(logs)))


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and its 95 % interval."""
    middle, half = fmean(values), T_95[len(values) - 1] * stdev(values) / math.sqrt(len(values))
    return middle, middle - half, middle + half


def main() -> None:
    """Parse, measure, print."""
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="+", choices=list(WORKS), default=list(WORKS))
    parser.add_argument(
        "--models", type=Path, default=Path(".groupscope") / "models", help="converted models are kept here"
    )
    parser.add_argument("--trial", action="store_true", help="the tiny model and a few steps; its figures mean nothing")
    arguments = parser.parse_args()
    print(where())
    for name in arguments.only:
        logs = Path(tempfile.mkdtemp(prefix="groupscope-watching-"))
        (work, block), blocks = WORKS[name], BLOCKS
        if arguments.trial:
            work, block, blocks = on_the_tiny_model(work), 2, 4
        print(work.about, flush=True)
        found = measure(work, block, blocks, arguments.models, logs)
        alone = found["without"]
        for side, each in found.items():
            walls, used = ([one[what] for one in each] for what in ("wall", "processor"))
            line = f"{name}, {side}: {1000 * fmean(walls) / block:.1f} ms a step, {1000 * fmean(used) / block:.1f} ms of processor time"
            if side != "without":
                apart = [1000 * (wall - one["wall"]) / block for wall, one in zip(walls, alone, strict=True)]
                line += "; by the clock {:+.1f} ms a step ({:+.1f} to {:+.1f}), ".format(*interval(apart))
                line += f"{ratio(walls, [one['wall'] for one in alone])} times that without, in processor time "
                line += ratio(used, [one["processor"] for one in alone])
            print(line, flush=True)


if __name__ == "__main__":
    main()
