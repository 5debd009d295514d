"""What the reward pays for: the properties of completions that go with it within groups, and phrases that spread."""

from typing import Literal

import streamlit as st

from backend.contract.properties import Example, ExampleSide, PaidFor, PhraseSpread, PropertyEffect
from backend.contract.records import Run
from dashboard.charts.trend import effect_figure, mean_figure
from dashboard.components.address import read
from dashboard.components.chart import heading, show
from dashboard.components.synced import BESIDE, chosen
from dashboard.components.table import Column, draw
from dashboard.format import MISSING, count, counted, number, percent, plain, signed
from dashboard.health import draw_card
from dashboard.session import client, guard, link
from dashboard.text import one_line, show_text

PAID_FOR = "Paid for"
TOTAL = "total"
_SAME = 1e-6  # an interval that is narrower, as a share of the effect, holds one number: the reward is a rule without exceptions
LINES, _TALL = 12, 460  # of a table, and the pixels of a longer one


def draw_paid_for(run: Run) -> None:
    """Draw the controls, the finding in a sentence, hints, the table, one property in detail, and phrases that spread."""
    controls = st.columns([3, 1.5, 1.5, 4], vertical_alignment="bottom")
    first, last = (
        place.number_input(label, min_value=0, value=None, step=1, key=key, bind="query-params", placeholder=word)
        for place, label, key, word in (
            (controls[1], "From step", "window_from", "first"),
            (controls[2], "To step", "window_to", "last"),
        )
    )
    asked = read("reward", TOTAL)
    with guard(), st.spinner("Reading completions"):
        found = _found(run.id, run.progress.step, None if asked == TOTAL else asked, first, last)
    with controls[0]:
        options = [TOTAL, *dict.fromkeys([*found.rewards, *([] if asked == TOTAL else [asked])])]
        words = plain if len(options) <= BESIDE else one_line  # those beside each other are read as markup
        chosen("Reward", "reward", TOTAL, options, words=words, help="The total, or what one reward function said.")
    if not found.groups:
        begin = "No groups in these steps." if run.progress.step else "No groups yet."
        st.info(
            f"{begin} What the reward pays for appears here after a few steps: properties of completions that go with it.",
            icon=":material/hourglass_empty:",
        )
        return
    st.markdown(in_words(found))
    st.caption(read_in_words(found))
    for hint in found.hints:
        draw_card(run, hint, {})
    clear, rest = ([one for one in found.properties if one.clear is each] for each in (True, False))
    if clear:
        draw(clear, COLUMNS, key=f"paid-for-{run.id}", height=_height(len(clear)))
    if rest:
        with st.expander(
            f"{counted(len(rest), 'property', 'properties')} that chance may explain", icon=":material/casino:"
        ):
            draw(rest, COLUMNS, key=f"chance-{run.id}", height=_height(len(rest)))
    _draw_detail(run, [one for one in found.properties if one.trend])
    _draw_phrases(run, found)


# for a minute: people may judge pairs of a run that makes no steps
@st.cache_data(ttl=60, max_entries=64, show_spinner=False)
def _found(run_id: int, step: int, reward: str | None, first: int | None, last: int | None) -> PaidFor:  # noqa: ARG001  (a run that moved is a new key)
    return client().properties(run_id, reward=reward, from_step=first, to_step=last)


def _height(rows: int) -> int | Literal["content"]:
    """Pixels: of a long table a part, which scrolls."""
    return "content" if rows <= LINES else _TALL


def in_words(found: PaidFor) -> str:
    """The finding in a sentence or two, with its interval."""
    which = "total reward" if found.reward is None else f"reward {plain(found.reward)}"
    over = f"Over steps {count(found.from_step)} to {count(found.to_step)}"
    if not found.looked_at:
        return (
            f"**Too little to say.** {over} the {which} differs within {counted(found.differing, 'group')}; something can be said of "
            f"a property once it differs in about {found.needed} {found.cluster}s of such groups."
        )
    clear = [one for one in found.properties if one.clear]
    if not clear:
        return (
            f"**Nothing that was looked at goes with the {which} beyond chance.** {over}, none of "
            f"{counted(found.looked_at, 'property', 'properties')} does."
        )
    first = clear[0]
    sign = "more" if first.effect > 0 else "less"
    having = "that have it" if first.binary else f"with {number(first.spread)} more of it (one standard deviation)"
    others = f" It cannot be separated from: {', '.join(map(plain, first.same))}." if first.same else ""
    return (
        f"**{over} the {which} goes most with {plain(first.title)}.** Within a group, completions {having} got "
        f"{number(abs(first.effect))} {sign} ({_in_brackets(first)}); it goes along with {percent(first.correlation**2)} of the "
        f"differences in reward.{others}"
    )


def _in_brackets(one: PropertyEffect) -> str:
    interval = _interval(one)
    if " to " in interval:
        return f"95 % {interval}"
    return "without an interval" if interval == MISSING else f"{interval} groups"


def _interval(one: PropertyEffect) -> str:
    if one.low is None or one.high is None:
        return MISSING
    if one.high - one.low <= _SAME * abs(one.effect):
        return "the same in all"
    return f"{signed(one.low)} to {signed(one.high)}"


