"""The Playground's second part: how far one update may go, as functions of the ratio with a point that a person moves."""

from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from backend.contract.groups import Group
from backend.contract.surrogate import Cispo, Clip, Surrogate
from dashboard.algorithm.controls import SURROGATE, read_settings
from dashboard.charts.palette import DISCOURAGED, NEUTRAL, REINFORCED
from dashboard.charts.playground import Curve, curves_figure
from dashboard.components.address import write
from dashboard.components.address_controls import chosen, last_good, stepped, typed
from dashboard.components.chart import show
from dashboard.form.widgets import in_words
from dashboard.form.written import show_number
from dashboard.format import plain, signed
from dashboard.playground.curves import CONSTANT_WEIGHT, Traced, objective, pull
from dashboard.playground.opening import SURROGATES, Opening
from dashboard.playground.style import draw_title
from dashboard.playground.words import CONSTANT_WEIGHT as ONLY_THE_PULL
from dashboard.playground.words import SURROGATES as IN_WORDS
from dashboard.playground.words import on_policy, pull_in_words, ratio_in_a_line

LABELS = {
    "epsilon_low": "ε low",
    "epsilon_high": "ε high",
    "delta": "δ",
    "cap": "cap",
    "tau_positive": "τ, A > 0",
    "tau_negative": "τ, else",
    "k_positive": "k, A ≥ 0",
    "lambda_positive": "λ, A ≥ 0",
    "k_negative": "k, A < 0",
    "lambda_negative": "λ, A < 0",
}
NEW, OLD = 0.9, 0.5  # a ratio that is clipped
CASES = (NEW, 0.2, 0.7, OLD)  # its new probabilities, and none at all


@dataclass(frozen=True)
class Point:
    """One token under the surrogate: its probability under the new and the old policy, and the best completion's A."""

    surrogate: Surrogate
    new: float
    old: float
    advantage: float


def draw_surrogate(opening: Opening, group: Group) -> Point:
    """The part with its controls; returns where the point stands."""
    draw_title(
        "2 · From advantages to an update",
        "How far may a token of the best and of the worst completion move? Its ratio is its new probability over its old one.",
    )
    controls, picture = st.columns([1.05, 3.35], gap="medium")
    with controls:
        surrogate, new, old = _controls(opening)
    ends = _ends(group)
    objectives = [(name, advantage, objective(surrogate, advantage, new, old)) for name, advantage in ends]
    pulls = [(name, advantage, pull(surrogate, advantage, new, old)) for name, advantage in ends]
    with picture:
        left, right = st.columns(2, gap="medium")
        with left:
            st.markdown(ratio_in_a_line(surrogate, new, old))
            _draw(objectives, surrogate, new / old, "objective", "What is maximised for the token, over its ratio")
        with right:
            st.markdown(pull_in_words(pulls))
            _draw(pulls, surrogate, new / old, "pull on log p", "The objective's slope: how hard the token is pulled")
        words = [IN_WORDS[surrogate.kind], ONLY_THE_PULL if surrogate.kind in CONSTANT_WEIGHT else ""]
        st.caption(on_policy(group) if new == old else " ".join(words))
    return Point(surrogate, new, old, ends[0][1])


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
        SURROGATES,
        words=in_words,
        help="What is maximised for each token.",
    )
    surrogate, wrong = _settings(kind, opening)
    if wrong is not None:
        st.markdown(f":red[{plain(wrong)}]")
    return surrogate, new, old


def probability(label: str, name: str, default: float, *, help: str) -> float:
    """A token's probability, which moves the point."""
    return stepped(label, name, default, low=0.001, high=1.0, step=0.05, help=help)


def _settings(kind: str, opening: Opening) -> tuple[Surrogate, str | None]:
    """The surrogate with its own settings; where the run's is chosen, they start as the run had them."""
    defaults = opening.surrogate if kind == opening.surrogate.kind else SURROGATE.validate_python({"kind": kind})
    fields = {name: field for name, field in type(defaults).model_fields.items() if name != "kind"}
    settings = {"kind": kind}
    cells: list[DeltaGenerator] = []
    across = 3 if len(fields) == 3 else 2
    for place, (name, field) in enumerate(fields.items()):
        if place % across == 0:
            cells += st.columns(across)
        with cells[place]:
            written = show_number(getattr(defaults, name))
            about = plain(field.description or "")
            settings[name] = typed(LABELS[name], name, written, help=about, placeholder="none")
    return last_good(f"surrogate-{kind}", lambda: read_settings(SURROGATE, settings), lambda: defaults)


def _ends(group: Group) -> list[tuple[str, float]]:
    """The best and the worst completion's advantage; one line where they do not differ."""
    advantages = [completion.advantage or 0.0 for completion in group.completions if completion.reward is not None]
    highest, lowest = max(advantages, default=0.0), min(advantages, default=0.0)
    return [("all", highest)] if highest == lowest else [("best", highest), ("worst", lowest)]


def _draw(
    traced: list[tuple[str, float, Traced]], surrogate: Surrogate, ratio: float, y_title: str, about: str
) -> None:
    curves = [
        Curve(name, _colour(advantage), each.x, each.y, each.at, dashed=name == "worst")
        for name, advantage, each in traced
    ]
    figure = curves_figure(curves, ratio, x_title="ratio new / old", y_title=y_title, equal=1.0, band=_band(surrogate))
    with st.container(key=f"play-{y_title.split()[0]}"):
        show(figure, key=f"play-{y_title.split()[0]}-chart", about=about)
    named = ", ".join(f"{name} {signed(advantage)}" for name, advantage, _ in traced)
    st.caption(f"{about}. Advantage A: {named}.")


def _colour(advantage: float) -> str:
    return REINFORCED if advantage > 0 else DISCOURAGED if advantage < 0 else NEUTRAL


def _band(surrogate: Surrogate) -> tuple[float, float] | None:
    """Where nothing is clipped."""
    if isinstance(surrogate, Clip):
        return 1 - surrogate.epsilon_low, 1 + surrogate.epsilon_high
    return (0.0, surrogate.cap) if isinstance(surrogate, Cispo) else None
