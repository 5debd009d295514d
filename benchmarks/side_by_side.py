"""How fast is a step? Trains the same steps as TRL, in turns, and says where the time goes and how far the floor is.

    python benchmarks/side_by_side.py                                  all sections (make bench): under 40 minutes on two cores
    python benchmarks/side_by_side.py --only reference telemetry       some of them; the others keep what was measured before
    python benchmarks/side_by_side.py --write                          and put the tables into docs/benchmarks.md
    python benchmarks/side_by_side.py --only worker-start --against ../before
                                                         a worker's start, in turns with another checkout: did it get slower?
    python benchmarks/side_by_side.py --trial --out /tmp/trial.json    a trial of the benchmark itself, on the tiny model

Each side is a process of its own that stays alive and trains one step on request. docs/benchmarks.md explains it all.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from results.page import MEASURED, PAGE, ROOT, command_line, show_tables, where
from results.records import Alone, Comparison, Learning, Measured, Results
from results.tables import tables
from scale.site import TOKEN, site
from sides.floor import SECONDS
from sides.process import fast_and_plain, floor_inputs, ours, show, take_turns, theirs, until_worker_asks
from sides.workloads import (
    LEARNING,
    LONG,
    MEMORY,
    QUICKSTART_WORK,
    REFERENCE,
    WARM_UP,
    Workload,
    on_the_tiny_model,
    with_seed,
)

KEPT = MEASURED / "speed.json"
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Bench:
    """Where a section finds models and leaves logs, and whether it is only tried."""

    models: Path
    logs: Path
    trial: bool
    steps: int | None

    def of(self, work: Workload) -> Workload:
        """The work as it is asked for."""
        work = on_the_tiny_model(work) if self.trial else work
        return work if self.steps is None else replace(work, steps=self.steps)

    def against_trl(self, work: Workload) -> Comparison:
        """Groupscope and TRL in turns, and the floor under both."""
        work = self.of(work)
        with (
            ours(work, self.models, self.logs / f"{work.name}-groupscope.log") as own,
            theirs(work, own, self.logs / f"{work.name}-trl.log") as other,
        ):
            first, second = take_turns(("Groupscope", "TRL"), (own, other), work.steps)
            floor = floor_inputs(work, own, at_least=0.0 if self.trial else SECONDS)
        return Comparison(about=work.about, where=where(), first=first, second=second, floor=floor)

    def starts_against_checkout(self, checkout: Path) -> str:
        """A worker's process from its start until it asks for work, this checkout's and another's in turns."""
        home = self.logs / "home"
        home.mkdir()
        seconds: dict[Path, list[float]] = {ROOT: [], checkout.resolve(): []}
        with site(home) as running:
            known = {"BACKEND_URL": running.backend_url, "TOKEN": TOKEN, "HOME": str(home), "DEVICE": "cpu"}
            settings = {f"GROUPSCOPE_{name}": value for name, value in known.items()}
            for turn in range(2 if self.trial else WORKER_STARTS + 1):
                for one in sorted(seconds, reverse=bool(turn % 2)):  # each goes first in every second turn
                    took = until_worker_asks(one, settings)
                    if turn:  # the first reads the files
                        seconds[one].append(took)
        here, there = seconds.values()
        ratio = median(mine / its for mine, its in zip(here, there, strict=True))
        return (
            f"a worker's start: {median(here):.2f} s here, {median(there):.2f} s there; ratio of the pairs {ratio:.3f} "
            f"(median of {len(here)})"
        )

    def telemetry(self) -> Comparison:
        """Groupscope as it comes, and without token traces; the same seed, so the same tokens."""
        work = self.of(REFERENCE)
        with (
            ours(work, self.models, self.logs / "telemetry-on.log") as on,
            ours(work, self.models, self.logs / "telemetry-off.log", telemetry={"token_traces": "none"}) as off,
        ):
            first, second = take_turns(("defaults", "no token traces"), (on, off), work.steps)
        return Comparison(about=work.about, where=where(), first=first, second=second)

    def memory(self) -> Alone:
        """One step of a fresh process."""
        work = self.of(MEMORY)
        with ours(work, self.models, self.logs / "memory.log") as side:
            step = side.step()
            show("Groupscope", WARM_UP, step)
            measured = Measured.of(side.ready)
            measured.add(step)
        return Alone(about=work.about, where=where(), side=measured)

    def learning(self) -> Learning:
        """The quickstart with fast paths and without, from the same weights, seed by seed."""
        work = self.of(LEARNING)
        pairs = []
        for seed in SEEDS:
            print(f"  seed {seed}", flush=True)
            pairs.append(fast_and_plain(with_seed(work, seed), self.models, self.logs))
        return Learning(about=work.about, where=where(), pairs=pairs)


WORKS = {"reference": REFERENCE, "long": LONG, "quickstart": QUICKSTART_WORK}
SECTIONS: dict[str, Callable[[Bench], Comparison | Alone | Learning]] = {
    **{name: partial(Bench.against_trl, work=work) for name, work in WORKS.items()},
    "memory": Bench.memory,
    "telemetry": Bench.telemetry,
    "learning": Bench.learning,
}


WORKER_START = "worker-start"
WORKER_STARTS = 15


def main() -> None:
    parser = command_line(__doc__, kept=KEPT, page=PAGE)
    parser.add_argument(
        "--only", nargs="+", choices=[*SECTIONS, WORKER_START], default=list(SECTIONS), metavar="SECTION"
    )
    parser.add_argument(
        "--models", type=Path, default=Path(".groupscope") / "models", help="converted models are kept here"
    )
    parser.add_argument("--trial", action="store_true", help="the tiny model and a few steps; its figures mean nothing")
    parser.add_argument(
        "--against", type=Path, metavar="CHECKOUT", help="in turns with another checkout, in this environment"
    )
    parser.add_argument("--steps", type=int, help="steps that count, in place of each section's own number")
    arguments = parser.parse_args()
    logs = Path(tempfile.mkdtemp(prefix="groupscope-bench-"))
    bench = Bench(arguments.models, logs, arguments.trial, arguments.steps)
    if (arguments.only == [WORKER_START]) != (arguments.against is not None):
        parser.error(f"--only {WORKER_START} and --against CHECKOUT go together, alone; steps: benchmarks/steps.py")
    if arguments.against is not None:
        print(bench.starts_against_checkout(arguments.against), flush=True)
        return
    results = Results.read(arguments.out)
    began = time.monotonic()
    for name in arguments.only:
        print(f"{name} ({(time.monotonic() - began) / 60:.1f} minutes so far)", flush=True)
        results = results.model_copy(update={name: SECTIONS[name](bench)})
        results.write(arguments.out)
    show_tables(tables(results), arguments, began, "measured")


if __name__ == "__main__":
    main()
