"""Beside what varies: seeds, how many runs, how long, what is wrong, and the button that queues all of it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid4, uuid5

import streamlit as st

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.common_ground import over_seeds, seeded
from backend.contract.preflight import Preflight
from dashboard.comparison.selection import runs_and_time
from dashboard.components.synced import whole_number
from dashboard.format import count, counted, plain
from dashboard.leaving import go
from dashboard.session import client, queued
from dashboard.sweep.fields import Plan, Variant

MOST_SEEDS = 10


def read_seeds(text: str) -> list[int]:
    """1, 2 7 as numbers; none unless it is a list of at most ten different seeds."""
    parts = [part for part in re.split(r"[,\s]+", text) if part]
    if not all(part.isascii() and part.isdigit() and int(part) < 2**31 for part in parts):
        return []
    seeds = list(dict.fromkeys(int(part) for part in parts))
    return seeds if len(seeds) <= MOST_SEEDS else []


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
    checked = []
    with st.spinner(f"Checking {counted(len(variants), 'configuration')}"):
        for variant in variants:
            found = _ask(json.dumps(seeded(variant.config, 0), sort_keys=True))
            wrong = [f"{one.field or ''} {one.text}".strip() for one in found.messages if one.level == "error"]
            time = found.time if found.time and found.time.measured else None
            whole = time is None or time.with_evaluations
            checked.append(Checked(variant, time.total_seconds if time else None, whole, wrong))
    return checked


def wrong_of(found: Sequence[Checked]) -> list[str]:
    """What is wrong, each thing once, with the variants that it is wrong with."""
    named: dict[str, list[str]] = {}
    for one in found:
        for text in one.wrong:
            named.setdefault(text, []).append(one.variant.name)
    return [f"{names[0]}{_others(len(names) - 1)}: {text}" for text, names in named.items()]


def _others(count: int) -> str:
    return f" and {counted(count, 'other')}" if count else ""


@st.cache_data(ttl=60, max_entries=KEPT, show_spinner=False)
def _ask(config: str) -> Preflight:
    """What a run would do; the configuration as JSON."""
    value: dict[str, Json] = json.loads(config)
    return client().preflight(value)


MOST_RUNS = 200
SHOWN = 5  # of what is wrong
_FORM_ID = "sweep-form"


def show_queue(plan: Plan) -> tuple[Sequence[Variant], Sequence[int]]:
    """Name, seeds, what it comes to, and the button; when it cannot be pressed, the reason. Returns what would be queued."""
    name = st.text_input("Name", max_chars=200, key="sweep-name", placeholder="optional")
    many, named = st.columns(2)
    number = whole_number("Number of seeds", 1, MOST_SEEDS, 3, place=many, key="seeds")
    listed = named.text_input("or a list of seeds", key="seed-list", bind="query-params", placeholder="0, 1, 2")
    seeds = read_seeds(listed) if listed.strip() else list(range(number))
    problems = list(plan.problems) or _miscounted(plan, seeds)
    kept: Sequence[Checked] = ()
    if not problems:
        kept, problems = _show_checked(plan, len(seeds))
    variants = [one.variant for one in kept]
    ready = bool(variants) and not problems
    label = f"Queue {counted(len(variants) * len(seeds), 'run')}" if variants else "Queue runs"
    if st.button(label, type="primary", icon=":material/play_arrow:", width="stretch", disabled=not ready):
        queue(
            name.strip() or plan.title[:200], over_seeds([(one.name, one.config) for one in variants], seeds), plan.view
        )
    for problem in problems[:SHOWN]:
        st.markdown(f":small[:red[{plain(problem)}]]")
    if len(problems) > SHOWN:
        st.markdown(f":small[:red[and {counted(len(problems) - SHOWN, 'more thing')} to correct]]")
    return variants, seeds


def queue(name: str, runs: list[dict[str, Json]], view: str | None) -> None:
    """Queue all of it and go to the comparison; a refusal leaves the form as it is."""
    form: str = st.session_state.setdefault(_FORM_ID, uuid4().hex)
    key = str(uuid5(NAMESPACE_URL, json.dumps([form, name, runs], sort_keys=True)))
    away = "The backend does not answer. Press again once it is up: it makes one sweep, not two."
    sweep = queued(lambda: client().create_sweep(name, runs, idempotency_key=key), away)
    if sweep is not None:
        del st.session_state[_FORM_ID]
        go("compare", sweep=sweep.id, view=view)


def _show_checked(plan: Plan, seeds: int) -> tuple[Sequence[Checked], list[str]]:
    """What the runs come to. Those that can run, where the others may be left out; what still has to be corrected."""
    try:
        found = check(plan.variants)
    except ApiError as refusal:
        return (), [refusal.message]
    except Unreachable:
        return (), ["The backend does not answer; what you chose stays."]
    good = [one for one in found if not one.wrong]
    bad = len(found) - len(good)
    left_out = bool(bad and good) and st.toggle(
        f"Leave out the {counted(bad, plan.noun)} that cannot run", key="leave-out", bind="query-params"
    )
    kept = good if left_out else found
    st.markdown(f"{counted(len(kept), plan.noun)} × {counted(seeds, 'seed')}")
    runs, whole = len(kept) * seeds, all(one.with_evaluations for one in kept)
    known = [one.seconds for one in kept if one.seconds is not None]
    # a variant that was never measured is taken to be as long as the others
    st.caption(runs_and_time(runs, sum(known) / len(known) * runs if known else None, with_evaluations=whole))
    return kept, [] if left_out else wrong_of(found)


def _miscounted(plan: Plan, seeds: Sequence[int]) -> list[str]:
    if not seeds:
        return [f"Give 1 to {MOST_SEEDS} seeds, each a whole number of 0 or more, such as 0, 1, 2"]
    runs = len(plan.variants) * len(seeds)
    return [f"{count(runs)} runs are too many for one sweep; at most {MOST_RUNS}"] if runs > MOST_RUNS else []
