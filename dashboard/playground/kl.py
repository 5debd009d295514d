"""The Playground's third part: the three estimators of the KL to the reference, and what the penalty costs the token."""

import math
from typing import get_args

import numpy as np
import streamlit as st

from backend.contract.algorithm import Kl, KlEstimator
from dashboard.algorithm.controls import KL, read_settings
from dashboard.algorithm.rewards import exact
from dashboard.algorithm.surrogates import algorithm_of, token_losses
from dashboard.charts.palette import CATEGORICAL
from dashboard.charts.playground import Curve, curves_figure
from dashboard.components.chart import show
from dashboard.components.synced import chosen, last_good, typed
from dashboard.format import plain, signed
from dashboard.playground.opening import Opening
from dashboard.playground.style import draw_title
from dashboard.playground.surrogate import OLD, POINTS, Point, Traced, probability
from dashboard.wording import show_number
from worker.algorithms.objective import kl_per_token

KL_ESTIMATORS: tuple[KlEstimator, ...] = get_args(KlEstimator)
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
        "3 · The KL penalty",
        "How far is the policy from the reference? lp is the token's log-probability under the policy, ref the one under the reference.",
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
        # the loss of the best completion's token, added up by the trainer's own objective
        new, old, advantage = np.log([point.new]), np.log([point.old]), np.array([point.advantage])
        in_loss = algorithm_of(point.surrogate, Kl(beta=kl.beta, estimator=kl.estimator))
        without = float(token_losses(algorithm_of(point.surrogate), new, old, advantage)[0])
        whole = float(token_losses(in_loss, new, old, advantage, reference=math.log(reference))[0])
        st.markdown(
            f"Loss of the best completion's token: {exact(without + 0.0)} + {exact(kl.beta)} × {kl.estimator} = **{exact(whole)}**. "
            "The penalty counts for every token, whatever its advantage."
        )


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


def kl_curve(estimator: KlEstimator, new: float, reference: float) -> Traced:
    """An estimator of the KL over log p − log p_ref, in nats."""
    at = math.log(new / reference)
    x = np.linspace(min(-2.0, 1.1 * at), max(2.5, 1.1 * at), POINTS)
    return Traced(
        x,
        np.asarray(kl_per_token(x, np.zeros_like(x), estimator=estimator)),
        float(kl_per_token(np.array([at]), np.zeros(1), estimator=estimator)[0]),
    )
