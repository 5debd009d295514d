"""What a replay found: which groups made the update, how far they agree, and which completions, probes and tokens rose and fell."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import streamlit as st

from backend.contract.groups import CompletionRecord, Group
from backend.contract.records import TERMINAL, Run
from backend.contract.replay import GroupDetail, MovedToken, OtherUpdate, Part, Replayed
from dashboard.charts.replay import agreement_figure, moved, moves_figure, shares_figure
from dashboard.components.chart import heading, show
from dashboard.components.table import Column, draw, pick
from dashboard.format import MISSING, count, counted, number, percent, signed
from dashboard.leaving import go
from dashboard.replay.ask import cuts, draw_more
from dashboard.session import client, guard, link
from dashboard.status import GROUP
from dashboard.stored import number_at, text_at
from dashboard.text import one_line
from dashboard.wording import in_words

EXPLANATION = "Explanation"
_AGAINST = 12  # completions in the table of those that moved against their advantage
_TOKENS = 20


@dataclass(frozen=True)
class _Moved:
    """A completion, and how often its group has the same one."""

    group: Group
    completion: CompletionRecord
    move: float
    times: int


def draw_explanation(run: Run) -> None:
    """Draw what was found, or how far the replay is."""
    of, step, start = (int(number_at(run.config, name, 0)) for name in ("run", "step", "checkpoint"))
    with st.container(horizontal=True, vertical_alignment="center", key="replay-of"):
        link("run", f"Run #{of}", icon=":material/arrow_back:", id=of, tab="groups", step=step)
        where = f"checkpoint {start}" if start else "the beginning"
        exact = ", exactly: tokens, advantages and loss are those recorded" if run.status == "finished" else ""
        st.markdown(f"**Step {step}**, done again from {where}{exact}.", width="content")
    if run.status != "finished":
        _draw_state(run, step, max(start, run.progress.step))
        return
    with guard():
        found, groups = _read(run.id, run.attempt, step)
    trained = [group for group in groups if group.state != "probe"]
    probes = [group for group in groups if group.state == "probe"]
    if not found.update_norm:
        st.info(
            "The weights stayed: no group had anything to teach, or the gradient was not finite.",
            icon=":material/pause:",
        )
    _draw_summary(found)
    draw_more(found)
    if found.detail is not None:
        _draw_detail(found.detail, trained)
    if found.other is not None:
        _draw_other(found, found.other, probes)
    left, right = st.columns([1, 1], gap="large")
    with left:
        st.markdown(heading("What made the update", "shares that add up to 1"), help=_SHARE)
        show(shares_figure(found), key=f"shares-{run.id}", about="Share of each group in the step's update")
    with right:
        st.markdown(heading("How far the groups agree", "cosine of their gradients"), help=_COSINE)
        show(agreement_figure(found), key=f"agreement-{run.id}", about="Cosines between the gradients of groups")
        if found.projected is not None and found.projection_error is not None:
            st.caption(
                f"Gradients were projected to {count(found.projected)} numbers to compare them: a cosine has a standard error of "
                f"{number(found.projection_error)} at most."
            )
    _draw_groups(run, found, trained)
    _draw_moves(run, trained)
    _draw_probes(probes)
    _draw_tokens(found, trained)


_SHARE = (
    "AdamW's update is a sum: a part for each group (of all passes on the batch), one for the momentum of earlier steps, one for weight "
    "decay. A share is the projection of a part on the whole update. A negative one pulled the other way."
)
_NORM = "The norm of its gradient of the loss; of several passes on the batch, of their mean."
_COSINE = "1: two groups pull the weights the same way. Below 0: what one teaches, the other takes back."


def _draw_state(run: Run, step: int, now: int) -> None:
    if run.status in TERMINAL:
        st.info(
            "There is no explanation: the replay did not come to its end. The reason stands above, and in the Log.",
            icon=":material/block:",
        )
        return
    words = (
        f"Step {now} is done again; step {step} is the one that is explained."
        if now < step
        else f"Step {step} is being taken apart."
    )
    st.info(words if run.status == "running" else "The replay waits for a worker.", icon=":material/hourglass_top:")


def _draw_summary(found: Replayed) -> None:
    mine = sum(part.share for part in found.groups)
    rounding = MISSING if found.apart is None else number(found.apart)
    st.markdown(
        f"This step's own groups made **{percent(mine)}** of the update, the momentum of earlier steps **{percent(found.momentum)}**"
        + (f", weight decay **{percent(found.decay)}**" if found.decay else "")
        + f". :gray[:small[The groups' gradients add up to the step's, {rounding} of its norm apart. ‖Δθ‖ {number(found.update_norm)}]]"
    )


def _draw_groups(run: Run, found: Replayed, groups: Sequence[Group]) -> None:
    by_index = {group.index: group for group in groups}
    ranked = sorted(found.groups, key=lambda part: -abs(part.share))
    st.markdown(
        "**Groups, by what they did to the weights** :gray[:small[· click a line to open its group, every token kept]]"
    )
    columns: dict[str, Column[Part]] = {
        "group": Column("#", lambda part: part.index + 1, 45, kind="number"),
        "prompt": Column(
            "prompt", lambda part: one_line(by_index[part.index].prompt or by_index[part.index].prompt_text), 260
        ),
        "state": Column("state", lambda part: GROUP[by_index[part.index].state].word, 80),
        "mean": Column(
            "reward", lambda part: number(by_index[part.index].reward_mean), 70, "Mean of its rewards.", "figure"
        ),
        "std": Column("std", lambda part: number(by_index[part.index].reward_std), 70, "Of its rewards.", "figure"),
        "share": Column("share", lambda part: percent_signed(part.share), 80, _SHARE, "figure"),
        "size": Column(
            "size",
            lambda part: number(part.size),
            70,
            "The norm of its part of the update, in norms of the whole.",
            "figure",
        ),
        "norm": Column("gradient", lambda part: number(part.norm), 90, _NORM, "figure"),
        "cosine": Column(
            "cosine", lambda part: signed(part.cosine), 80, "Of minus its gradient with the update.", "figure"
        ),
    }
    chosen = pick(ranked, columns, key=f"replayed-groups-{run.id}")
    if chosen is not None:
        go("group", id=by_index[chosen.index].id)


@dataclass(frozen=True)
class _Piece:
    """A completion of the group that was taken apart, and its tokens' shares."""

    completion: CompletionRecord
    part: Part
    tokens: Sequence[float]


