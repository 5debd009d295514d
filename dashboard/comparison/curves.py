"""The curves of runs, one by one or by setting, over its seeds; their results, what each setting gained, and whether it is luck."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pandas as pd
import streamlit as st

from backend.contract.inspection import Difference
from backend.contract.protocol import EVALUATION
from backend.contract.records import TERMINAL, Run
from dashboard.charts.comparison import FEW, comparison_figure
from dashboard.charts.interval import difference, estimate, verdict
from dashboard.charts.meaning import meaning
from dashboard.charts.outcome import (
    SUCCESS,
    SUCCESS_TITLE,
    Group,
    Member,
    Stroke,
    best,
    by_gain,
    final,
    gain,
    gain_figure,
    outcome,
)
from dashboard.charts.palette import GROUPS, run_colours
from dashboard.charts.series import TOTALS, has_axis
from dashboard.comparison.controls import HINT, Controls, Entry, choose_front, draw_charts, named
from dashboard.comparison.judgement import (
    Judgement,
    choose_judgement,
    draw_table,
    gain_and_interval,
    in_rank,
    mean_and_std,
)
from dashboard.comparison.metrics import Found, fetch, shared_steps, with_whole_ends
from dashboard.comparison.seeds import draw_plan
from dashboard.comparison.selection import label
from dashboard.comparison.settings import cell, seed_of, setting
from dashboard.components.chart import show
from dashboard.format import count, plain
from dashboard.session import client, guard
from dashboard.status import look
from dashboard.stored import completions_per_step, get

CALM = 5  # this many settings can all be in front
BEST = 3  # of more settings, the first and those that gained most


def groups_of(
    runs: Sequence[Run], found: Found, fields: Sequence[str], shared: Mapping[int, int] = MappingProxyType({})
) -> list[Group]:
    """The runs grouped by the fields, in the order in which their values first appear; without fields, each run by itself.

    Of each fork, `shared` says how many of its first steps another line has already.
    """
    if not fields:
        colours = run_colours([run.id for run in runs])
        alone = {run.id: replace(_member(run, found, counts=True), begins=shared.get(run.id, 0)) for run in runs}
        return [Group(label(run), run.id, Stroke(colours[run.id]), (alone[run.id],)) for run in runs]
    members: dict[str, list[Member]] = {}
    for run in runs:
        members.setdefault(setting(run, fields), []).append(_member(run, found, counts=run.status == "finished"))
    return [
        Group(name, place, group_stroke(place), tuple(together))
        for place, (name, together) in enumerate(members.items())
    ]


def group_stroke(place: int) -> Stroke:
    """The second eight settings have the colours of the first, with dashed lines."""
    return Stroke(GROUPS[place % len(GROUPS)], dashed=place // len(GROUPS) % 2 == 1)


def _member(run: Run, found: Found, *, counts: bool) -> Member:
    return Member(seed_of(run), counts, found[run.id], completions_per_step(run.config))


def draw_curves(runs: list[Run], controls: Controls) -> None:
    """Draw the charts, with the gains of settings above them; then the results, and for settings whether they are luck."""
    charts = st.container()
    st.subheader("Results, and whether they are luck" if controls.by else "Results", anchor=False)
    judged = choose_judgement(controls.names, runs)
    names = (*controls.names, judged.name)  # the runs may be judged by a metric that no chart shows
    with guard():
        found = fetch(runs, (*names, SUCCESS) if controls.by else names, controls.view)
        whole = groups_of(runs, with_whole_ends(found, runs, names, judged.tail), controls.by)
        shared = {} if controls.by else shared_steps(runs)
    with charts:
        _draw_partings(runs, shared)
        _draw_charts(runs, groups_of(runs, found, controls.by, shared), controls)
    _draw_outcomes(runs, whole, controls, judged)
    if controls.by:
        _draw_differences(whole, judged, updates_of(runs, controls.by))


def _draw_charts(runs: Sequence[Run], groups: list[Group], controls: Controls) -> None:
    """The gains of settings, the legend, and a chart for each metric."""
    gains = st.container()
    states = {} if controls.by else {run.id: _state(run) for run in runs}
    entries = [
        Entry(group.number, group.label, *group.stroke, _seeds(group) if controls.by else states[group.number])
        for group in groups
    ]
    front = choose_front(entries, in_front(groups, by_run=controls.view.by_run))
    if controls.by:
        with gains:
            _draw_gains(groups, front)
        words = (
            "Lines are means over the n seeds of a setting, bands their 95 % t intervals (a very wide band is cut off, so that "
            "the lines still fill the chart); for two seeds the band is their range. Runs of a setting with the same seed are averaged first and "
            "count as one."
        )
    elif any(series.stretches is not None for group in groups for series in group.members[0].metrics.series.values()):
        bands = ", faint bands show their lowest to highest values" if len(runs) <= FEW else ""
        words = f"Lines are means over stretches of steps{bands}."
    else:
        words = ""
    st.caption(f"{words} {HINT}".strip())
    axis = controls.view.axis
    stepped = {setting(run, controls.by) if controls.by else label(run) for run in runs if run.progress.step}
    placeless = [
        group.label
        for group in groups
        if any(
            one.metrics.series and not has_axis(one.metrics, axis, one.completions_per_step) for one in group.members
        )
    ]
    if placeless:
        st.caption(
            f"{plain(named(placeless))}: not drawn along this axis, since no {plain(TOTALS[axis][0])} was recorded."
        )
    if axis == "tokens" and len({str(get(run.config, "trainer.name")) for run in runs}) > 1:
        st.caption(
            "Trainers count tokens differently: TRL counts a prompt for each of its completions, Groupscope once for its group."
        )
    logged: dict[str, set[str]] = {}  # line -> the metrics that its runs have logged
    for run in runs:
        line = setting(run, controls.by) if controls.by else label(run)
        logged.setdefault(line, set()).update(run.summary)
    draw_charts(controls, logged, stepped, lambda name: comparison_figure(name, groups, controls.view, front))


def in_front(groups: Sequence[Group], *, by_run: bool) -> frozenset[int]:
    """Which lines are in front unless somebody chose: all runs, all of a few settings, or the first and the best of many."""
    if by_run or len(groups) <= CALM:
        return frozenset(group.number for group in groups)
    leading = [group.number for group in by_gain(groups) if group.number][:BEST]
    return frozenset([0, *leading])


def _state(run: Run) -> str:
    """What the line does not show: a finished run is complete."""
    steps = f", {count(run.progress.step)} of {count(run.progress.total_steps)}" if run.attempt else ""
    return "" if run.status == "finished" else f"{look(run).word}{steps}"


def _seeds(group: Group) -> str:
    """n = 3, the seeds; 1 of 3 finished while some runs have not."""
    finished, total = sum(member.counts for member in group.members), len(group.members)
    return f"n = {len(group.seeds)}" if finished == total else f"{finished} of {total} finished"


def _draw_gains(groups: list[Group], front: frozenset[int]) -> None:
    figure = gain_figure(groups, front)
    with st.container(border=True, key="gains"):
        st.markdown(
            f"**{SUCCESS_TITLE}**",
            help="The last evaluation minus the first, in each finished run; the dot is the mean over its seeds, the bar its 95 % "
            "t interval\\. A setting whose bar stays right of 0 has learned something\\.",
        )
        if figure.data.empty:
            st.caption("A row appears for each setting as soon as one of its runs has finished with two evaluations.")
        else:
            show(figure, key="gain", about=SUCCESS_TITLE)


def _draw_outcomes(runs: Sequence[Run], groups: list[Group], controls: Controls, judged: Judgement) -> None:
    """The table of final and best values, the best line first."""
    finals = {group.label: estimate(list(final(group, judged.name, judged.tail).values())) for group in groups}
    by_id = {run.id: run for run in runs}

    def row(group: Group) -> dict[str, str]:
        found = finals[group.label]
        cells = {"final": mean_and_std(found), "best": mean_and_std(estimate(list(best(group, judged.name).values())))}
        others = {
            judged.title(name): mean_and_std(estimate(list(final(group, name, judged.tail).values())))
            for name in controls.names
            if name != judged.name
        }
        if controls.by:
            before = judged.name.startswith(EVALUATION)  # these begin before the first step
            gained = {"gain": gain_and_interval(gain(group, judged.name))} if before else {}
            return {"setting": group.label, "n": count(found.n if found else 0), **cells, **gained, **others}
        at_step = count(outcome(judged.name, group.members[0].metrics.series, judged.tail).best_step)
        run = by_id[group.number]
        state = {"state": look(run).word, "open": f"/run?id={run.id}"}
        return {"run": group.label, **cells, "at step": at_step, **others, **state}

    ranked = in_rank(groups, lambda group: found.mean if (found := finals[group.label]) else None, judged)
    words = ("setting",) if controls.by else ("run", "state")
    draw_table(pd.DataFrame([row(group) for group in ranked]), key="finals" if controls.by else "outcomes", words=words)
    if controls.by:
        st.caption(
            "Finished runs only: mean ± standard deviation over the seeds; the gain, last minus first, with its 95 % t interval. "
            f"{judged.words}"
        )
    else:
        unfinished = any(run.status not in TERMINAL for run in runs)
        st.caption(f"{judged.words}{' Unfinished runs count with what they have now.' if unfinished else ''}")


def updates_of(runs: Sequence[Run], fields: Sequence[str]) -> dict[str, str]:
    """Setting -> the number of updates its runs make with each batch, in words; empty for runs on pairs."""
    found: dict[str, set[str]] = {}
    for run in runs:
        updates = get(run.config, "algorithm.updates_per_batch")
        found.setdefault(setting(run, fields), set()).update([] if updates is None else [cell(updates)])
    return {label: " or ".join(sorted(updates)) for label, updates in found.items()}


def unequal(mine: str, theirs: str) -> str:
    """What a verdict leaves out: that one of the two made more updates with what it sampled."""
    return f" (with {mine} updates per batch, the other with {theirs})" if mine and theirs and mine != theirs else ""


def _draw_differences(groups: list[Group], judged: Judgement, updates: dict[str, str]) -> None:
    """Each setting against one of them, in words."""
    if len(groups) < 2:
        st.caption("Only one setting: there is nothing to compare it with.")
        return
    labels = [group.label for group in groups]
    against = st.selectbox("Compared with", labels, key="against", bind="query-params", width=300)
    reference = groups[labels.index(against)]
    finals = {group.label: final(group, judged.name, judged.tail) for group in groups}
    lines = [
        f"**{plain(f'{group.label} − {reference.label}')}** · "
        f"{plain(verdict(difference(finals[group.label], finals[reference.label])))}"
        f"{unequal(updates[group.label], updates[reference.label])}"
        for group in groups
        if group is not reference
    ]
    st.markdown("  \n".join(lines))
    st.caption(
        f"The difference in {meaning(judged.name).title} at the end, with Student's t interval over the seeds that both settings have "
        "finished; with fewer than three common seeds, Welch's over the seeds of each. There is no verdict with two seeds, or if the "
        "difference is exactly the same in every seed: without a spread there is no interval. Each interval stands by itself: one comparison in twenty excludes 0 by luck alone."
    )
    draw_plan(finals, reference.label)


def _draw_partings(runs: Sequence[Run], shared: Mapping[int, int]) -> None:
    """A line for each fork: from which step its curve is its own, and in which group it first says something else."""
    known = {run.id: run for run in runs}
    for run_id in shared:
        run = known[run_id]
        other = next((one for one in runs if one.id == run.parent_id), None) or next(
            one for one in runs if one.id != run_id
        )
        with guard():
            found = _difference(run, other)
        st.caption(f":material/fork_right: {plain(parting(found, label(run), label(other)))}")


def parting(found: Difference, one: str, other: str) -> str:
    """What is known of the parting, as a sentence."""
    begins = f"{one} and {other} are the same up to step {count(found.shared)}, which is drawn once."
    if found.step is None:
        if found.compared == found.shared:
            return f"{begins} One of them has no step after that yet."
        return f"{begins} Up to step {count(found.compared)} they draw the same prompts and say the same."
    if found.what == "prompt":
        return f"{begins} From step {count(found.step)}, group {found.group_index}, on they draw other prompts."
    return f"{begins} They draw the same prompts; the first completions that differ are of step {count(found.step)}, group {found.group_index}."


def _difference(run: Run, other: Run) -> Difference:
    if run.status in TERMINAL and other.status in TERMINAL:
        return _of_ended((run.id, run.attempt), (other.id, other.attempt))
    return client().difference(run.id, other.id)


@st.cache_data(ttl=600, max_entries=64, show_spinner=False)
def _of_ended(one: tuple[int, int], other: tuple[int, int]) -> Difference:
    return client().difference(one[0], other[0])
