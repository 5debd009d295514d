"""A measured data set: how its prompts spread over success rates, which groups are behind a bar, and a band kept as the run's data."""

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.inspection import GroupScores
from backend.contract.records import Run
from backend.contract.task import LONGEST_NAME
from dashboard.before_launch import request
from dashboard.charts.success_rates import bar_of, bar_title, success_rates_figure
from dashboard.components.chart import heading, show
from dashboard.components.live import draw_again
from dashboard.forecast import is_right
from dashboard.form.draft import Draft, on_change
from dashboard.format import counted, number, percent
from dashboard.session import client, explain

WORTH_A_CHART = 8  # prompts; the rates of fewer are read one by one
_REFUSED = "band-refused"


def rates_of(groups: Sequence[GroupScores], config: Mapping[str, Json], threshold: float | None) -> dict[str, float]:
    """By prompt id, the share from 0 to 1 of its scored completions that are right, in all groups that asked it."""
    judged: dict[str, list[bool]] = {}
    for group in groups:
        found = [right for one in group.completions if (right := is_right(one, config, threshold)) is not None]
        judged.setdefault(group.prompt_id, []).extend(found)
    return {prompt: sum(found) / len(found) for prompt, found in judged.items() if found}


def draw_rates(draft: Draft, sample: Run, groups: Sequence[GroupScores], threshold: float | None) -> int | None:
    """The histogram, and the band; the bar that a person picked."""
    rates = rates_of(groups, sample.config, threshold)
    low, high = draft.sample_band
    with st.container(border=True, key="before-launch-rates"):
        chart, said = st.columns([3, 2], gap="medium")
        with chart:
            st.markdown(heading("Success rates", f"of {counted(len(rates), 'prompt')}, a click shows the groups"))
            show(
                success_rates_figure(list(rates.values()), (low / 100, high / 100)),
                key="before-launch-rates-chart",
                about="Number of prompts by success rate",
                on_pick=lambda bar: setattr(draft, "sample_bar", None if bar == draft.sample_bar else bar),
            )
        with said:
            _say(groups, rates)
            _draw_band(draft, sample, rates)
    if draft.sample_bar is not None:
        behind = sum(bar_of(rate) == draft.sample_bar for rate in rates.values())
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{bar_title(draft.sample_bar)}**: {counted(behind, 'prompt')}", width="content")
            st.button("Show all", on_click=setattr, args=(draft, "sample_bar", None), type="tertiary")
    return draft.sample_bar


def behind_bar(
    groups: Sequence[GroupScores], config: Mapping[str, Json], threshold: float | None, bar: int
) -> set[int]:
    """The ids of the groups whose prompts count in a bar."""
    rates = rates_of(groups, config, threshold)
    return {one.id for one in groups if one.prompt_id in rates and bar_of(rates[one.prompt_id]) == bar}


def _say(groups: Sequence[GroupScores], rates: Mapping[str, float]) -> None:
    """What the prompts have to teach, how long the answers are, and what they cost."""
    completions = [one for group in groups for one in group.completions]
    middle = sum(0 < rate < 1 for rate in rates.values())
    tokens = sum(one.token_count for one in completions)
    cut = sum(one.finish_reason == "length" for one in completions) / len(completions)
    st.metric(
        "Can teach",
        f"{middle} of {len(rates)}",
        help="Prompts that were answered right at least once, and not always\\.",
    )
    st.caption(
        f"{counted(tokens, 'token')} sampled, {number(tokens / len(completions))} a completion; {percent(cut)} cut at the limit"
    )


def _draw_band(draft: Draft, sample: Run, rates: Mapping[str, float]) -> None:
    """Keep the prompts of a band as the form's data, if what was measured is an upload."""
    key = draft.key("before-launch-band")

    take = on_change(key, draft.sample_band, partial(setattr, draft, "sample_band"))
    low, high = st.slider(
        "Keep success rates of", 0, 100, draft.sample_band, step=5, format="%d %%", key=key, on_change=take
    )
    kept = [prompt for prompt, rate in rates.items() if low / 100 <= rate <= high / 100]
    task = sample.config.get("task")
    source = str(task.get("source")) if isinstance(task, dict) else ""
    if not isinstance(task, dict) or not source.startswith("upload:"):
        st.caption("A band can be kept of uploaded data.")
        return
    if frozenset(kept) == request.kept_of(draft):
        st.success(
            f"The form's data are now these {counted(len(kept), 'prompt')}\\. **Form** shows them, and **Start run** trains on them\\.",
            icon=":material/check:",
        )
        return
    pressed = st.button(
        f"Keep {len(kept)} of {counted(len(rates), 'prompt')} as the data",
        icon=":material/filter_alt:",
        disabled=not kept,
        help="Makes a new upload of these rows and of all that are held out for evaluation, and puts it into the form\\. Prompts that "
        "were not sampled are left out\\.",
    )
    if pressed:
        try:
            _keep(draft, task, kept)
        except ApiError as refusal:
            st.session_state[_REFUSED] = explain(refusal)
        except Unreachable:
            st.session_state[_REFUSED] = "The backend does not answer; try again when it is back\\."
        else:
            st.session_state.pop(_REFUSED, None)
            draw_again()
    if _REFUSED in st.session_state:
        st.error(st.session_state[_REFUSED], icon=":material/error:")


def _keep(draft: Draft, measured: Mapping[str, Json], kept: Sequence[str]) -> None:
    """Make an upload of the band, and put it into the form's task; the rest of it stays, unless it asks other prompts by now.

    Raises ApiError and Unreachable.
    """
    form = draft.get("task")
    same = isinstance(form, dict) and all(form.get(name) == measured.get(name) for name in ("kind", "prompt_column"))
    task: dict[str, Json] = {**(form if isinstance(form, dict) and same else measured)}
    asked = {**measured, **{name: task.get(name) for name in ("source_column", "shares")}}
    upload = client().preview_upload(int(str(measured["source"]).removeprefix("upload:"))).upload
    name = "{} to {} % of {}".format(*draft.sample_band, upload.name)
    band = client().keep_rows(name[:LONGEST_NAME], asked, kept)
    shares: Json = dict(band.shares)
    draft.change({"task": {**task, "source": f"upload:{band.upload.id}", "held_out": band.held_out, "shares": shares}})
    draft.sample_kept = draft.get("task"), frozenset(kept)
