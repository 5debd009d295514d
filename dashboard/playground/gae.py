"""The Playground's last part: PPO's advantages, one for each token, from rewards and values."""

import math
from typing import NamedTuple

import numpy as np
import streamlit as st

from dashboard.algorithm.rewards import exact
from dashboard.charts.playground import bars_figure
from dashboard.components.chart import show
from dashboard.components.synced import last_good, stepped, typed
from dashboard.format import plain
from dashboard.playground.rewards import read_rewards
from dashboard.playground.style import draw_title
from worker.algorithms.gae import gae

REWARDS, VALUES = "0, 0, 0, 0, 1", "0.5, 0.9, 0.3, 0.4, 0.8"
MOST = 32


class Tokens(NamedTuple):
    """One completion's tokens."""

    rewards: list[float]
    values: list[float]


def draw_gae() -> None:
    """The part with its controls, of PPO's advantages: nothing above changes it."""
    draw_title(
        "4 · An advantage for each token (PPO)",
        "Generalised advantage estimation (GAE) compares what comes after a token with what a value head expects there.",
    )
    controls, picture, words = st.columns([1.05, 2, 1.35], gap="medium")
    with controls:
        tokens, gamma, lam = _controls()
    advantages, returns = _gae(tokens, gamma, lam)
    with picture:
        figure = bars_figure(tokens.rewards, advantages, "token", height=190)
        show(figure, key="play-gae-bars", about="The advantage of each token")
        delta, _ = _gae(tokens, gamma, 0.0)
        _draw_table(
            {"reward": tokens.rewards, "value V": tokens.values, "δ": delta, "A": advantages, "return": returns}
        )
    with words:
        st.markdown(
            f"δₜ = rₜ + γ Vₜ₊₁ − Vₜ  \nAₜ = δₜ + γλ Aₜ₊₁, with γλ = {exact(gamma * lam)}  \n"
            "return = Aₜ + Vₜ, what the value head should have said"
        )
        st.markdown(_meaning(lam))
        st.caption(
            "PPO's estimate (arXiv:1506.02438). GRPO leaves the value head out: its group is the baseline, and every token of a completion gets "
            "the same advantage."
        )


def _controls() -> tuple[Tokens, float, float]:
    about = "A language model gets its reward at the last token."
    rewards = typed("Reward of each token", "token_rewards", REWARDS, help=about)
    about = "What the value head expects to get from there on. It is 0 after the end."
    values = typed("Value of each token", "values", VALUES, help=about)
    of_gamma, of_lam = st.columns(2)
    with of_gamma:
        about = "Discount of the next token's value."
        gamma = stepped("γ", "gamma", 1.0, low=0.0, high=1.0, step=0.05, help=about)
    with of_lam:
        about = "0 is the one-step TD error, 1 is Monte Carlo."
        lam = stepped("λ", "lam", 0.95, low=0.0, high=1.0, step=0.05, help=about)
    tokens, wrong = last_good("tokens", lambda: _read(rewards, values), lambda: _read(REWARDS, VALUES))
    if wrong is not None:
        st.markdown(f":red[{plain(wrong)}]")
    return tokens, gamma, lam


def _draw_table(rows: dict[str, list[float]]) -> None:
    """A row for each quantity, a column for each token."""
    head = "".join(f"<th>{place}</th>" for place in range(1, len(rows["A"]) + 1))
    cells = {name: "".join(f"<td>{exact(round(value, 9))}</td>" for value in values) for name, values in rows.items()}
    body = "".join(f"<tr><td>{name}</td>{each}</tr>" for name, each in cells.items())
    st.html(f'<table class="play-tokens"><tr><th>token</th>{head}</tr>{body}</table>')


def _meaning(lam: float) -> str:
    if lam == 0:
        return "**λ = 0 is TD:** each A is its δ alone. It has little noise, but is as wrong as the values are."
    if lam == 1:
        return "**λ = 1 is Monte Carlo:** each A is the reward that really came, minus the value. It is right on average, but noisy."
    return "This λ lies between 0 (TD: little noise, but as wrong as the values) and 1 (Monte Carlo: right on average, but noisy)."


def _read(rewards: str, values: str) -> Tokens:
    tokens = Tokens(read_rewards(rewards, most=MOST), read_rewards(values, most=MOST))
    if len(tokens.rewards) != len(tokens.values):
        raise ValueError(
            f"{len(tokens.rewards)} rewards and {len(tokens.values)} values: each token needs one reward and one value."
        )
    if any(math.isnan(number) for number in (*tokens.rewards, *tokens.values)):
        raise ValueError("A token's reward and value are numbers; write 0 if there is none.")
    return tokens


def _gae(tokens: Tokens, gamma: float, lam: float) -> tuple[list[float], list[float]]:
    rewards_R_T, values_R_T = np.array([tokens.rewards]), np.array([tokens.values])
    advantages_R_T, returns_R_T = gae(rewards_R_T, values_R_T, np.ones_like(rewards_R_T), gamma=gamma, lam=lam)
    return advantages_R_T[0].tolist(), returns_R_T[0].tolist()
