"""The Playground's first part: type rewards, choose an estimator, see what each completion is worth."""

import math
from collections.abc import Sequence

import streamlit as st

from backend.contract.advantage import ESTIMATORS, Advantage, Estimator, GroupZscore, Softmax
from backend.contract.groups import Group
from backend.contract.inspection import GroupScores
from dashboard.algorithm.controls import choose_estimator, estimator_settings
from dashboard.algorithm.estimators import formula, mean_of, spell_advantage, std_of, words_of
from dashboard.algorithm.rewards import exact, extremes
from dashboard.charts.playground import bars_figure
from dashboard.components.address import write
from dashboard.components.chart import show
from dashboard.components.style import FIGURES
from dashboard.components.synced import last_good, typed
from dashboard.format import MISSING, counted, number, plain, signed
from dashboard.playground.opening import Opening
from dashboard.playground.rewards import Typed, fitting, played, read_rewards, read_rows
from dashboard.playground.style import draw_title

FURTHER = "What other reward functions gave the same completions, with a semicolon between two functions."
EXAMPLES = {
    "4 of 8 right": "1, 1, 1, 1, 0, 0, 0, 0",
    "1 of 8": "1, 0, 0, 0, 0, 0, 0, 0",
    "all right": "1, 1, 1, 1, 1, 1, 1, 1",
    "graded": "1, 0.9, 0.6, 0.5, 0.4, 0.1, 0, -",
}
READINGS: tuple[tuple[Advantage, str, str], ...] = (
    (GroupZscore(std="population"), "z-score, std over G", "population, as numpy.std"),
    (GroupZscore(std="sample"), "z-score, std over G\u00a0−\u00a01", "sample, as torch.std and in TRL"),
    (Softmax(), "softmax weights", "recipe Group-wise softmax"),
)


def draw_advantages(opening: Opening) -> GroupScores:
    """The part with its controls; returns the group with its advantages."""
    draw_title(
        "1 · From rewards to advantages", "One prompt, several completions, each scored, then compared with the others."
    )
    controls, picture, readings = st.columns([1.05, 2, 1.35], gap="medium")
    with controls:
        group, advantage = _controls(opening)
    with picture:
        _draw_picture(group, advantage)
    with readings:
        _draw_readings([completion.reward for completion in group.completions], advantage)
        st.caption(words_of(advantage).sentence)
        st.markdown(reading(group, advantage))
        if opening.group is not None:
            st.markdown(_against_the_run(group, opening.group))
    return group


def _controls(opening: Opening) -> tuple[GroupScores, Advantage]:
    text = typed(
        "Rewards",
        "rewards",
        opening.rewards,
        help="One number for each completion; nan or - is one that could not be scored.",
    )
    status = st.container(key="play-status").empty()
    with st.container(horizontal=True, gap="xxsmall", key="play-examples"):
        for name, rewards in EXAMPLES.items():
            change = {"rewards": None if rewards == opening.rewards else rewards}
            st.button(name, type="tertiary", on_click=write, kwargs=change, key=f"play-example-{name}")
    about = "How a reward becomes an advantage. GAE needs a value for each token, and has its own section below."
    kind = choose_estimator(opening.advantage, help=about)
    advantage, wrong_setting = estimator_settings(kind, opening.advantage, *st.columns([3, 2]), st.columns([3, 2])[0])
    good, wrong = last_good("rewards", lambda: read_rewards(text), lambda: read_rewards(opening.rewards))
    rows, wrong_further = _further(kind, opening, good)
    group = played(advantage, rows)
    if wrong is None:
        status.caption(group_in_a_line(group))
    else:
        status.markdown(f":small[:red[{plain(wrong)}] The last valid input is shown.]")
    for message in (wrong_setting, wrong_further):
        if message is not None:
            st.markdown(f":red[{plain(message)}]")
    return group, advantage


def _further(kind: str, opening: Opening, rewards: list[float]) -> tuple[Typed, str | None]:
    """What the estimator looks at beside the group's rewards: other groups, or further reward functions."""
    alone = Typed([rewards])
    if ESTIMATORS[kind].reads == "batch":
        text = typed(
            "Other groups of the batch", "batch", opening.batch, help="Rewards, with a semicolon between two groups."
        )
        rows, wrong = last_good("batch", lambda: read_rows(text), list[list[float]])
        return alone._replace(batch=rows), wrong
    if ESTIMATORS[kind].reads == "components":
        of_functions, of_weights = st.columns([3, 2])
        with of_functions:
            more = typed("Further rewards", "further", opening.further, help=FURTHER)
        with of_weights:
            weights = typed("Weights", "weights", opening.weights, help="One for each reward function.")
        return last_good("parts", lambda: fitting([rewards, *read_rows(more)], read_rewards(weights)), lambda: alone)
    return alone, None


