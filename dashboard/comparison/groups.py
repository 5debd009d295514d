"""Runs in groups over their seeds: what each setting gained, its mean lines with bands, and whether it differs from another."""

import pandas as pd
import streamlit as st

from backend.contract.records import Metrics, Run
from dashboard.charts.group import swatch
from dashboard.charts.group_figures import SUCCESS_TITLE, band_figure, gain_figure
from dashboard.charts.interval import Estimate, estimate, paired, verdict
from dashboard.charts.meaning import meaning
from dashboard.charts.seed_groups import SUCCESS, Group, Member, best, by_gain, gain, grouped, last
from dashboard.comparison.controls import Controls
from dashboard.comparison.settings import seed_of, setting
from dashboard.components.chart import heading, show
from dashboard.components.stored import completions_per_step
from dashboard.format import MISSING, count, number, plain, signed

CALM = 5  # so many groups can all be in front
BEST = 3  # of more groups, the first and those that gained most


def groups_of(runs: list[Run], metrics: dict[int, Metrics], field: str) -> list[Group]:
    """The runs taken together by a field, in the order in which its values first appear."""
    by_id = {run.id: run for run in runs}
    labels = grouped({run.id: setting(run, field) for run in runs})
    return [
        Group(label, place, tuple(_member(by_id[run_id], metrics[run_id]) for run_id in run_ids))
        for place, (label, run_ids) in enumerate(labels.items())
    ]


def show_groups(groups: list[Group], highlighted: list[str], controls: Controls, steps: int) -> None:
    """Gains first, then the curves, then the tables."""
    front = in_front(groups, highlighted)
    _show_gains(groups, front)
    _show_legend(groups, front)
    for place, name, about in controls.laid_out():
        with place:
            st.markdown(heading(about.title, about.unit), help=about.help)
            figure = band_figure(
                name, groups, front=front, axis=controls.axis, weight=controls.weight, log=controls.log, steps=steps
            )
            if figure.data.empty:
                st.caption("None of these runs has logged it yet.")
            show(figure, key=f"comparison-{name}", about=about.title)
    _show_differences(groups)
    _show_finals(groups, controls.names)


def in_front(groups: list[Group], highlighted: list[str]) -> frozenset[str]:
    """The groups that were asked for; else all of a few, or the first and the best of many."""
    labels = {group.label for group in groups}
    if labels & set(highlighted):
        return frozenset(labels & set(highlighted))
    if len(groups) <= CALM:
        return frozenset(labels)
    leading = [group.label for group in by_gain(groups) if group.place][:BEST]
    return frozenset([groups[0].label, *leading])


def _member(run: Run, metrics: Metrics) -> Member:
    return Member(seed_of(run), run.status == "finished", metrics, completions_per_step(run.config))


def _show_gains(groups: list[Group], front: frozenset[str]) -> None:
    with st.container(border=True, key="gains"):
        st.markdown(
            f"**{SUCCESS_TITLE}**",
            help="The last evaluation minus the first, in each finished run; the dot is the mean over its seeds, the bar its 95 % "
            "t interval\\. A bar that stays right of 0 has learned something\\.",
        )
        figure = gain_figure(groups, front)
        if figure.data.empty:
            st.caption("A row appears for each group as soon as one of its runs has finished with two evaluations.")
        else:
            show(figure, key="gain", about=SUCCESS_TITLE)


def _show_legend(groups: list[Group], front: frozenset[str]) -> None:
    """The groups in front with their colours: one legend for all charts."""
    shown = [group for group in groups if group.label in front]
    with st.container(horizontal=True, key="groups-legend", vertical_alignment="center"):
        for group in shown:
            st.image(swatch(group.colour), width=16)
            dashed = " (dashed)" if group.dashed else ""
            st.markdown(f"{plain(group.label)}{dashed} :gray[{_finished(group)}]", width="content")
        if len(shown) < len(groups):
            st.markdown(f":gray[{len(groups) - len(shown)} more in grey]", width="content")
    st.caption(
        "Lines are means over seeds, bands their 95 % t intervals; a band is cut where it would flatten the lines."
    )


def _finished(group: Group) -> str:
    """n = 3; 1 of 3 finished while some have not."""
    finished, total = sum(member.finished for member in group.members), len(group.members)
    return f"n = {total}" if finished == total else f"{finished} of {total} finished"


def _show_differences(groups: list[Group]) -> None:
    """Each group against one of them, in words."""
    st.subheader("Is it luck?", anchor=False)
    if len(groups) < 2:
        st.caption("Only one group: there is nothing to compare it with.")
        return
    labels = [group.label for group in groups]
    against = st.selectbox("Compared with", labels, key="against", width=300)
    reference = groups[labels.index(against)]
    values = last(reference, SUCCESS)
    pairs = {
        f"{group.label} − {reference.label}": verdict(paired(last(group, SUCCESS), values))
        for group in groups
        if group is not reference
    }
    st.markdown("  \n".join(f"**{plain(pair)}**: {plain(found)}" for pair, found in pairs.items()))
    st.caption(
        f"{meaning(SUCCESS).title} at the end, paired by seed. Each interval stands by itself: of many comparisons, one in "
        "twenty excludes 0 by luck alone."
    )


def _show_finals(groups: list[Group], names: list[str]) -> None:
    st.subheader("What they came to", anchor=False)
    rows = [
        {
            "metric": meaning(name).title,
            "group": group.label,
            "last": mean_and_std(ends := estimate(list(last(group, name).values()))),
            "best": mean_and_std(estimate(list(best(group, name).values()))),
            "gain": gain_and_interval(gain(group, name)) if name.startswith("eval/") else MISSING,
            "n": count(ends.n if ends else 0),
        }
        for name in names
        for group in groups
    ]
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        key="finals",
        height="content" if len(rows) <= 14 else 530,
        column_config={
            title: st.column_config.TextColumn(title, alignment="right") for title in ("last", "best", "gain", "n")
        },
    )
    st.caption("Finished runs only: mean ± standard deviation over n of them; the gain with its 95 % interval.")


def mean_and_std(found: Estimate | None) -> str:
    """0.832 ± 0.012; a single value has no spread."""
    if found is None:
        return MISSING
    return number(found.mean) if found.std is None else f"{number(found.mean)} ± {number(found.std)}"


def gain_and_interval(found: Estimate | None) -> str:
    """+0.412 [+0.380, +0.444]."""
    if found is None:
        return MISSING
    if found.low is None:
        return signed(found.mean)
    return f"{signed(found.mean)} [{signed(found.low)}, {signed(found.high)}]"
