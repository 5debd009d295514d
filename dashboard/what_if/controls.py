"""The row of controls: each starts at the run's own value, and stands in the address once it is moved."""

from collections.abc import Mapping
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from backend.contract.advantage import ESTIMATORS
from backend.contract.reward import Rewards
from dashboard.algorithm.controls import (
    FROM_REWARDS,
    KL,
    choose_estimator,
    estimator_settings,
    read_settings,
    surrogate_settings,
)
from dashboard.algorithm.recomputation import Own, Settings
from dashboard.algorithm.surrogates import WORDS
from dashboard.components.address import names, read, write
from dashboard.components.synced import chosen, last_good, stepped, typed
from dashboard.format import plain
from dashboard.wording import show_number

PREFIX = "wi_"  # of every name in the address
OPEN, TOKENS = f"{PREFIX}open", f"{PREFIX}tokens"  # what is looked at, not what is changed
GATED, SUMMED = "with gates", "plain sum"
ESTIMATOR = "How a reward becomes an advantage."
_CRITIC = " The run's own estimator, GAE, needs the critic's value of each token: its advantages are only shown."


def draw_controls(own: Own) -> Settings:
    """The settings that are chosen. What cannot be read is named, and the last that could be read holds."""
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="what-if-controls")
    with row:
        advantage, wrong_estimator = own.settings.advantage, None
        with row.container(width=170):
            kind = choose_estimator(
                advantage,
                prefix=PREFIX,
                options=(advantage.kind, *FROM_REWARDS) if own.from_critic else FROM_REWARDS,
                help=ESTIMATOR + (_CRITIC if own.from_critic else ""),
            )
        if ESTIMATORS[kind].reads != "tokens":
            places = row.container(width=190), row.container(width=90), row.container(width=90)
            advantage, wrong_estimator = estimator_settings(kind, advantage, *places, prefix=PREFIX)
        rewards = None if own.rewards is None else _rewards(own.rewards, row)
        kind_of = own.settings.surrogate.kind
        cut = WORDS[kind_of].range if own.surrogate_known and kind_of in WORDS else ()
        cells = [row.container(width=80) for _ in cut]
        surrogate, wrong_surrogate = surrogate_settings(own.settings.surrogate, cut, cells, prefix=PREFIX)
        beta, wrong_beta = _beta(own, row)
        st.button(
            "Run's settings",
            icon=":material/restart_alt:",
            key="what-if-reset",
            disabled=not changes_in_address(),
            on_click=lambda: write(**dict.fromkeys(changes_in_address())),
        )
    for message in (wrong_estimator, wrong_surrogate, wrong_beta):
        if message is not None:
            st.markdown(f":red[{plain(message)}] The last valid input is shown.")
    return replace(own.settings, advantage=advantage, rewards=rewards, surrogate=surrogate, beta=beta)


def changes_in_address() -> Mapping[str, str]:
    """The values that stand in the address because they are not the run's own."""
    return {name: read(name) for name in names() if name.startswith(PREFIX) and name not in (OPEN, TOKENS)}


def _rewards(own: Rewards, row: DeltaGenerator) -> Rewards:
    """The same functions with other weights, and with or without the gates between them."""
    functions = []
    for function in own.functions:
        with row.container(width=130):
            weight = stepped(
                f"{plain(function.name)} ×",
                f"{PREFIX}w_{function.name}",
                function.weight,
                low=min(-1000.0, function.weight),
                high=max(1000.0, function.weight),
                step=0.1,
                help=f"Weight of this reward; the run's own is {show_number(function.weight)}. 0 leaves it out.",
            )
        functions.append(function.model_copy(update={"weight": weight}))
    gates = own.gates
    if gates:
        about = "Whether gates apply: a gated reward counts only if the reward that it requires is high enough."
        with row.container(width=200):
            combined = chosen("Combine", f"{PREFIX}combine", GATED, (GATED, SUMMED), words=str, help=about)
        gates = gates if combined == GATED else []
    return own.model_copy(update={"functions": functions, "gates": gates})


def _beta(own: Own, row: DeltaGenerator) -> tuple[float, str | None]:
    """β, where a KL was measured that it could weigh."""
    beta = own.settings.beta
    if not own.measured:
        return beta, None
    with row.container(width=80):
        about = "Weight of the KL penalty."
        if own.penalised:
            about = "Weight of the KL penalty, which this run subtracted from the reward."
        text = typed("β", f"{PREFIX}beta", show_number(beta), help=about)
    kl, wrong = last_good(f"{PREFIX}beta", lambda: read_settings(KL, {"beta": text}), lambda: own.algorithm.kl)
    return kl.beta, wrong
