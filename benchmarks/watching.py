"""What does `groupscope.watch` cost? TRL trains with its hooks in place and taken off, in turns, with the backend up and away.

    python benchmarks/watching.py                     all of them (make sure that nothing else computes): half an hour on two cores
    python benchmarks/watching.py --only eight tiny   the tiny model alone: 20 minutes
    python benchmarks/watching.py --threads 1         torch computes with one thread, so that a core is left for what records
    python benchmarks/watching.py --trial             a trial of the benchmark itself; its figures mean nothing

One process trains all blocks of a comparison, since two processes of the same work differ by some percent for as long as they live. All its
completions have the same length, so that all blocks have the same work. Of each four blocks the hooks are off in the first and the last, so that
a machine that becomes slower counts for both. Prints how far the median steps are apart, with an interval, since single steps take half as
long again when the machine has something else to do; and what is measured directly: how long the training's thread was in the hooks, and the
processor time of the process beside it, which takes what the training leaves, and of the backend.
"""

import os
import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

import psutil
from results.page import command_line, where
from scale.site import TOKEN, site
from sides.process import Side, ours
from sides.workloads import QUICKSTART_WORK, REFERENCE, Workload, on_the_tiny_model

from backend.contract.training import Sampling

SMOLLM2 = replace(
    REFERENCE,
    about="SmolLM2-135M-Instruct, 2 × 4 completions, about 47 prompt tokens, 24 new",
    config=REFERENCE.config.model_copy(
        update={"sampling": Sampling(prompts_per_step=2, group_size=4, max_new_tokens=24)}
    ),
    batch=8,
)


def tiny(prompts: int, about: str) -> Workload:
    """The recipe `grpo` with this number of prompts in a step."""
    config = QUICKSTART_WORK.config
    sampling = config.sampling.model_copy(update={"prompts_per_step": prompts, "max_new_tokens": 16})
    return replace(
        QUICKSTART_WORK,
        about=f"builtin:tiny-arithmetic, {prompts} × 8 completions, {about}; 16 new tokens, about as many as it writes by itself",
        config=config.model_copy(update={"sampling": sampling}),
        batch=8 * prompts,
    )


WORKS = {  # and steps of a block: seconds of each
    "eight": (tiny(1, "as many as TRL has by default"), 40),
    "tiny": (tiny(16, "the recipe `grpo`"), 10),
    "smollm2": (SMOLLM2, 1),
}
FOURS = 10
NOBODY = "http://127.0.0.1:9"  # a port on which nothing listens


def measure(
    work: Workload, name: str, block: int, fours: int, models: Path, logs: Path, threads: int | None
) -> list[dict[str, float]]:
    """The blocks after one that warms up."""
    work = replace(work, steps=block * (4 * fours + 2))
    home = logs / "home"
    home.mkdir()
    os.environ["GROUPSCOPE_TOKEN"] = TOKEN
    with ExitStack() as stack:
        up = stack.enter_context(site(home))
        with ours(work, models, logs / "prompts.log") as own:  # which model and prompts these are
            job = work.job().model_copy(update={"model": own.ready.model, "prompts": own.ready.prompts})
        os.environ["GROUPSCOPE_HOME"] = str(home if name == "up" else logs / name)
        watched = {"watch": up.backend_url if name == "up" else NOBODY, "block": block, "lengths": "fixed"}
        if threads is not None:
            watched["threads"] = threads
        side = stack.enter_context(Side("watched_side", job.model_copy(update=watched), logs / f"{name}.log"))
        backend, found = psutil.Process(up.processes["backend"].pid), []
        for number in range(1 + 4 * fours):
            before = sum(backend.cpu_times()[:2])
            measured = {each: float(value or 0.0) for each, value in side.step().trained.metrics.items()}
            measured["backend"] = sum(backend.cpu_times()[:2]) - before
            how = "watched" if measured["watched"] else "not watched"
            print(f"  {name} {number or 'warm-up':<8} {measured['wall'] / block:.3f} s a step, {how}", flush=True)
            found.append(measured)
    return found[1:]


def steps_of(found: Sequence[Mapping[str, float]]) -> list[float]:
    """Of all steps of these blocks, in milliseconds."""
    return [1000 * value for one in found for name, value in one.items() if name.startswith("step/")]


def apart(found: Sequence[Mapping[str, float]], block: int) -> tuple[float, float, float]:
    """Between watched blocks and the others: how far the median steps are apart in milliseconds, their ratio, and how far the training's
    own processor time is apart in milliseconds a step."""
    off, on = ([one for one in found if one["watched"] == watched] for watched in (0.0, 1.0))
    without, watched = median(steps_of(off)), median(steps_of(on))
    used, more = (1000 * median(one["processor"] for one in each) / block for each in (off, on))
    return watched - without, watched / without, more - used


def intervals(found: Sequence[Mapping[str, float]], block: int) -> list[tuple[float, float]]:
    """Of each of these, 95 % of what 2,000 draws of as many fours of blocks give."""
    fours = [found[first : first + 4] for first in range(0, len(found), 4)]
    draws = random.Random(0)
    drawn = [apart([one for four in draws.choices(fours, k=len(fours)) for one in four], block) for _ in range(2000)]
    return [(each[49], each[1949]) for each in map(sorted, zip(*drawn, strict=True))]


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="+", choices=list(WORKS), default=list(WORKS))
    parser.add_argument(
        "--models", type=Path, default=Path(".groupscope") / "models", help="converted models are kept here"
    )
    parser.add_argument("--threads", type=int, help="of torch; by default as many as it takes by itself")
    parser.add_argument("--fours", type=int, default=FOURS, help="of blocks, in each comparison")
    parser.add_argument("--trial", action="store_true", help="the tiny model and a few steps; its figures mean nothing")
    arguments = parser.parse_args()
    print(where())
    for name in arguments.only:
        (work, block), fours = WORKS[name], arguments.fours
        if arguments.trial:
            work, block, fours = on_the_tiny_model(work), 2, 1
        print(work.about, flush=True)
        for side in ("up", "away"):
            logs = Path(tempfile.mkdtemp(prefix="groupscope-watching-"))
            found = measure(work, side, block, fours, arguments.models, logs, arguments.threads)
            print(f"{name}, the backend {side}: {said(found, block)}", flush=True)


def said(found: Sequence[Mapping[str, float]], block: int) -> str:
    """The blocks in words."""
    off, on = ([one for one in found if one["watched"] == watched] for watched in (0.0, 1.0))
    busy = sum(one["processor"] for one in off) / sum(one["wall"] for one in off)
    more, times, used = (
        f"{value:{form}} ({low:{form}} to {high:{form}})"
        for value, (low, high), form in zip(
            apart(found, block), intervals(found, block), ("+.1f", ".3f", "+.1f"), strict=True
        )
    )
    hooks, beside, backend = (1000 * median(one[what] for one in on) / block for what in ("hooks", "beside", "backend"))
    return (
        f"the median step takes {median(steps_of(off)):.1f} ms without, {busy:.2f} cores busy with it; watched {more} ms, {times} times, "
        f"{used} ms of the training's own processor time; in the hooks {hooks:.1f} ms; {beside:.1f} ms of processor time in the process "
        f"beside it, {backend:.1f} ms in the backend"
    )


if __name__ == "__main__":
    main()
