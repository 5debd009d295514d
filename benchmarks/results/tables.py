"""From measurements to Markdown: pure functions of what was kept."""

from collections.abc import Sequence
from operator import truediv
from statistics import fmean, median

from sides.floor import PYTORCH, Phase, Rates, Tokens, floor_of

from dashboard.charts.interval import estimate
from results.page import table
from results.records import Comparison, FloorInputs, Learning, Measured, Results

_LAST = 10  # steps whose mean reward is a run's final reward
ROLLOUT = ("prefill", "decode")


def tables(results: Results) -> str:
    """All of them, in the order of the page."""
    works = {"reference work": results.reference, "long prompts": results.long, "quickstart": results.quickstart}
    compared = {name: one for name, one in works.items() if one is not None}
    parts = [side_by_side(compared)] if compared else []
    for name, one in compared.items():
        if one.floor is not None:
            parts.append(where_the_time_goes(name, one.first, one.floor))
    if results.memory is not None:
        peak, step = _gib(results.memory.side.peak_memory), results.memory.side.step
        place = _place(results.memory.where, results.memory.side.versions)
        said = f"the process held **{peak}** at its peak; the step took {step:.0f} s"
        parts.append(f"### Memory\n\n{results.memory.about}: {said}. {place}.")
    if results.telemetry is not None:
        parts.append(_telemetry(results.telemetry))
    if results.learning is not None:
        parts.append(_learning(results.learning))
    return "\n\n".join(parts)


def side_by_side(compared: dict[str, Comparison]) -> str:
    """Seconds of a step, and how many times as fast."""
    header = (
        "work", "steps", "Groupscope", "TRL", "samples per second", "tokens per step, Groupscope / TRL", "tokens per second",
        "memory, Groupscope / TRL",
    )  # fmt: skip
    rows = [
        (
            name,
            str(len(one.first.seconds)),
            f"{one.first.step:.2f} s",
            f"{one.second.step:.2f} s",
            f"**{one.second.step / one.first.step:.2f} ×**",
            f"{one.first.tokens:.0f} / {one.second.tokens:.0f}",
            f"{one.first.tokens / one.first.step / (one.second.tokens / one.second.step):.2f} ×",
            f"{_gib(one.first.peak_memory)} / {_gib(one.second.peak_memory)}",
        )
        for name, one in compared.items()
    ]
    said = []
    for name, one in compared.items():
        threads = " and ".join(
            f"{whose} {side.threads} threads, OMP_WAIT_POLICY {side.omp_wait_policy.lower()}"
            for whose, side in (("Groupscope", one.first), ("TRL", one.second))
        )
        said.append(f"- {name}: {one.about}. {_place(one.where, one.first.versions | one.second.versions)}; {threads}.")
    return "\n".join(["### Side by side", "", table(header, rows), "", *said])


def _place(where: dict[str, str], versions: dict[str, str]) -> str:
    return ", ".join([where["date"], where["machine"], *(f"{name} {number}" for name, number in versions.items())])


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size else "?"


def where_the_time_goes(name: str, side: Measured, inputs: FloorInputs) -> str:
    """The phases of a step beside their floors, and what those are made of."""
    own = Rates(seconds={PYTORCH: inputs.rates.seconds[PYTORCH]}, bandwidth=inputs.rates.bandwidth)
    steps = [Tokens(prompts, lengths) for prompts, lengths in zip(inputs.prompts, side.lengths, strict=True)]
    how = {"reference": any("time/reference" in one for one in side.metrics), "value_bytes": inputs.value_bytes}
    floors = [[floor_of(inputs.shape, one, rates, **how) for one in steps] for rates in (own, inputs.rates.fastest())]
    rows: list[list[str]] = []
    for phase, seconds in _spent(side).items():
        parts = ROLLOUT if phase == "rollout" else (phase,)
        rows.append([phase, f"{median(seconds):.2f} s", *_reached(floors, parts, seconds)])
        if phase == "rollout":
            rows += [[f"… {part}", "", *_reached(floors, (part,), None)] for part in parts]
    rows.append(["**step**", f"**{side.step:.2f} s**", *_reached(floors, list(floors[0][0]), side.seconds)])
    header = ("phase", "measured", "floor, PyTorch's product", "reached", "floor, the fastest product", "reached")
    counted = []
    for part, one in floors[0][0].items():
        rates = [f"{each[0][part].rate / 1e9:.0f}" for each in floors]
        moved = [f"{one.bytes_moved / 1e9:.1f}", f"{one.bytes_moved / one.bandwidth:.2f} s"]
        counted.append([part, f"{one.operations / 1e9:.0f}", *rates, *moved])
    titles = (
        "phase",
        "GFLOP",
        "GFLOP/s, PyTorch's product",
        "GFLOP/s, the fastest",
        "GB moved",
        "seconds by bytes alone",
    )
    said = f"Counted for the first of these steps; the memory moves {inputs.rates.bandwidth / 1e9:.1f} GB/s:"
    return "\n\n".join(
        [f"### Where the time goes: {name}", table(header, rows), said, table(titles, counted), _product_table(inputs)]
    )


