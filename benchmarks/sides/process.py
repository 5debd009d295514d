"""The driver's end: a side is started, trains a step on request, and two sides take turns, never both at once."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel
from results.records import Agreement, FloorInputs, Measured, Pair

from backend.contract.base import Json
from sides.floor import SECONDS, Rates
from sides.messages import Command, Job, Message, Ready, Step, Trace, Trained
from sides.workloads import WARM_UP, Workload

_ROOT = Path(__file__).parents[2]


def environment(checkout: Path = _ROOT) -> dict[str, str]:
    """This process's, in which `sides` and the packages of a checkout can be imported."""
    path = os.pathsep.join(filter(None, [str(checkout / "benchmarks"), str(checkout), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}


def until_worker_asks(checkout: Path, settings: Mapping[str, str]) -> float:
    """Seconds from the start of a checkout's worker until it asks for work; it is ended then. Raises SideEnded if it ends before."""
    began = time.perf_counter()
    command, env = [sys.executable, "-m", "worker.main"], environment(checkout) | settings
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, cwd=checkout) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            if "for work" in line:
                took = time.perf_counter() - began
                process.kill()
                return took
            said.append(line)
    raise SideEnded(f"the worker of {checkout} ended: {''.join(said)}")


class SideEnded(Exception):
    """A side's process ended where an answer was due."""


class Side:
    """One process. `ready` is what it said when it was prepared to train."""

    def __init__(self, module: str, job: Job, log: Path, checkout: Path = _ROOT, python: str = sys.executable) -> None:
        self._module, self._log = module, log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [python, "-m", f"sides.{module}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment(checkout),
                cwd=checkout,  # which Python looks into first
            )
        try:
            self.ready = self._ask(job, Ready)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def step(self) -> Step:
        began = time.perf_counter()
        trained = self._ask(Command(do="step"), Trained)
        return Step(trained, time.perf_counter() - began)

    def rates(self, at_least: float) -> Rates:
        """Measure the rates of its matrix products, each for at least this many seconds."""
        return self._ask(Command(do="rates", at_least=at_least), Rates)

    def _ask(self, question: BaseModel, kind: type[Message]) -> Message:
        """Raises SideEnded with the end of the side's log."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(question.model_dump_json() + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise SideEnded(f"{self._module} ended:\n{self._log.read_text(errors='replace')[-4000:]}")
        return kind.model_validate_json(line)


def take_turns(names: tuple[str, str], sides: tuple[Side, Side], steps: int) -> tuple[Measured, Measured]:
    """The steps after the warm-up; who goes first alternates. Prints a line for each."""
    measured = Measured.of(sides[0].ready), Measured.of(sides[1].ready)
    for number in range(WARM_UP + steps):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            step = sides[which].step()
            show(names[which], number, step)
            if number >= WARM_UP:
                measured[which].add(step)
    return measured


def show(name: str, number: int, step: Step) -> None:
    kind = "warm-up" if number < WARM_UP else f"step {number}"
    print(f"  {name:<24} {kind:<8} {step.seconds:9.2f} s  {sum(step.trained.lengths):6} tokens", flush=True)


def ours(
    work: Workload,
    models: Path,
    log: Path,
    *,
    fast: bool = True,
    telemetry: dict[str, Json] | None = None,
) -> Side:
    """Groupscope on this work."""
    job = work.job(telemetry).model_copy(update={"models": str(models.resolve()), "fast": fast})
    return Side("groupscope_side", job, log)


def theirs(work: Workload, own: Side, log: Path) -> Side:
    """TRL on the same work: the model and the prompts are those that our side named."""
    job = work.job().model_copy(update={"model": own.ready.model, "prompts": own.ready.prompts})
    return Side("trl_side", job, log)


def fast_and_plain(work: Workload, models: Path, logs: Path) -> Pair:
    """The same work with fast paths and without, from the same weights and in turns; the warm-up's steps count, too."""
    seed = work.config.budget.seed
    with (
        ours(work, models, logs / f"fast-{seed}.log") as fast,
        ours(work, models, logs / f"plain-{seed}.log", fast=False) as plain,
    ):
        measured, traces = (Measured.of(fast.ready), Measured.of(plain.ready)), list[Trace]()
        for number in range(WARM_UP + work.steps):
            for name, side, into in zip(("fast paths", "plain"), (fast, plain), measured, strict=True):
                step = side.step()
                into.add(step)
                if number % 25 == 0:
                    show(name, number, step)
                if step.trained.trace is not None:  # the first step's
                    traces.append(step.trained.trace)
    return Pair(seed=seed, fast=measured[0], plain=measured[1], agreement=Agreement.of(*traces))


def floor_inputs(work: Workload, side: Side, *, value_bytes: int = 4, at_least: float = SECONDS) -> FloorInputs:
    """The lengths of the counted steps' prompts, and the rates of the side's own process, measured now."""
    assert side.ready.shape is not None
    count = work.config.sampling.prompts_per_step
    lengths = [len(prompt.ids) for prompt in side.ready.prompts]
    steps = range(WARM_UP, WARM_UP + work.steps)
    prompts = [lengths[step * count : (step + 1) * count] for step in steps]
    return FloorInputs(shape=side.ready.shape, prompts=prompts, rates=side.rates(at_least), value_bytes=value_bytes)
