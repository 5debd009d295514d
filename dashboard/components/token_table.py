"""The tokens of one completion, where their trace was kept."""

import pandas as pd
import streamlit as st

from backend.contract.groups import TokenTrace
from dashboard.components.model_text import marked
from dashboard.format import MISSING
from dashboard.session import client, guard

COLUMNS = {
    "advantage": ("advantage", "Of this token, by GAE."),
    "value": ("value", "The reward that the critic expected before the token."),
    "returns": ("return", "What the critic should have expected, by GAE."),
    "ratio": ("ratio", "New over old probability."),
    "clipped": ("clipped", "Whether the ratio was outside the clip range, against the advantage."),
    "kl": ("KL", "To the reference, in nats."),
    "entropy": ("entropy", "Of the distribution that the token was drawn from, in nats."),
    "sampling_logprob": ("sampled", "Log-prob under the sampler."),
    "old_logprob": ("old", "Log-prob before the update: what the ratio divides by."),
    "logprob": ("new", "Log-prob at the last update on this batch."),
    "logprob_after": ("after", "Log-prob after the update."),
    "reference_logprob": ("reference", "Log-prob under the reference policy."),
}
DECIMALS = 4
FROM_A_CRITIC = "advantage"  # without one it is the completion's, and stands above


@st.fragment
def draw_tokens(completion_id: int) -> None:
    """A folded table; the trace is fetched when it is opened."""
    folded = st.expander("Tokens", key=f"tokens-{completion_id}", on_change="rerun")
    if not folded.open:
        return
    with folded:
        with guard():
            trace = client().tokens(completion_id)
        st.dataframe(
            token_table(trace),
            key=f"token-table-{completion_id}",
            hide_index=True,
            placeholder=MISSING,
            column_config={
                "position": st.column_config.NumberColumn("#", width=45),
                "token": st.column_config.TextColumn("token", width="small"),
                **{
                    title: st.column_config.NumberColumn(title, help=help, format=f"%.{DECIMALS}f")
                    for title, help in COLUMNS.values()
                    if title != "clipped"
                },
            },
        )


def token_table(trace: TokenTrace) -> pd.DataFrame:
    """One row for each token, one column for each value that was computed."""
    columns: dict[str, list[object]] = {
        "position": list(range(1, len(trace.token_ids) + 1)),
        "token": [marked(text).strip("\n") for text in trace.texts],
    }
    for field, (title, _) in COLUMNS.items():
        values = getattr(trace, field)
        if values is not None and (field != FROM_A_CRITIC or trace.value is not None):
            columns[title] = list(values) if field == "clipped" else [_rounded(value) for value in values]
    return pd.DataFrame(columns | {"id": list(trace.token_ids)})


def _rounded(value: float | None) -> float | None:
    """As it is shown, and never −0: nearly certain tokens have log-probs just below 0."""
    return None if value is None else round(value, DECIMALS) + 0.0