def _spent(side: Measured) -> dict[str, list[float]]:
    """Seconds of each step in the phases that the product measures, and in the rest, which the report is a part of."""
    spent = {name: _seconds(side, name) for name in ("rollout", "reward", "reference", "update")}
    sums = [sum(one) for one in zip(*spent.values(), strict=True)]
    rest = [whole - part for whole, part in zip(side.seconds, sums, strict=True)]
    # A step's metrics tell what the report before it took.
    return spent | {"rest": rest, "… the report": _seconds(side, "report")}


def _seconds(side: Measured, phase: str) -> list[float]:
    return [one.get(f"time/{phase}") or 0.0 for one in side.metrics]


def _reached(
    floors: Sequence[Sequence[dict[str, Phase]]], parts: Sequence[str], seconds: Sequence[float] | None
) -> list[str]:
    """For each way to multiply: the floor of these phases, and its share of what was measured (medians over the steps)."""
    cells: list[str] = []
    for steps in floors:
        low = [sum(step[part].seconds for part in parts if part in step) for step in steps]
        if max(low) == 0:
            cells += ["", ""]
            continue
        reached = "" if seconds is None else f"{median(map(truediv, low, seconds)):.0%}"
        cells += [f"{median(low):.2f} s", reached]
    return cells


def _product_table(inputs: FloorInputs) -> str:
    """GFLOP/s of all matrices of a layer at each row count."""
    matrices = inputs.shape.layer_matrices
    operations = sum(2 * one.outputs * one.inputs * one.count for one in matrices)
    counts = list(next(iter(inputs.rates.seconds.values()))[matrices[0].name])
    rows = []
    for way, measured in inputs.rates.seconds.items():
        seconds = {count: sum(measured[one.name][count] * one.count for one in matrices) for count in counts}
        rows.append([way, *(f"{operations * count / seconds[count] / 1e9:.0f}" for count in counts)])
    return table(["GFLOP/s of a layer's matrices, by rows", *map(str, counts)], rows)


def _telemetry(one: Comparison) -> str:
    costs = [(on - off) / on for on, off in zip(one.first.seconds, one.second.seconds, strict=True)]
    same = "the same tokens" if one.first.lengths == one.second.lengths else "other tokens"
    return (
        f"### The cost of telemetry\n\n{one.about}. With the defaults {one.first.step:.2f} s per step, without token traces "
        f"{one.second.step:.2f} s, {len(costs)} steps of each in turns on {same}. Telemetry cost **{median(costs):+.1%}** of the step, the median "
        f"of the {len(costs)} paired differences ({min(costs):+.1%} to {max(costs):+.1%}). {_place(one.where, one.first.versions)}."
    )


def _learning(one: Learning) -> str:
    rows, finals = [], {"fast": list[float](), "plain": list[float]()}
    for pair in one.pairs:
        for kind, side in (("fast", pair.fast), ("plain", pair.plain)):
            finals[kind].append(fmean(side.rewards[-_LAST:]))
        found = pair.agreement
        rows.append(
            [
                str(pair.seed),
                "the same" if found.same_tokens else "different",
                *("" if one is None else f"{one:.1e}" for one in (found.sampling, found.training)),
                *(f"{values[-1]:.3f}" for values in finals.values()),
                *(f"{side.step:.2f} s" for side in (pair.fast, pair.plain)),
            ]
        )
    header = (
        "seed", "tokens of the first step", "log-probs, sampling: largest difference", "training pass", "final reward, fast",
        "final reward, plain", "step, fast", "step, plain",
    )  # fmt: skip
    intervals = {kind: estimate(values) for kind, values in finals.items()}
    said = "; ".join(
        f"{kind} {found.mean:.3f}" + ("" if found.low is None else f" (95 % {found.low:.3f} to {found.high:.3f})")
        for kind, found in intervals.items()
        if found is not None
    )
    return (
        f"### Learning, with fast paths and without\n\n{table(header, rows)}\n\n{one.about}. Final reward, the mean of the last "
        f"{_LAST} steps: {said}. {_place(one.where, one.pairs[0].fast.versions)}."
    )
