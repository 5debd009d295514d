"""The Playground's second part: how far one update may go, as functions of the ratio with a point that a person moves."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import streamlit as st

from backend.contract.inspection import GroupScores
from backend.contract.surrogate import Surrogate
from dashboard.algorithm.controls import surrogate_settings
from dashboard.algorithm.surrogates import SURROGATE, WORDS, Values, algorithm_of, free_range, pulls, token_losses
from dashboard.charts.palette import DISCOURAGED, NEUTRAL, REINFORCED
from dashboard.charts.playground import Curve, curves_figure
from dashboard.components.address import write
from dashboard.components.chart import show
from dashboard.components.synced import chosen, stepped
from dashboard.format import plain, signed
from dashboard.playground.opening import Opening
from dashboard.playground.style import draw_title
from dashboard.wording import in_words

NEW, OLD = 0.9, 0.5  # a ratio that is clipped
CASES = (NEW, 0.2, 0.7, OLD)  # its new probabilities, and none at all


POINTS = 251  # of a curve
_ONLY_THE_PULL = "The left curve is the number that the trainer computes; only log p in it has a gradient, so read the pull on the right."


class Traced(NamedTuple):
    """A function over the ratio, and its value at the point that a person moves."""

    x: Values
    y: Values
    at: float


def objective(surrogate: Surrogate, advantage: float, new: float, old: float) -> Traced:
    """What the trainer maximises for a token of this advantage: minus its loss."""

    def value(ratio_R: Values) -> Values:
        old_R = np.full_like(ratio_R, math.log(old))
        algorithm, advantage_R = algorithm_of(surrogate), np.full_like(ratio_R, advantage)
        return -token_losses(algorithm, np.log(ratio_R) + old_R, old_R, advantage_R)

    return _traced(value, surrogate, new, old)


def pull(surrogate: Surrogate, advantage: float, new: float, old: float) -> Traced:
    """The objective's slope in the token's log-probability: how hard, and which way, the gradient pulls."""

    def slope(ratio_R: Values) -> Values:
        return pulls(surrogate, ratio_R, np.full_like(ratio_R, advantage)).round(8)  # as many digits as it is good for

    return _traced(slope, surrogate, new, old)


def _traced(function: Callable[[Values], Values], surrogate: Surrogate, new: float, old: float) -> Traced:
    """Up to the ratio 2.5, or as far as the point; to 1 / old, where the probability is 1, if log p itself is drawn."""
    highest = max(2.5, 1.15 * new / old)
    if surrogate.constant_weight:
        highest = min(highest, 1 / old)
    x = np.linspace(0.02, highest, POINTS)
    return Traced(x, function(x), float(function(np.array([new / old]))[0]))


@dataclass(frozen=True)
class Point:
    """One token under the surrogate: its probability under the new and the old policy, and the best completion's A."""

    surrogate: Surrogate
    new: float
    old: float
    advantage: float


def draw_surrogate(opening: Opening, group: GroupScores) -> Point:
    """The part with its controls; returns where the point stands."""
    draw_title(
        "2 · From advantages to an update",
        "How far may a token move, in the best completion and in the worst? Its ratio is its new probability over its old one.",
    )
    controls, picture = st.columns([1.05, 3.35], gap="medium")
    with controls:
        surrogate, new, old = _controls(opening)
    scored = [completion.advantage or 0.0 for completion in group.completions if completion.reward is not None]
    highest, lowest = max(scored, default=0.0), min(scored, default=0.0)
    ends = [("all", highest)] if highest == lowest else [("best", highest), ("worst", lowest)]
    objectives = [(name, advantage, objective(surrogate, advantage, new, old)) for name, advantage in ends]
    pulled = [(name, advantage, pull(surrogate, advantage, new, old)) for name, advantage in ends]
    with picture:
        left, right = st.columns(2, gap="medium")
        with left:
            st.markdown(ratio_in_a_line(surrogate, new, old))
            _draw(
                objectives, surrogate, new / old, "objective", "The objective of the update, as a function of the ratio"
            )
        with right:
            st.markdown(_pulls_in_words(pulled))
            _draw(pulled, surrogate, new / old, "pull on log p", "The slope in log p: how hard the token is pulled")
        only = f" {_ONLY_THE_PULL}" if surrogate.constant_weight else ""
        st.caption(_on_policy(group) if new == old else f"{WORDS[surrogate.kind].sentence}{only}")
    return Point(surrogate, new, old, highest)


