"""Has a step become slower? A commit and the mark train steps in turns; what came of it is a line of docs/measured/steps.jsonl.

    python benchmarks/steps.py                       what is checked out here, against the mark: five minutes (make bench-step)
    python benchmarks/steps.py --commit 572440f4     another commit; it gets a checkout and an environment in .marks
    python benchmarks/steps.py --mark 572440f4       against this one, which is the mark from then on
    python benchmarks/steps.py --trl                 TRL too, on the reference work: five minutes more
    python benchmarks/steps.py --only long           work that is not in the five minutes
    python benchmarks/steps.py --slower 0.05         a trial of the command: each update of this side takes so much longer

Both sides are processes that stay alive and train one step on request, as in side_by_side.py. docs/benchmarks.md explains the rest.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import altair as alt
import pandas as pd
from pydantic import BaseModel
from results.page import MEASURED, PAGE, ROOT, command_line, replace_tables, stack, table, where
from results.records import Measured
from sides import workloads
from sides.floor import Tokens, floor_of
from sides.messages import Job
from sides.process import Side, environment, take_turns, theirs
from sides.workloads import WARM_UP, Workload

KEPT, CHART = MEASURED / "steps.jsonl", MEASURED / "steps.png"
CHECKOUTS = ROOT / ".marks"
PHASES = {"rollout": ("prefill", "decode"), "reference": ("reference",), "update": ("update",)}
NOTICED = 0.03
"""More than this share slower than the fastest commit so far needs a sentence."""


@dataclass(frozen=True)
class Turns:
    """The steps of a work: those before memory has settled, and those that count."""

    name: str  # in sides/workloads.py, of every commit
    settle: int
    count: int

    @property
    def work(self) -> Workload:
        work: Workload = getattr(workloads, self.name)
        return work


WORKS = {
    "reference": Turns("REFERENCE", WARM_UP, 12),
    "quickstart": Turns("QUICKSTART_WORK", 30, 90),
    "long": Turns("LONG", WARM_UP, 5),
}
USUAL = ("reference", "quickstart")


class Ratio(BaseModel):
    """Seconds over the mark's: the median of the pairs, and its 95 % interval from their order."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(seconds: Sequence[float], marks: Sequence[float]) -> "Ratio":
        """Of pairs. With fewer than six, no interval holds 95 %: it is then the smallest and the largest."""
        ordered = sorted(mine / its for mine, its in zip(seconds, marks, strict=True))
        count, below, outside = len(ordered), 0, 0.5 ** len(ordered)
        while outside + math.comb(count, below + 1) / 2**count <= 0.025:
            below += 1
            outside += math.comb(count, below) / 2**count
        return Ratio(median=median(ordered), low=ordered[below], high=ordered[-1 - below])

    @property
    def slower(self) -> bool:
        """Whether no chance of the turns says this."""
        return self.low > 1

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


class Work(BaseModel):
    """A work as a commit does it."""

    seconds: float  # of a step, the median
    ratios: dict[str, Ratio]  # of the step and of its phases
    floor: dict[str, float]  # the floor with the fastest product over the seconds, likewise
    memory: tuple[int, int]  # the most bytes of the process, and of the mark's
    trl: float | None = None  # TRL's seconds over these


class Line(BaseModel):
    """A line of the ledger."""

    commit: str
    committed: str
    mark: str
    where: dict[str, str]
    versions: dict[str, str]
    works: dict[str, Work]
    because: str = ""


class AnyJob(Job):
    """A job as older commits understand it, too."""

    endless: bool = True  # before b256bbe9: lengths "fixed"


@dataclass(frozen=True)
class Checkout:
    """A commit's files, and the Python that has what they need."""

    folder: Path
    python: str

    @staticmethod
    def of(commit: str) -> "Checkout":
        """A checkout of its own, made if need be."""
        folder = CHECKOUTS / short(commit)
        if not folder.exists():
            git("worktree", "add", "--force", "--detach", str(folder), commit)
        subprocess.run(["make", "--silent", "-C", str(folder), ".venv/.run"], check=True)  # noqa: S607
        return Checkout(folder, str(folder / ".venv" / "bin" / "python"))

    def side(self, turns: Turns, log: Path, slower: float = 0.0) -> Side:
        """Its own configuration of a work, on our prompts and with completions of a fixed length, so that all sides do the same."""
        work = turns.work
        asked = f"import sides.workloads as w; print(w.{turns.name}.config.model_dump_json())"
        found = subprocess.run(
            [self.python, "-c", asked], capture_output=True, text=True, env=environment(self.folder), cwd=self.folder
        )
        if found.returncode:
            raise SystemExit(f"{self.folder} has no such work: {found.stderr[-2000:]}")
        config, own = json.loads(found.stdout), work.config.model_dump(mode="json")
        for part in ("task", "sampling", "model"):
            config[part] |= {name: own[part][name] for name in config[part] if name in own[part]}
        config["budget"] |= {"steps": 10_000, "eval_every": 0, "checkpoint_every": 0}
        config["telemetry"] |= {"probe_prompts": 0}
        models = str(self.folder / ".groupscope" / "models")
        job = AnyJob(config=config, models=models, lengths="fixed", slower=slower)
        return Side("groupscope_side", job, log, self.folder, self.python)