def _draw_detail(detail: GroupDetail, groups: Sequence[Group]) -> None:
    """The completions of a group by what they did, with the tokens that did most of it."""
    group = next(one for one in groups if one.index == detail.group)
    st.markdown(heading(f"Group {detail.group + 1}, taken apart", "shares of the whole update"))
    tokens = detail.tokens or [[] for _ in detail.completions]
    pieces = [_Piece(*one) for one in zip(group.completions, detail.completions, tokens, strict=True)]
    columns: list[Column[_Piece]] = [
        Column("completion", lambda one: one.completion.index + 1, 90, kind="number"),
        Column("advantage", lambda one: signed(one.completion.advantage), 90, kind="figure"),
        Column("share", lambda one: percent_signed(one.part.share), 80, _SHARE, "figure"),
        Column("gradient", lambda one: number(one.part.norm), 90, _NORM, "figure"),
        Column("cosine", lambda one: signed(one.part.cosine), 80, "Of minus its gradient with the update.", "figure"),
        Column(
            "tokens that did most", _most_of, "large", "The five tokens with the largest shares, each with its share."
        ),
    ]
    draw(sorted(pieces, key=lambda one: -abs(one.part.share)), columns, key="replay-detail")
    if not detail.tokens:
        st.caption("The group has too many tokens to compute the share of each.")


def _most_of(piece: _Piece) -> str:
    if not any(piece.tokens):
        return MISSING
    with guard():
        texts = client().tokens(piece.completion.id).texts
    most = sorted(range(len(piece.tokens)), key=lambda place: -abs(piece.tokens[place]))[:5]
    return "   ".join(f"{one_line(texts[place]) or '␣'} {percent_signed(piece.tokens[place])}" for place in most)


def _draw_other(found: Replayed, other: OtherUpdate, probes: Sequence[Group]) -> None:
    """How another algorithm's update compares with the real one, and what each does to the probes."""
    kind, beta = text_at(other.algorithm, "advantage.kind"), number_at(other.algorithm, "kl.beta", 0.0)
    named = [in_words(kind), f"β {number(beta)}"]
    named += [f"{label} {number(value)}" for label, value in cuts({"algorithm": other.algorithm}).values()]
    st.markdown(heading("Another algorithm, from the same step", ", ".join(named)))
    longer = number(other.update_norm / found.update_norm) if found.update_norm else MISSING
    st.markdown(
        f"Its update has a cosine of **{signed(other.cosine)}** with the real one, and **{longer} times** its norm."
    )
    rows = [
        (group, one, moved(one.logprob_sum, one.logprob_sum_after), change)
        for group, changes in zip(probes, other.probes, strict=False)
        for one, change in zip(group.completions, changes, strict=False)
    ]
    unique = list({(row[0].index, row[1].text): row for row in rows}.values())
    columns: list[Column[tuple[Group, CompletionRecord, float | None, float]]] = [
        Column("probe", lambda row: one_line(row[0].prompt or row[0].prompt_text), 200),
        Column(
            "really", lambda row: signed(row[2]), 90, "Change of its log-prob by the real update, in nats.", "figure"
        ),
        Column(
            "with the other",
            lambda row: signed(row[3]),
            110,
            "Change of its log-prob by the other update, in nats.",
            "figure",
        ),
        Column("ends with", lambda row: one_line(row[1].text)[-60:], "large"),
    ]
    draw(unique, columns, key="replay-other")


def percent_signed(share: float) -> str:
    """+12.0 %, −3.1 %, 0."""
    if abs(share) < 0.0005:
        return "0" if share == 0 else "< 0.1 %"
    return f"{share * 100:+.1f} %".replace("-", "−")


