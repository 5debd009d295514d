"""Why a completion has no token values, and what to change so that the next run has them."""

from collections.abc import Mapping

from backend.contract.base import Json
from backend.contract.groups import Group
from dashboard.components.stored import number_at, text_at
from dashboard.form.paths import get


def why_absent(config: Mapping[str, Json], group: Group) -> str:
    """The reason, from what the run was stored with, and the way out."""
    if group.state == "filtered":
        return "This group was sampled, found dead and replaced before the update, so it was never trained on token by token."
    if group.state == "probe":
        return "This group is of a probe prompt: it is sampled and scored, and never trained on token by token."
    if not isinstance(get(dict(config), "telemetry"), dict):
        return "A run of this kind keeps no token values: nothing is trained on its completions."
    kept = text_at(config, "telemetry.token_traces", "extremes")
    every = int(number_at(config, "telemetry.trace_every", 10))
    if kept == "none":
        return f"This run keeps no token values. {_WAY_OUT}"
    if kept == "periodic" and group.step % every:
        before = group.step - group.step % every
        return (
            f"This run keeps token values at every {every}th step, and this is step {group.step}: see step {before} or "
            f"{before + every}. {_WAY_OUT}"
        )
    traced = [str(completion.index + 1) for completion in group.completions if completion.has_trace]
    if kept == "extremes" and traced:
        return (
            f"This run keeps the token values of each group's best and worst completion, here {' and '.join(traced)}. "
            f"{_WAY_OUT}"
        )
    return (
        "The token values of this step were not kept: together they were larger than a report can carry, as the run's log "
        "says. Clone the run with Token traces set to extremes, or with smaller batches."
    )


_WAY_OUT = "To see every completion's, clone the run and set Token traces (under What to keep) to all."