HERE = Checkout(ROOT, sys.executable)


def git(*command: str) -> str:
    ran = subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S607
    return ran.stdout.strip()


def short(commit: str) -> str:
    return git("rev-parse", "--short=8", f"{commit}^{{commit}}")


def measured(turns: Turns, one: Checkout, mark: Checkout, logs: Path, *, slower: float, at_least: float) -> Work:
    """A work, in turns. Raises SystemExit where the two did not do the same."""
    with (
        one.side(turns, logs / "commit.log", slower) as own,
        mark.side(turns, logs / "mark.log") as other,
    ):
        prompts = [[prompt.ids for prompt in side.ready.prompts] for side in (own, other)]
        sides = take_turns(("this", "the mark"), (own, other), turns.settle - WARM_UP + turns.count)
        if prompts[0] != prompts[1] or sides[0].lengths != sides[1].lengths:
            raise SystemExit(f"{turns.work.name}: the two did not do the same work: other prompts, or other lengths")
        rates, shape = own.rates(at_least), own.ready.shape
    assert shape is not None
    ours, marks = ({name: find(side)[-turns.count :] for name, find in _SECONDS.items()} for side in sides)
    count = turns.work.config.sampling.prompts_per_step
    tokens = Tokens(list(map(len, prompts[0][:count])), sides[0].lengths[0])
    phases = floor_of(shape, tokens, rates.fastest(), reference=any(ours["reference"]))
    least = {name: sum(phases[part].seconds for part in parts if part in phases) for name, parts in PHASES.items()}
    least["step"] = sum(least.values())
    return Work(
        seconds=median(ours["step"]),
        ratios={name: Ratio.of(ours[name], marks[name]) for name in ours if all(marks[name])},
        floor={name: least[name] / median(ours[name]) for name in ours if any(ours[name])},
        memory=(sides[0].peak_memory, sides[1].peak_memory),
    )


def _phase(name: str) -> Callable[[Measured], list[float]]:
    return lambda side: [one.get(f"time/{name}") or 0.0 for one in side.metrics]


_SECONDS: dict[str, Callable[[Measured], list[float]]] = {
    "step": lambda side: side.seconds,
    **{name: _phase(name) for name in PHASES},
}


def against_trl(turns: Turns, one: Checkout, logs: Path) -> float:
    """TRL's seconds over ours on the reference work, with completions as the model ends them."""
    work = replace(turns.work, steps=5)
    job = work.job().model_copy(update={"models": str(one.folder / ".groupscope" / "models")})
    with (
        Side("groupscope_side", job, logs / "trl-own.log", one.folder, one.python) as own,
        theirs(work, own, logs / "trl.log") as other,
    ):
        ours, its = take_turns(("this", "TRL"), (own, other), work.steps)
    return median(trl / mine for mine, trl in zip(ours.seconds, its.seconds, strict=True))


