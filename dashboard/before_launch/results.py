"""What a sample showed: success rate, dead groups to expect, and every group as on its own page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import streamlit as st

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.groups import CompletionNumbers, Group, GroupState, GroupSummary
from backend.contract.inspection import GroupScores
from backend.contract.records import Run
from dashboard.algorithm.estimators import stored_estimator
from dashboard.before_launch import request
from dashboard.before_launch.rescoring import difference, suspicions, watch_files
from dashboard.before_launch.success_rates import WORTH_A_CHART, behind_bar, draw_rates
from dashboard.charts.dead_forecast import LITTLE, dead_forecast_figure, in_percent
from dashboard.components.address import number_in_address, write
from dashboard.components.chart import heading, show
from dashboard.forecast import TOLD_APART, Forecast, forecast, is_right, says_right
from dashboard.form.draft import Draft, on_change
from dashboard.format import MISSING, count, counted, percent, plain
from dashboard.group.cards import STYLE, draw_cards
from dashboard.group.numbers import draw_numbers, draw_strip
from dashboard.group.rows import pick_group
from dashboard.session import client, guard, link
from dashboard.status import GROUP
from dashboard.stored import highest_reward, number_at
from dashboard.text import show_text

LARGEST = 16
ALL_ALIKE = {  # by the success rate
    1.0: "Every completion was right: these prompts have nothing to teach this model. Harder ones would.",
    0.0: "No completion was right: there is nothing to reinforce. Easier prompts, another model to start from, or a reward for partial "
    "success would give a signal.",
}


def summary(groups: Sequence[Group | GroupScores], config: Mapping[str, Json], threshold: float | None = None) -> str:
    """41 of 64 completions right (64 %) · 3 groups live, 1 dead."""
    completions = [one for group in groups for one in group.completions]
    judged = [right for one in completions if (right := is_right(one, config, threshold)) is not None]
    parts = []
    if judged:
        share = percent(sum(judged) / len(judged))
        parts.append(f"{count(sum(judged))} of {counted(len(judged), 'completion')} right ({share})")
    states = Counter(group.state for group in groups)
    dead = "dead" if stored_estimator(config).centred else "with equal rewards"
    words: dict[GroupState, str] = {"live": "live", "zero_variance": dead, "unscored": "unscored"}
    found = [f"{states[state]} {word}" for state, word in words.items() if states[state]]
    cut = sum(one.finish_reason == "length" for one in completions)
    parts.append(f"{counted(len(groups), 'group')}: {', '.join(found)}")
    parts += [f"{count(cut)} of {count(len(completions))} cut at the token limit"] if cut else []
    return " · ".join(parts)


def conclusion(found: Forecast, config: Mapping[str, Json], own_size: int) -> str:
    """What to expect at the form's group size, and what another would bring."""
    own = found.at(own_size)
    if found.rate in ALL_ALIKE:
        if own is None or own.dead >= 1 - TOLD_APART:
            return ALL_ALIKE[found.rate]
        count_as = "Every completion counts" if found.rate else "No completion counts"
        differ = f"all rewards will be equal in {_share(own.dead)} of the groups of {own_size}, and a run learns from the others"
        return f"{count_as} as right, but their rewards differ: {differ}."
    if own is None:
        return (
            f"Groups of {own_size} are larger than what was sampled: sample at least {own_size} completions a prompt to forecast them."
            if own_size >= 2
            else f"In a group of {own_size} there is nothing to compare a completion with."
        )
    larger = found.at(min(LARGEST, 2 * own_size))
    more = ""
    if larger is not None and larger.group_size > own_size:
        more = f"; at group size {larger.group_size}, {_share(larger.dead)}"
    will = "be dead (all rewards equal)" if stored_estimator(config).centred else "have equal rewards"
    share = "all" if own.dead == 1 else _share(own.dead) if own.dead < LITTLE else f"about {_share(own.dead)}"
    sentence = f"At group size {own_size} {share} of the groups will {will}{more}."
    alike = f" All right or all wrong will be {_share(own.right_or_wrong)}"
    if own.right_or_wrong - own.dead > TOLD_APART:
        sentence += f"{alike}, but the rewards differ in some of these."
    elif own.dead - own.right_or_wrong > TOLD_APART:
        sentence += f"{alike}: others have equal rewards, too."
    return sentence


def _share(share: float) -> str:
    return in_percent(share).replace("<", "less than")