def _controls(opening: Opening) -> tuple[Surrogate, float, float]:
    of_new, of_old = st.columns(2)
    with of_new:
        new = probability("New probability", "new", NEW, help="Of one token, under the policy that is being trained.")
    with of_old:
        old = probability("Old probability", "old", OLD, help="Of the same token, under the policy that sampled it.")
    with st.container(horizontal=True, gap="xxsmall", key="play-cases"):
        for case in CASES:
            change = {"new": None if case == NEW else str(case), "old": None}
            st.button(f"{case:g} / {OLD:g}", type="tertiary", on_click=write, kwargs=change, key=f"play-case-{case}")
    kind = chosen(
        "Surrogate",
        "surrogate",
        opening.surrogate.kind,
        tuple(WORDS),
        words=in_words,
        help="The objective of each token.",
    )
    defaults = opening.surrogate if kind == opening.surrogate.kind else SURROGATE.validate_python({"kind": kind})
    names = tuple(WORDS[kind].labels)
    across = 3 if len(names) == 3 else 2
    cells = [cell for _ in range(0, len(names), across) for cell in st.columns(across)]
    surrogate, wrong = surrogate_settings(defaults, names, cells)
    if wrong is not None:
        st.markdown(f":red[{plain(wrong)}]")
    return surrogate, new, old


def probability(label: str, name: str, default: float, *, help: str) -> float:
    """A token's probability, which moves the point."""
    return stepped(label, name, default, low=0.001, high=1.0, step=0.05, help=help)


def _draw(
    traced: list[tuple[str, float, Traced]], surrogate: Surrogate, ratio: float, y_title: str, about: str
) -> None:
    colours = {1: REINFORCED, 0: NEUTRAL, -1: DISCOURAGED}
    curves = [
        Curve(name, colours[int(np.sign(advantage))], each.x, each.y, each.at, dashed=name == "worst")
        for name, advantage, each in traced
    ]
    figure = curves_figure(
        curves, ratio, x_title="ratio new / old", y_title=y_title, equal=1.0, band=free_range(surrogate)
    )
    with st.container(key=f"play-{y_title.split()[0]}"):
        show(figure, key=f"play-{y_title.split()[0]}-chart", about=about)
    named = ", ".join(f"{name} {signed(advantage)}" for name, advantage, _ in traced)
    st.caption(f"{about}. Advantage A: {named}.")


def ratio_in_a_line(surrogate: Surrogate, new: float, old: float) -> str:
    """0.9 / 0.5 = 1.8 → clipped to 1.2."""
    ratio = new / old
    start = f"ratio = {new:g} / {old:g} = **{ratio:.4g}**"
    free = free_range(surrogate)
    if free is None:
        return start
    clipped = min(max(ratio, free[0]), free[1])
    return f"{start} → {'clipped to' if clipped != ratio else 'within the range, stays'} **{clipped:.4g}**"


def _pulls_in_words(pulls: Sequence[tuple[str, float, Traced]]) -> str:
    """Whether the gradient still pulls at the point, for each advantage that is drawn."""
    parts = []
    for name, advantage, traced in pulls:
        if advantage == 0:
            parts.append(f"{name}: no pull, A is 0")
        elif abs(traced.at) < 1e-9:
            parts.append(f"{name}: **no pull**, the gradient is cut off")
        else:
            parts.append(f"{name}: pulled **{'up' if traced.at > 0 else 'down'}**, slope in log p {signed(traced.at)}")
    return " · ".join(parts)


def _on_policy(group: GroupScores) -> str:
    """Why the loss of a first update reads 0."""
    start = "Old = new: in the first update on a batch the ratio is exactly 1 and nothing is clipped."
    advantages = [completion.advantage or 0.0 for completion in group.completions]
    if any(advantages) and abs(sum(advantages)) < 1e-6:
        return f"{start} The advantages add up to 0, so **the loss reads 0, yet each token is pulled by its A**: nothing is broken."
    return start