def ledger(kept: Path) -> list[Line]:
    """All lines, the oldest commit first."""
    lines = [Line.model_validate_json(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    return sorted(lines, key=lambda line: line.committed)


def remark(line: Line, earlier: Sequence[Line]) -> str:
    """What is more than 3 % slower than the fastest commit before it, of those that were held against the same mark on such a machine."""
    said = []
    same = [one for one in earlier if one.mark == line.mark and one.where["machine"] == line.where["machine"]]
    for name, work in line.works.items():
        ratio = work.ratios["step"].median
        known = ((one.works[name].ratios["step"].median, one.commit) for one in same if name in one.works)
        best, commit = min(known, default=(math.inf, ""))
        if ratio > (1 + NOTICED) * best:
            said.append(f"{name}: {ratio / best - 1:.0%} slower than {commit}")
    return "; ".join(said)


def shown(lines: Sequence[Line]) -> str:
    """The ledger as a table: of each commit the last line of each work."""
    header = (
        "commit", "work", "step", "of the mark's", "rollout", "reference", "update", "of the floor", "its update", "TRL's",
    )  # fmt: skip
    rows = []
    for line in lines:
        for name, work in line.works.items():
            ratios = [f"{work.ratios[phase].median:.2f}" if phase in work.ratios else "" for phase in PHASES]
            floor = [f"{work.floor[phase]:.0%}" for phase in ("step", "update")]
            own = [f"{line.commit} ({line.committed[5:10]})", name, f"{work.seconds:.2f} s", str(work.ratios["step"])]
            rows.append([*own, *ratios, *floor, "" if work.trl is None else f"{work.trl:.2f} ×"])
    last = lines[-1]
    said = [f"{line.commit}: {line.because}" for line in lines if line.because]
    about = f"The mark is {last.mark}. {last.where['machine']}; {', '.join(map(' '.join, last.versions.items()))}."
    return "\n\n".join(
        [table(header, rows), *said, about, "![Seconds of a step over the mark's, by commit](measured/steps.png)"]
    )


def draw(lines: Sequence[Line]) -> None:
    """Seconds of a step over the mark's, commit by commit."""
    points = pd.DataFrame(
        {"commit": line.commit, "work": name, **work.ratios["step"].model_dump()}
        for line in lines
        for name, work in line.works.items()
    )
    x = alt.X("commit:N", title=None, sort=[line.commit for line in lines])
    base = alt.Chart(points).encode(x=x, color=alt.Color("work:N", title=None))
    y = alt.Y("median:Q", title="seconds of a step over the mark's", scale=alt.Scale(zero=False))
    layers = base.mark_line(point=True).encode(y=y), base.mark_rule().encode(y=alt.Y("low:Q"), y2="high:Q")
    alt.layer(*layers).properties(width=640, height=240).save(CHART, scale_factor=1.5)


def main() -> None:
    parser = command_line(__doc__, kept=KEPT, page=PAGE)
    parser.add_argument("--commit", help="in place of what is checked out here")
    parser.add_argument("--mark", help="the one that the last line names, unless said")
    parser.add_argument("--only", nargs="+", choices=WORKS, default=USUAL)
    parser.add_argument("--trl", action="store_true", help="TRL on the reference work, too")
    parser.add_argument("--slower", type=float, default=0.0, metavar="SHARE", help="see above; nothing is kept")
    parser.add_argument("--because", default="", help="why this commit is slower than the fastest before it")
    parser.add_argument(
        "--trial", action="store_true", help="a few steps of the quickstart against itself; nothing is kept"
    )
    arguments = parser.parse_args()
    os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}  # which older commits do not set in time
    began, logs, lines = time.monotonic(), Path(tempfile.mkdtemp(prefix="groupscope-steps-")), ledger(arguments.out)
    asked = arguments.mark or (lines[-1].mark if lines else None)
    if asked is None and not arguments.trial:
        parser.error("the ledger has no line yet: --mark COMMIT")
    one = HERE if arguments.commit is None else Checkout.of(arguments.commit)
    mark = HERE if arguments.trial else Checkout.of(asked)
    commit = arguments.commit or "HEAD"
    works = {}
    for name in ("quickstart",) if arguments.trial else arguments.only:
        turns = replace(WORKS[name], settle=WARM_UP, count=3) if arguments.trial else WORKS[name]
        print(f"{name} ({(time.monotonic() - began) / 60:.1f} minutes so far)", flush=True)
        works[name] = measured(
            turns, one, mark, logs, slower=arguments.slower, at_least=0.0 if arguments.trial else 0.05
        )
        if name == "reference" and arguments.trl:
            works[name].trl = against_trl(turns, one, logs)
    line = Line(
        commit=short(commit),
        committed=git("show", "-s", "--format=%cI", commit),
        mark=short(asked or "HEAD"),
        where=where(),
        versions=stack("torch", "transformers"),
        works=works,
        because=arguments.because,
    )
    for name, work in works.items():
        for phase, ratio in work.ratios.items():
            print(f"{name}, {phase}: {ratio}{', slower' if ratio.slower else ''}; of the floor {work.floor[phase]:.0%}")
    print(f"in {(time.monotonic() - began) / 60:.1f} minutes")
    if arguments.out == KEPT:
        if arguments.trial or arguments.slower:
            return
        if one is HERE and git("status", "--porcelain"):
            raise SystemExit("not kept: what is checked out here is not a commit")
        said = remark(line, [other for other in lines if other.committed < line.committed])
        if said and not arguments.because:
            raise SystemExit(f'not kept: {said}. Say why: --because "..."')
    with arguments.out.open("a") as file:
        file.write(line.model_dump_json() + "\n")
    tables = shown(ledger(arguments.out))
    print(f"\n{tables}")
    if arguments.write:
        draw(ledger(arguments.out))
        replace_tables(PAGE, tables, "steps")


if __name__ == "__main__":
    main()