def underestimate(found: Forecast, own_size: int) -> str:
    """Why the well-known formula is not used, with this sample's numbers."""
    share = found.at(own_size)
    numbers = (
        f" Here, at G = {own_size}: the line says {in_percent(share.at_mean_rate)}, the bar {in_percent(share.dead)}."
        if share
        else ""
    )
    return (
        "The bars are the mean over prompts of the share of dead ones among all groups of G that can be drawn from a prompt's n completions: "
        "the sum, over its different rewards, of C(c, G) / C(n, G), with c completions that got this reward. This is right on average. "
        "A golden tick shows the share of groups that are all right or all wrong, if that is different. The dashed line is p^G + (1 − p)^G at "
        f"the mean success rate. Where prompts differ it tends to be too low, since easy and hard ones are dead more often; in a small sample it can also lie above the bar.{numbers}"
    )


def unscored(completions: Sequence[CompletionNumbers], config: Mapping[str, Json]) -> tuple[str, str] | None:
    """Which rewards failed on how many completions, and what a run would do; and the first traceback. None if all are scored."""
    failed = [score for one in completions for score in one.rewards if score.error]
    if not failed:
        return None
    count = Counter(score.name for score in failed)
    share = sum(one.reward is None for one in completions) / len(completions)
    allowed = number_at(config, "rewards.max_unscored", 0.2)
    names = ", ".join(f"{name} on {times}" for name, times in count.most_common())
    trace = failed[0].error or ""
    # a traceback ends with the error itself
    last = next((line.strip().rstrip(".") for line in reversed(trace.splitlines()) if line.strip()), "no reason")
    fate = "would" if share > allowed else "would not"
    return (
        f"Rewards failed on some of the {counted(len(completions), 'completion')}: {names}. The first error: {last}. "
        f"A run fails if more than {percent(allowed)} are unscored; this one {fate} fail."
    ), trace


OPENED = "group"  # in the address: the opened group
COLUMNS = ("group", "prompt", "state", "rewards", "mean", "std", "advantages")
THRESHOLD = "before-launch-threshold"


def draw_results(draft: Draft, sample: Run) -> None:
    """In a sentence, as a forecast, and group by group."""
    with guard():
        summaries, groups = _fetch(sample.id, sample.progress.total_steps)
    changed = request.changed_since(draft, sample.config)
    if changed == ["rewards"]:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.warning("The form's rewards changed after this sample was scored.", icon=":material/history:")
            st.button("Score again", icon=":material/refresh:", on_click=request.score_again, args=(draft, sample))
    elif changed:
        st.warning(
            f"The form's {' and '.join(changed)} changed after this sample was taken. Sample again.",
            icon=":material/history:",
        )
    watch_files(draft, sample)
    if draft.sample_before is not None and sample.config.get("rescores"):
        with suppress(ApiError, Unreachable):  # the earlier one was deleted
            before = _fetch(draft.sample_before, sample.progress.total_steps)[1]
            st.info(plain(difference(before, groups)), icon=":material/difference:")
    threshold = _choose_threshold(draft, sample)
    st.markdown(f"**{plain(summary(groups, sample.config, threshold))}**")
    asked = int(number_at(sample.config, "task_prompts", len(groups)))
    if sample.config.get("task") and len(groups) < asked:
        st.caption(f"{count(asked)} prompts were drawn, {count(len(groups))} of them different: each is asked once\\.")
    failed = unscored([one for group in groups for one in group.completions], sample.config)
    if failed is not None:
        said, trace = failed
        st.error(plain(said), icon=":material/error:")
        with st.expander("The first error, in full"):
            show_text(trace)
    for suspicion in suspicions(groups, sample.config):
        st.warning(plain(suspicion), icon=":material/help:")
    _draw_forecast(draft, sample, forecast(groups, sample.config, _own_size(draft), threshold))
    if len(groups) >= WORTH_A_CHART:
        bar = draw_rates(draft, sample, groups, threshold)
        if bar is not None:
            behind = behind_bar(groups, sample.config, threshold, bar)
            summaries = [one for one in summaries if one.id in behind]
    if summaries:
        _draw_groups(sample, summaries)


def measured(draft: Draft) -> Forecast | None:
    """The forecast of the form's sample, if it is finished and the form has not changed since, of a band the prompts that were kept; None while nobody answers."""
    if draft.sample_id is None:
        return None
    try:
        sample = client().run(draft.sample_id)
        if sample.status != "finished" or request.changed_since(draft, sample.config):
            return None
        groups = _fetch(sample.id, sample.progress.total_steps)[1]
    except (Unreachable, ApiError):
        return None
    kept = request.kept_of(draft)
    read = [group for group in groups if kept is None or group.prompt_id in kept]
    return forecast(read, sample.config, _own_size(draft), _threshold(draft, sample))


