"""What a sweep would cost and which of its variants cannot run, as preflight says."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from backend.contract.base import Json
from backend.contract.common_ground import seeded
from backend.contract.preflight import Preflight
from dashboard.format import counted
from dashboard.session import client
from dashboard.sweep.variant import Variant

KEPT = 1000  # answers, so that a field that changes in a large sweep asks for what is new only


@dataclass(frozen=True)
class Checked:
    """A variant, the seconds that a run of it takes where a similar step was measured, and what is wrong with it."""

    variant: Variant
    seconds: float | None
    with_evaluations: bool  # whether the seconds have them, too
    wrong: Sequence[str]


def check(variants: Sequence[Variant]) -> list[Checked]:
    """Each variant as the backend would run it. Raises ApiError and Unreachable."""
    with st.spinner(f"Checking {counted(len(variants), 'configuration')}"):
        return [_checked(one, _ask(json.dumps(seeded(one.config, 0), sort_keys=True))) for one in variants]


def seconds_of(found: Sequence[Checked], seeds: int) -> float | None:
    """Of all runs together; a variant that was never measured is taken to be as long as the others. None where none was."""
    known = [one.seconds for one in found if one.seconds is not None]
    return sum(known) / len(known) * len(found) * seeds if known else None


def wrong_of(found: Sequence[Checked]) -> list[str]:
    """What is wrong, each thing once, with the variants that it is wrong with."""
    named: dict[str, list[str]] = {}
    for one in found:
        for text in one.wrong:
            named.setdefault(text, []).append(one.variant.name)
    return [f"{names[0]}{_others(len(names) - 1)}: {text}" for text, names in named.items()]


def _others(count: int) -> str:
    return f" and {counted(count, 'other')}" if count else ""


def _checked(variant: Variant, found: Preflight) -> Checked:
    wrong = [f"{one.field or ''} {one.text}".strip() for one in found.messages if one.level == "error"]
    time = found.time if found.time and found.time.measured else None
    return Checked(variant, time.total_seconds if time else None, time is None or time.with_evaluations, wrong)


@st.cache_data(ttl=60, max_entries=KEPT, show_spinner=False)
def _ask(config: str) -> Preflight:
    """What a run would do; the configuration as JSON."""
    value: dict[str, Json] = json.loads(config)
    return client().preflight(value)