def _draw_picture(group: GroupScores, how: Estimator) -> None:
    with st.container(key=FIGURES):
        cells = st.columns(4, vertical_alignment="bottom")
        cells[0].metric(f"Mean ({mean_of(how)})", number(group.reward_mean))
        cells[1].metric(f"Std ({std_of(how)})", number(group.reward_std))
        advantages = [completion.advantage or 0.0 for completion in group.completions]
        cells[2].metric("Highest advantage", signed(max(advantages)))
        cells[3].metric("Lowest advantage", signed(min(advantages)))
    rewards = [completion.reward for completion in group.completions]
    with st.container(key="play-bars"):
        show(bars_figure(rewards, advantages, "completion"), key="play-bars-chart", about="The completions' advantages")
    lines = [formula(group, how)]
    if words_of(how).spell is not None:
        # with the best and the worst completion's numbers; the first one's where all are alike
        places = {mark: index for index, mark in extremes(group).items()} or {"each": 0}
        for mark, index in sorted(places.items()):
            lines.append(f"{mark:<6} {spell_advantage(group.completions[index], group, how)}")
    st.code("\n".join(lines), language=None, wrap_lines=True, height=118)


def _against_the_run(group: GroupScores, logged: Group) -> str:
    """Whether these are the advantages that the run trained with."""
    stored = [completion.advantage for completion in logged.completions if completion.advantage is not None]
    if len(stored) < len(logged.completions):
        return ":gray[The run did not train on this group.]"
    now = [completion.advantage or 0.0 for completion in group.completions]
    # Runs of earlier versions added up in another order, and a logged number has as many digits as the field shows.
    if len(now) == len(stored) and all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in zip(now, stored, strict=True)
    ):
        return "**These are the advantages that the run trained with.**"
    return f"What if: the run itself trained with {signed(min(stored))} … {signed(max(stored))}."


def group_in_a_line(group: GroupScores) -> str:
    """8 completions: 4 × 1, 4 × 0."""
    known = [completion.reward for completion in group.completions if completion.reward is not None]
    values = sorted(set(known), reverse=True)
    parts = (
        [f"{known.count(value)} × {exact(value)}" for value in values]
        if len(values) <= 4
        else [f"rewards from {exact(values[-1])} to {exact(values[0])}"]
    )
    if len(known) < len(group.completions):
        parts.append(f"{len(group.completions) - len(known)} unscored")
    return f"{counted(len(group.completions), 'completion')}: {', '.join(parts)}"


def reading(group: GroupScores, chosen: Estimator) -> str:
    """What this group does to the policy, in a sentence or two."""
    if group.state == "unscored" and (chosen.centred or not group.scored):
        return "Fewer than two completions have a score, so there is nothing to compare: every advantage is exactly 0."
    words = words_of(chosen)
    if group.state == "live":
        equal = "Make all rewards equal and the group is dead: every advantage is then exactly 0."
        return f"{words.live} {equal if chosen.centred else 'Equal rewards would not make this group dead.'}"
    if not chosen.centred:
        return f"**All alike, yet trained on:** all rewards are equal; {words.equal.format(mean=exact(group.reward_mean))}."
    return (
        "**A dead group.** All rewards are equal, so no completion is better than the mean: every advantage is exactly 0, "
        "whether all were right or all wrong. Only a KL penalty or an entropy bonus in the loss would still move the policy."
    )


def _draw_readings(rewards: Sequence[float | None], chosen: Advantage) -> None:
    """One row for each reading, the chosen one marked; whatever is chosen, all of them are there."""
    st.markdown(
        "**The same rewards, read in three ways**",
        help="GRPO's papers do not say which std they mean: both are options.",
    )
    typed = Typed([[math.nan if reward is None else reward for reward in rewards]])
    rows = ""
    for one, title, source in READINGS:
        group, taken = played(one, typed), (one.kind, std_of(one)) == (chosen.kind, std_of(chosen))
        mark = ' class="chosen"' if taken else ""
        std = MISSING if one.divides_by is None else short(group.reward_std)
        rows += (
            f"<tr{mark}><td>{title}<br><small>{source}</small></td>"
            f"<td>{short(group.reward_mean)}</td><td>{std}</td><td>{spread(group)}</td></tr>"
        )
    head = "<tr><th></th><th>mean</th><th>std</th><th>advantages</th></tr>"
    st.html(f'<table class="play-readings">{head}{rows}</table>')


def short(value: float | None) -> str:
    """0.53, 0.5, 1.0: two decimals without a padding 0, very large or small ones as usual."""
    if value is None or (value and not 0.01 <= abs(value) < 1000):
        return number(value)
    text = f"{abs(value):.2f}".rstrip("0")
    return ("−" if value < 0 else "") + (f"{text}0" if text.endswith(".") else text)


def spread(group: GroupScores) -> str:
    """±0.94 if highest and lowest mirror each other, otherwise both; for weights, from low to high."""
    advantages = [c.advantage for c in group.completions if c.reward is not None and c.advantage is not None]
    if not advantages:
        return MISSING
    low, high = min(advantages), max(advantages)
    if low >= 0 and high > 0:
        return f"{high:.3f}" if low == high else f"{high:.3f} / {low:.3f}"
    if math.isclose(high, -low):
        return f"±{short(high)}" if high else "0"
    return f"+{short(high)} / {short(low)}"
