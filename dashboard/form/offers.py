"""Names to choose from that the connected workers have: judges and Python reward functions."""

from collections.abc import Iterator

import streamlit as st

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.records import Worker
from dashboard.form.draft import Draft
from dashboard.session import client


@st.cache_data(ttl=10, max_entries=1, show_spinner=False)
def fetch_workers() -> list[Worker]:
    """The workers that are alive."""
    return [worker for worker in client().workers() if worker.alive]


def offered_by_workers(draft: Draft) -> dict[str, list[str]]:
    """By path, what the rewards of the draft may name; nothing where no worker has any, or the backend is away."""
    named = list(_named(draft))
    if not named:
        return {}
    try:
        workers = fetch_workers()
    except (Unreachable, ApiError):
        return {}
    have = {
        "judge": sorted({name for worker in workers for name in worker.judges}),
        "python": sorted({name for worker in workers for name in worker.reward_functions}),
    }
    return {path: have[kind] for kind, path in named if have[kind]}


def _named(draft: Draft) -> Iterator[tuple[str, str]]:
    """The kind of each reward that names something of a worker's, and the path of the name."""
    field = {"judge": "endpoint", "python": "function"}
    for rewards in ("rewards", "pairs.rewards"):
        functions: Json = draft.get(f"{rewards}.functions")
        for index, function in enumerate(functions if isinstance(functions, list) else []):
            kind = str(function.get("kind")) if isinstance(function, dict) else ""
            if kind in field:
                yield kind, f"{rewards}.functions.{index}.{field[kind]}"
