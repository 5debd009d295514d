"""Runs in groups over their seeds: what each setting gained, its mean lines with bands, and whether it differs from another."""

from collections.abc import Collection, Mapping, Sequence

import pandas as pd
import streamlit as st

from backend.contract.records import Run
from dashboard.charts.group_figures import SUCCESS_TITLE, band_figure, gain_figure
from dashboard.charts.interval import estimate
from dashboard.charts.meaning import meaning
from dashboard.charts.seed_difference import difference, verdict
from dashboard.charts.seed_groups import SUCCESS, Group, Member, best, by_gain, final, gain, grouped
from dashboard.comparison.controls import Controls, draw_charts, logged_by
from dashboard.comparison.judgement import (
    Judgement,
    choose_judgement,
    gain_and_interval,
    has_gain,
    in_rank,
    mean_and_std,
    show_table,
)
from dashboard.comparison.legend import HINT, Entry, choose_front
from dashboard.comparison.metrics import Found, fetch, with_whole_ends
from dashboard.comparison.settings import cell, seed_of, setting
from dashboard.components.chart import show
from dashboard.components.stored import completions_per_step
from dashboard.form.paths import get
from dashboard.format import count, plain
from dashboard.session import guard

CALM = 5  # so many groups can all be in front
BEST = 3  # of more groups, the first and those that gained most


def groups_of(runs: list[Run], found: Found, fields: Sequence[str]) -> list[Group]:
    """The runs taken together by the fields, in the order in which their values first appear."""
    by_id = {run.id: run for run in runs}
    labels = grouped({run.id: setting(run, fields) for run in runs})
    return [
        Group(label, place, tuple(_member(by_id[run_id], found) for run_id in run_ids))
        for place, (label, run_ids) in enumerate(labels.items())
    ]


def show_groups(runs: list[Run], controls: Controls) -> None:
    """Gains first, then the curves, then what they came to and whether that is luck."""
    charts = st.container()
    st.subheader("What they came to, and is it luck?", anchor=False)
    judged = choose_judgement(controls.names, runs)
    names = (*controls.names, judged.name)  # the runs may be judged by what no chart shows
    with guard():
        found = fetch(runs, (*names, SUCCESS), controls.view, alone=False)
        whole = groups_of(runs, with_whole_ends(found, runs, names, judged.tail), controls.by)
    with charts:
        logged = logged_by(runs, lambda run: setting(run, controls.by))
        _show_charts(groups_of(runs, found, controls.by), controls, logged)
    _show_finals(whole, controls, judged)
    _show_differences(whole, judged, updates_of(runs, controls.by))


def _show_charts(groups: list[Group], controls: Controls, logged: Mapping[str, Collection[str]]) -> None:
    """The gains, the legend, and a line for each group."""
    gains = st.container()
    front = _show_legend(groups)
    with gains:
        _show_gains(groups, front)
    draw_charts(controls, logged, lambda name: band_figure(name, groups, controls.view, front))


def in_front(groups: Sequence[Group]) -> frozenset[int]:
    """The places of the groups that are in front where nobody chose: all of a few, or the first and the best of many."""
    if len(groups) <= CALM:
        return frozenset(group.place for group in groups)
    leading = [group.place for group in by_gain(groups) if group.place][:BEST]
    return frozenset([0, *leading])


def _member(run: Run, found: Found) -> Member:
    return Member(seed_of(run), run.status == "finished", found[run.id], completions_per_step(run.config))


def _show_gains(groups: list[Group], front: frozenset[str]) -> None:
    figure = gain_figure(groups, front)
    with st.container(border=True, key="gains"):
        st.markdown(
            f"**{SUCCESS_TITLE}**",
            help="The last evaluation minus the first, in each finished run; the dot is the mean over its seeds, the bar its 95 % "
            "t interval\\. A bar that stays right of 0 has learned something\\.",
        )
        if figure.data.empty:
            st.caption("A row appears for each group as soon as one of its runs has finished with two evaluations.")
        else:
            show(figure, key="gain", about=SUCCESS_TITLE)


