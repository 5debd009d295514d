"""The Playground's third part: the three estimators of the KL to the reference, and what the penalty costs the token."""

import numpy as np
import streamlit as st

from backend.contract.algorithm import Kl
from dashboard.algorithm.controls import KL, read_settings
from dashboard.algorithm.rewards import exact
from dashboard.charts.palette import CATEGORICAL
from dashboard.charts.playground import Curve, curves_figure
from dashboard.components.address_controls import chosen, last_good, typed
from dashboard.components.chart import show
from dashboard.form.written import show_number
from dashboard.format import plain, signed
from dashboard.playground.curves import KL_ESTIMATORS, algorithm_of, kl_curve, one_token
from dashboard.playground.opening import Opening
from dashboard.playground.style import draw_title
from dashboard.playground.surrogate import OLD, Point, probability

COLOURS = dict(zip(KL_ESTIMATORS, (CATEGORICAL[4], CATEGORICAL[6], CATEGORICAL[0]), strict=True))
FORMULAS = {
    "k1": "lp − ref: right on average, of either sign for one token.",
    "k2": "½ (lp − ref)²: never negative, and grows on both sides.",
    "k3": "exp(ref − lp) − (ref − lp) − 1: right on average and never negative; GRPO's own (DeepSeekMath). Flat at 0, so a policy "
    "at the reference feels no pull.",
}


def draw_kl(opening: Opening, point: Point) -> None:
    """The part with its controls."""
    draw_title(
        "3 · The leash",
        "How far is the policy from the reference? lp and ref are the token's log-probabilities under the one and the other.",
    )
    controls, picture, words = st.columns([1.05, 2, 1.35], gap="medium")
    with controls:
        reference, kl = _controls(opening)
    log_ratio = float(np.log(point.new / reference))
    traced = {name: kl_curve(name, point.new, reference) for name in KL_ESTIMATORS}
    with picture:
        curves = [
            Curve(name, COLOURS[name], each.x, each.y, each.at, strong=name == kl.estimator)
            for name, each in traced.items()
        ]
        figure = curves_figure(
            curves, log_ratio, x_title="lp − ref, the log of new / reference", y_title="estimated KL", equal=0.0
        )
        show(figure, key="play-kl-curves", about="The three estimators of the KL over the log-ratio")
    with words:
        st.markdown(f"lp − ref = ln({point.new:g} / {reference:g}) = **{signed(log_ratio)}**")
        estimates = {name: f"{name} = {signed(each.at)}" for name, each in traced.items()}
        estimates[kl.estimator] = f"**{estimates[kl.estimator]}**"
        st.markdown("  \n".join(estimates.values()))
        st.caption(FORMULAS[kl.estimator])
        st.markdown(_whole(point, kl, reference))


def _controls(opening: Opening) -> tuple[float, Kl]:
    reference = probability(
        "Reference probability",
        "reference",
        OLD,
        help="Of the same token, under the reference: the weights at the start, or those of the old policy.",
    )
    about = "How the KL is estimated from the sampled token alone."
    kind = chosen("KL estimator", "kl", opening.kl.estimator, KL_ESTIMATORS, words=str, help=about)
    about = "Weight of the penalty: 0.04 in DeepSeekMath, 0 in TRL."
    beta = typed("β", "beta", show_number(opening.kl.beta), help=about)
    kl, wrong = last_good("kl", lambda: read_settings(KL, {"estimator": kind, "beta": beta}), lambda: opening.kl)
    if wrong is not None:
        st.markdown(f":red[{plain(wrong)}]")
    return reference, kl


def _whole(point: Point, kl: Kl, reference: float) -> str:
    """The loss of the best completion's token, added up by the trainer's own objective."""
    new = np.array([point.new])
    without = float(one_token(algorithm_of(point.surrogate), new, point.old, point.advantage).loss_R_T[0, 0])
    in_loss = Kl(beta=kl.beta, estimator=kl.estimator)
    whole = float(
        one_token(algorithm_of(point.surrogate, in_loss), new, point.old, point.advantage, reference).loss_R_T[0, 0]
    )
    return (
        f"Loss of the best completion's token: {exact(without + 0.0)} + {exact(kl.beta)} × {kl.estimator} = **{exact(whole)}**. "
        "The penalty is taken on every token, whatever its advantage."
    )
