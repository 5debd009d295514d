"""Taking turns: two sides train the same steps, one after the other, never both at once."""

from pathlib import Path

from results.records import FloorInputs, Measured

from backend.contract.base import Json
from sides.messages import Job
from sides.process import Side, Step
from sides.workloads import WARM_UP, Workload


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
    """A line of progress."""
    kind = "warm-up" if number < WARM_UP else f"step {number}"
    print(f"  {name:<24} {kind:<8} {step.seconds:9.2f} s  {sum(step.trained.lengths):6} tokens", flush=True)


def ours(
    work: Workload,
    models: Path,
    log: Path,
    *,
    accelerator: bool = False,
    threads: int | None = 2,
    fast: bool = True,
    telemetry: dict[str, Json] | None = None,
) -> Side:
    """Groupscope on this work."""
    config = work.stored(telemetry or {})
    job = Job(
        config=config,
        models=str(models),
        rows=work.rows,
        lengths=work.lengths,
        fast=fast,
        accelerator=accelerator,
        threads=threads,
    )
    return Side("groupscope_side", job, log)


def theirs(work: Workload, own: Side, log: Path, *, accelerator: bool = False, threads: int | None = 2) -> Side:
    """TRL on the same work: the model and the prompts are those that our side named."""
    job = Job(
        config=work.stored({}),
        models="",
        lengths=work.lengths,
        accelerator=accelerator,
        threads=threads,
        batch=work.batch,
        model=own.ready.model,
        prompts=own.ready.prompts,
    )
    return Side("trl_side", job, log)


def floor_inputs(work: Workload, side: Side, *, value_bytes: int = 4) -> FloorInputs:
    """The lengths of the counted steps' prompts, and the rates of the side's own process, measured now."""
    assert side.ready.shape is not None
    count = work.config.sampling.prompts_per_step
    lengths = [len(prompt.ids) for prompt in side.ready.prompts]
    steps = range(WARM_UP, WARM_UP + work.steps)
    prompts = [lengths[step * count : (step + 1) * count] for step in steps]
    return FloorInputs(shape=side.ready.shape, prompts=prompts, rates=side.rates(), value_bytes=value_bytes)