def read_in_words(found: PaidFor) -> str:
    """What was read, and what was not."""
    parts = [f"Read: {counted(found.completions, 'completion')} in {counted(found.groups, 'group')}"]
    if found.groups < found.all_groups:
        parts[0] += f" of {count(found.all_groups)}, spread evenly over the steps"
    parts.append(f"the reward differs in {count(found.differing)} of them, and the others say nothing")
    if found.unscored:
        parts.append(f"{counted(found.unscored, 'completion')} had no such reward")
    if found.shortened:
        parts.append(f"of {counted(found.shortened, 'long completion')} both ends were read")
    unit = (
        f"{counted(found.clusters, 'prompt')}"
        if found.cluster == "prompt"
        else f"{counted(found.clusters, 'group')} of few prompts"
    )
    return (
        f"{'; '.join(parts)}. Completions are compared with those of their own group. Intervals and p are corrected for the "
        f"{counted(found.looked_at, 'property', 'properties')} looked at, and count {unit}, not completions. What goes with a reward "
        "need not be what causes it."
    )


COLUMNS = [
    Column[PropertyEffect]("property", lambda one: one_line(one.title), 260),
    Column(
        "reward",
        lambda one: signed(one.effect),
        80,
        "The difference in reward between completions of a group that have it and those that do not; of a number, for one "
        "standard deviation more of it (see: for).",
        "figure",
    ),
    Column("95 %", _interval, 130, "All intervals of the table hold together with a probability of 95 %.", "figure"),
    Column("for", lambda one: "having it" if one.binary else f"+{number(one.spread)}", 85, kind="figure"),
    Column(
        "goes with",
        lambda one: percent(one.correlation**2),
        85,
        "The share of the differences in reward within groups that goes along with it, in a straight line (r²).",
        "figure",
    ),
    Column("p", lambda one: _p(one.p), 75, "Corrected for the number of properties (max-T).", "figure"),
    Column("mean", lambda one: percent(one.mean) if one.binary else number(one.mean), 70, kind="figure"),
    Column(
        "beside the first",
        lambda one: MISSING if one.beside is None else percent(one.beside**2) if one.beside_clear else "nothing clear",
        110,
        "The share of the remaining differences that goes along with it, once the first property of the table is accounted for.",
        "figure",
    ),
    Column(
        "cannot be separated from",
        lambda one: one_line(", ".join(one.same)),
        "large",
        "Within groups their correlation with it is above 0.95, or below −0.95.",
    ),
]


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else number(value)


def _draw_detail(run: Run, lines: list[PropertyEffect]) -> None:
    """One property: how its effect and its mean went, and completions with and without it."""
    if not lines:
        return
    titles = [one.title for one in lines]
    title = chosen("Look at", "property", titles[0], titles, words=plain if len(titles) <= BESIDE else one_line)
    one = lines[titles.index(title)]
    effect, mean = st.columns(2)
    with effect:
        st.markdown(heading("What the reward pays for it", "each point with its own 95 % interval"))
        if any(point.effect is not None for point in one.trend):
            show(
                effect_figure(one.trend),
                key=f"effect-{run.id}",
                about=f"What the reward pays for {one.title}, over steps",
                file=f"run-{run.id}-paid-for",
            )
        else:
            st.caption("It differs in too few groups of each part of the steps to say so of one part.")
    with mean:
        st.markdown(heading("Share of completions that have it" if one.binary else "Mean"))
        show(
            mean_figure(one.trend, share=one.binary),
            key=f"mean-{run.id}",
            about=f"{one.title}, over steps",
            file=f"run-{run.id}-property",
        )
    words = "with and without it" if one.binary else "with more and with less of it"
    st.markdown(
        f"**Completions of a group {words}** :gray[:small[· where it goes with the reward most, as in the middle, and least]]"
    )
    for place, example in enumerate(one.examples):
        with st.container(border=True, key=f"example-{place}"):
            _draw_example(example, one)


def _draw_example(example: Example, one: PropertyEffect) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            f"Step {count(example.step)} · group {count(example.group_index + 1)} · {plain(one_line(example.prompt))}"
        )
        pair = f"{example.more.index + 1},{example.less.index + 1}"
        link("group", "Open", icon=":material/arrow_forward:", id=example.group_id, panel="difference", diff=pair)
    for place, side in zip(st.columns(2), (example.more, example.less), strict=True):
        with place:
            _draw_side(side, one, has=side is example.more)


def _draw_side(side: ExampleSide, one: PropertyEffect, *, has: bool) -> None:
    what = ("with it" if has else "without it") if one.binary else f"{_amount(side.value)} of it"
    st.markdown(f"Completion {side.index + 1} · {what} · reward **{number(side.reward)}**")
    show_text(side.excerpt)


def _amount(value: float) -> str:
    return count(int(value)) if value.is_integer() else number(value)


PHRASES = [
    Column[PhraseSpread]("phrase or tag", lambda one: one_line(one.phrase), "medium"),
    Column(
        "first quarter",
        lambda one: percent(one.first),
        110,
        "Share of the completions of the first quarter of the steps.",
        "figure",
    ),
    Column("last quarter", lambda one: percent(one.last), 110, kind="figure"),
    Column(
        "change, 95 %",
        lambda one: f"{signed(100 * one.low)} to {signed(100 * one.high)} points",
        190,
        "Corrected for the number of phrases and tags looked at.",
        "figure",
    ),
    Column(
        "of what is rewarded",
        lambda one: percent(one.rewarded),
        130,
        "Its share of the completions of the last quarter whose reward is above their group's mean.",
        "figure",
    ),
]


def _draw_phrases(run: Run, found: PaidFor) -> None:
    st.markdown(
        "**Phrases and tags that came or went** :gray[:small[· found by counting, whatever the reward says of them]]"
    )
    if found.phrases:
        draw(found.phrases, PHRASES, key=f"phrases-{run.id}")
    else:
        st.caption("No phrase or tag that was looked at came or went beyond chance, or the window is too short to say.")