@st.cache_data(ttl=600, max_entries=16, show_spinner=False)
def _fetch(sample_id: int, steps: int) -> tuple[list[GroupSummary], list[GroupScores]]:
    """The groups of a finished sample, which never change: as rows, and in numbers."""
    ask = client()
    page = ask.groups(sample_id, limit=200, sort="step")
    summaries = page.items
    while page.next_cursor is not None:
        page = ask.groups(sample_id, limit=200, sort="step", cursor=page.next_cursor)
        summaries = summaries + page.items
    return summaries, [one for step in range(steps) for one in ask.step_scores(sample_id, step).groups]


@st.cache_data(ttl=600, max_entries=64, show_spinner=False)
def _fetch_group(group_id: int) -> Group:
    """A whole group of a finished sample."""
    return client().group(group_id)


def _own_size(draft: Draft) -> int:
    size = draft.get("sampling.group_size")
    return size if isinstance(size, int) else 0


def _threshold(draft: Draft, sample: Run) -> float | None:
    """The reward that counts as right; None if a reward function says what is right."""
    if says_right(sample.config):
        return None
    highest = float(highest_reward(sample.config))  # weights may be whole numbers, which the field does not take
    return highest if draft.sample_right is None else draft.sample_right


def _choose_threshold(draft: Draft, sample: Run) -> float | None:
    """The same, and if a person says it, the field for that. The draft keeps it: a widget's own value goes with the widget."""
    threshold = _threshold(draft, sample)
    if threshold is None:
        return None

    key = f"{THRESHOLD}-{highest_reward(sample.config)}"  # other rewards, another field
    return st.number_input(
        "Counts as right from a reward of",
        value=threshold,
        step=0.1,
        key=key,
        on_change=on_change(key, threshold, partial(setattr, draft, "sample_right")),
        width=260,
        help="No reward of this form compares with a reference answer, so you say how much is enough\\.",
    )


def _draw_forecast(draft: Draft, sample: Run, found: Forecast | None) -> None:
    if found is None:
        st.info(
            f"The success rate and the expected dead groups appear here once a prompt has at least {request.ENOUGH} scored completions.",
            icon=":material/query_stats:",
        )
        return
    own = _own_size(draft)
    with st.container(border=True, key="before-launch-forecast"):
        rates = " · ".join(percent(rate) for rate in found.rates_P)
        chart, said = st.columns([3, 2], gap="medium", vertical_alignment="center")
        with chart:
            st.markdown(heading("Dead groups to expect", f"measured on {len(found.rates_P)} prompts"))
            show(
                dead_forecast_figure(found.shares, own),
                key="before-launch-dead",
                about="Share of dead groups by group size",
            )
            too_low = ", which is too low here: the prompts differ" if found.mean_rate_is_too_low else ""
            golden = " Golden: all right or all wrong\\." if found.depends_on_rewards else ""
            st.caption(f"Dashed: p^G + (1 − p)^G at the mean success rate{too_low}\\.{golden}")
        with said:
            st.metric("Success rate", percent(found.rate), help="The mean over the prompts\\.")
            if len(found.rates_P) < WORTH_A_CHART:
                st.caption(f"by prompt: {rates}")
            if found.left_out:
                st.caption(f"left out, with fewer than {request.ENOUGH} scored completions: {found.left_out}")
            st.markdown(f"**{plain(conclusion(found, sample.config, own))}**")
            with st.popover("How this is computed", type="tertiary", icon=":material/function:"):
                st.markdown(plain(underestimate(found, own)))


def _draw_groups(sample: Run, summaries: Sequence[GroupSummary]) -> None:
    """The groups as rows; the one that is opened, as on its own page. Their numbers are their places: each report begins again at 0."""
    rows = [one.model_copy(update={"index": place}) for place, one in enumerate(summaries)]
    picked = pick_group(rows, highest_reward(sample.config), COLUMNS, key=f"before-launch-groups-{sample.id}")
    if picked is not None:
        write(**{OPENED: picked.id})
    number = number_in_address(OPENED)
    opened = next((place for place, one in enumerate(summaries) if one.id == number), 0)
    with guard():
        group = _fetch_group(summaries[opened].id)
    st.html(STYLE)
    with st.container(key="before-launch-group"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown(f"**Group {opened + 1} of {len(summaries)}** {GROUP[group.state].markdown}", width="content")
            link("group", "Open the group's page", icon=":material/open_in_new:", id=group.id)
        prompt, answer = st.columns([3, 1], gap="small")
        with prompt:
            st.caption("Prompt")
            show_text(group.prompt or group.prompt_text)
        with answer:
            st.caption("Reference answer")
            show_text(MISSING if group.answer is None else group.answer)
        said, strip = st.columns(2, gap="medium", vertical_alignment="center")
        with said:
            draw_numbers(sample, group)
        with strip:
            draw_strip(group)
        draw_cards(group, sample.config, by_advantage=False, visible=False)