def _moves(groups: Sequence[Group]) -> list[_Moved]:
    found: dict[tuple[object, ...], _Moved] = {}
    for group in groups:
        for one in group.completions:
            if (move := moved(one.logprob_sum, one.logprob_sum_after)) is not None:
                key = group.index, one.text, one.token_count, round(move, 5)  # one text may stand for different tokens
                times = found[key].times if key in found else 0
                found[key] = _Moved(group, one, move, times + 1)
    return list(found.values())


def _draw_moves(run: Run, groups: Sequence[Group]) -> None:
    """How completions moved, and those that moved against their advantage."""
    moves = _moves(groups)
    st.markdown(heading("Which completions rose and fell", "log-prob after the update − before"))
    st.markdown(" ".join(_said_of(moves, sign) for sign in (1, -1)))
    chart, table = st.columns([1, 1], gap="large")
    with chart:
        show(moves_figure(groups), key=f"moves-{run.id}", about="Change of each completion's log-prob by its advantage")
    with table:
        against = sorted(
            (one for one in moves if (one.completion.advantage or 0) * one.move < 0),
            key=lambda one: (one.completion.advantage or 0) * one.move,
        )
        if not against:
            st.caption("Every completion moved where its advantage pushed it.")
            return
        st.caption("Moved against their advantage: other completions, or earlier steps' momentum, pulled them along.")
        draw(against[:_AGAINST], _move_columns(), key=f"against-{run.id}")


def _said_of(moves: Sequence[_Moved], sign: Literal[1, -1]) -> str:
    pushed = [one for one in moves if (one.completion.advantage or 0) * sign > 0]
    count_all, followed = (
        sum(one.times for one in some) for some in (pushed, [one for one in pushed if one.move * sign > 0])
    )
    word, way = ("reinforced", "rose") if sign > 0 else ("discouraged", "fell")
    if not pushed:
        return f"No completion was {word}."
    return f"Of {counted(count_all, f'{word} completion')} **{count(followed)} {way}**."


def _move_columns() -> list[Column[_Moved]]:
    return [
        Column("group", lambda one: one.group.index + 1, 60, kind="number"),
        Column("completion", lambda one: one.completion.index + 1, 90, kind="number"),
        Column("times", lambda one: one.times, 60, "How often its group has the same completion.", "number"),
        Column("advantage", lambda one: signed(one.completion.advantage), 90, kind="figure"),
        Column(
            "before",
            lambda one: number(one.completion.logprob_sum),
            80,
            "Log-prob of the whole completion, in nats.",
            "figure",
        ),
        Column("change", lambda one: signed(one.move), 80, "In nats.", "figure"),
        Column("ends with", lambda one: one_line(one.completion.text)[-60:], "large"),
    ]


def _draw_probes(probes: Sequence[Group]) -> None:
    moves = _moves(probes)
    if not moves:
        return
    st.markdown(heading("What it did to the probes", "completions of held-out prompts, never trained on"))
    whole, rose = (sum(one.times for one in some) for some in (moves, [one for one in moves if one.move > 0]))
    words = "The policy drew them just before this step."
    st.markdown(f"Of {counted(whole, 'probe completion')} **{count(rose)} rose**. {words}")
    columns = [
        Column[_Moved]("prompt", lambda one: one_line(one.group.prompt or one.group.prompt_text), 200),
        Column[_Moved](
            "reward",
            lambda one: number(one.completion.reward),
            70,
            "Where the run scored its probes at this step.",
            "figure",
        ),
        *[column for column in _move_columns() if column.title in ("times", "before", "change", "ends with")],
    ]
    draw(
        sorted(moves, key=lambda one: -abs(one.move)),
        columns,
        key="probe-moves",
        height=320 if len(moves) > 8 else "content",
    )


def _draw_tokens(found: Replayed, groups: Sequence[Group]) -> None:
    if not found.tokens:
        return
    st.markdown(heading("The worst tokens", "those that moved furthest against their advantage"))
    columns: list[Column[MovedToken]] = [
        Column("token", lambda one: one_line(one.text) or "␣", 140),
        Column("group", lambda one: one.group + 1, 60, kind="number"),
        Column("completion", lambda one: one.completion + 1, 90, kind="number"),
        Column("place", lambda one: one.position + 1, 70, "Which token of the completion it is.", "number"),
        Column("advantage", lambda one: signed(one.advantage), 90, kind="figure"),
        Column("before", lambda one: number(one.before), 80, "Its log-prob, in nats.", "figure"),
        Column("change", lambda one: signed(one.after - one.before), 90, "In nats.", "figure"),
        Column("completion ends with", lambda one: _end_of(groups, one), "large"),
    ]
    draw(found.tokens[:_TOKENS], columns, key="moved-tokens")


def _end_of(groups: Sequence[Group], token: MovedToken) -> str:
    texts = (
        one.text
        for group in groups
        if group.index == token.group
        for one in group.completions
        if one.index == token.completion
    )
    return one_line(next(texts, ""))[-60:]


@st.cache_data(ttl=600, max_entries=16, show_spinner=False)
def _read(run_id: int, attempt: int, step: int) -> tuple[Replayed, list[Group]]:  # noqa: ARG001 — a part of the cache's key
    return client().replayed(run_id), client().step_groups(run_id, step)
