"""What does `groupscope.watch` cost? TRL trains the same steps with it and without, in turns, with the backend up and away.

    python benchmarks/watching.py                     both models (make sure that nothing else computes): about 15 minutes on two cores
    python benchmarks/watching.py --only tiny         the tiny model alone: minutes
    python benchmarks/watching.py --trial             a trial of the benchmark itself; its figures mean nothing

Each side is a process of its own that trains a block of steps on request. Prints the median of the blocks, of the differences to the block
without and of the ratios, with intervals; and what is measured directly: how long the training's thread was in the hooks of `watch`, and the
processor time of the process beside it, which takes what the training leaves of the machine.
"""

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from results.page import command_line, where
from scale.site import TOKEN, site
from sides.process import Side, ours
from sides.workloads import QUICKSTART_WORK, REFERENCE, Workload, on_the_tiny_model

from backend.contract.training import Sampling

FEW = Sampling(prompts_per_step=2, group_size=4, max_new_tokens=24)  # three trainings of it fit into one memory
SMOLLM2 = replace(
    REFERENCE,
    about="SmolLM2-135M-Instruct, 2 × 4 completions, about 47 prompt tokens, at most 24 new",
    config=REFERENCE.config.model_copy(update={"sampling": FEW}),
    batch=8,
)
WORKS = {"tiny": (QUICKSTART_WORK, 10), "smollm2": (SMOLLM2, 1)}  # and steps of a block: seconds of either
BLOCKS = 10
NOBODY = "http://127.0.0.1:9"  # a port on which nothing listens


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


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median and its interval: between the second and the second last of ten values it lies with 98 %, whatever they are spread like."""
    low, *_, high = sorted(values)[1:-1] if len(values) >= BLOCKS else sorted(values)
    return median(values), low, high


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
            walls = [one["wall"] for one in each]
            line = f"{name}, {side}: {1000 * median(walls) / block:.1f} ms a step"
            if side != "without":
                pairs = list(zip(walls, (one["wall"] for one in alone), strict=True))
                apart = [1000 * (wall - without) / block for wall, without in pairs]
                hooks, beside = (1000 * median(one[what] for one in each) / block for what in ("hooks", "beside"))
                line += ", {:+.1f} ms ({:+.1f} to {:+.1f}), ".format(*interval(apart))
                line += "{:.3f} ({:.3f} to {:.3f}) times that without; ".format(
                    *interval([wall / without for wall, without in pairs])
                )
                line += f"{hooks:.1f} ms of it in the hooks, {beside:.1f} ms of processor time in the process beside it"
            print(line, flush=True)


if __name__ == "__main__":
    main()