def _show_legend(groups: list[Group]) -> frozenset[str]:
    """The groups with their colours; the labels of those in front."""
    entries = [Entry(group.place, group.label, group.colour, group.dashed, _finished(group)) for group in groups]
    places = choose_front(entries, in_front(groups))
    st.caption(
        "Lines are means over the n seeds of a group, bands their 95 % t intervals, cut where they would flatten the lines; of two seeds "
        "the band is their range. Runs of one seed count once, by their mean. "
        f"{HINT}"
    )
    return frozenset(group.label for group in groups if group.place in places)


def _finished(group: Group) -> str:
    """n = 3, the seeds; 1 of 3 finished while some runs have not."""
    finished, total = sum(member.finished for member in group.members), len(group.members)
    return f"n = {len(group.seeds)}" if finished == total else f"{finished} of {total} finished"


def _show_finals(groups: list[Group], controls: Controls, judged: Judgement) -> None:
    tail = judged.tail
    finals = {group.label: estimate(list(final(group, judged.name, tail).values())) for group in groups}
    ranked = in_rank(groups, lambda group: found.mean if (found := finals[group.label]) else None, judged)
    rows = [
        {
            "group": group.label,
            "n": count(found.n if (found := finals[group.label]) else 0),
            "final": mean_and_std(found),
            "best": mean_and_std(estimate(list(best(group, judged.name).values()))),
            **({"gain": gain_and_interval(gain(group, judged.name))} if has_gain(judged.name) else {}),
            **{
                judged.title(name): mean_and_std(estimate(list(final(group, name, tail).values())))
                for name in controls.names
                if name != judged.name
            },
        }
        for group in ranked
    ]
    show_table(pd.DataFrame(rows), key="finals", words=("group",))
    st.caption(
        f"Finished runs only: mean ± standard deviation over the seeds; the gain, last minus first, with its 95 % t interval. "
        f"{judged.words}"
    )


def updates_of(runs: Sequence[Run], fields: Sequence[str]) -> dict[str, str]:
    """Group -> how many updates its runs make of a batch, in words; a run on pairs says nothing."""
    found: dict[str, set[str]] = {}
    for run in runs:
        updates = get(run.config, "algorithm.updates_per_batch")
        found.setdefault(setting(run, fields), set()).update([] if updates is None else [cell(updates)])
    return {label: " or ".join(sorted(updates)) for label, updates in found.items()}


def unequal(mine: str, theirs: str) -> str:
    """What a verdict does not say: that one of the two was trained more often on what it sampled."""
    return f" (at {mine} updates a batch against {theirs})" if mine and theirs and mine != theirs else ""


def _show_differences(groups: list[Group], judged: Judgement, updates: dict[str, str]) -> None:
    """Each group against one of them, in words."""
    if len(groups) < 2:
        st.caption("Only one group: there is nothing to compare it with.")
        return
    labels = [group.label for group in groups]
    against = st.selectbox("Compared with", labels, key="against", bind="query-params", width=300)
    reference = groups[labels.index(against)]
    values = final(reference, judged.name, judged.tail)
    lines = [
        f"**{plain(f'{group.label} − {reference.label}')}**: "
        f"{plain(verdict(difference(final(group, judged.name, judged.tail), values)))}"
        f"{unequal(updates[group.label], updates[reference.label])}"
        for group in groups
        if group is not reference
    ]
    st.markdown("  \n".join(lines))
    st.caption(
        f"{meaning(judged.name).title} at the end, with Student's t interval over the seeds that both have finished; with fewer than "
        "three common seeds, Welch's over the seeds of each. Two seeds cannot tell two settings apart, nor can differences that are "
        "the same in each seed. Each interval stands by itself: of many comparisons, one in twenty excludes 0 by luck alone."
    )
