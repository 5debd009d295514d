"""The fields of the runs' configurations: those in which they differ, and those by which they are grouped; and what scored the runs."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st
import yaml

from backend.contract.base import Json
from backend.contract.records import RewardVersion, Run
from backend.contract.reward import file_of
from backend.contract.stored import rewards_in, text_at
from dashboard.format import MISSING, counted
from dashboard.session import client, guard
from dashboard.stored import get, is_recorded
from dashboard.text import one_line
from dashboard.wording import show_number

RECIPE = "recipe"
SEED = "budget.seed"
ROWS = 12  # a longer table scrolls
DIGITS = 8  # of a text's hash, enough to tell it from another


def flatten(value: Json, path: str = "") -> dict[str, Json]:
    """Every leaf of a configuration under its dotted path; an empty object or list is a leaf."""
    children: list[tuple[str, Json]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = [(str(place), item) for place, item in enumerate(value)]
    if not children:
        return {path: value}
    leaves: dict[str, Json] = {}
    for key, child in children:
        leaves |= flatten(child, f"{path}.{key}" if path else key)
    return leaves


def differences(configs: Mapping[int, Mapping[str, Json]]) -> dict[str, dict[int, Json]]:
    """Path -> value by run, for the paths at which not all runs have the same; absent is None."""
    flat = {run_id: flatten(dict(config)) for run_id, config in configs.items()}
    paths = dict.fromkeys(path for leaves in flat.values() for path in leaves)
    table = {path: {run_id: leaves.get(path) for run_id, leaves in flat.items()} for path in paths}
    return {path: row for path, row in table.items() if len({repr(value) for value in row.values()}) > 1}


def in_several(row: Mapping[int, Json]) -> bool:
    """Whether two configurations or more have a value. Of another trainer's settings ours has none, which is not a difference."""
    return sum(value is not None for value in row.values()) > 1


def choices(runs: Sequence[Run]) -> list[str]:
    """The recipe, the fields in which the runs differ, then every other field."""
    fields = (path for run in runs for path in flatten(dict(run.config)))
    return list(dict.fromkeys([RECIPE, *differing(runs), *sorted(set(fields))]))


def differing(runs: Sequence[Run]) -> list[str]:
    """The fields in which the runs differ, without the seed, which is luck and not a setting."""
    configs = {run.id: run.config for run in runs}
    fields = {path: row for path, row in differences(configs).items() if path != SEED}
    recorded = any(run.recorded for run in runs)
    return [path for path, row in fields.items() if in_several(row) or not recorded]


def swept(runs: Sequence[Run]) -> list[str]:
    """The fields in which the runs differ by choice, without those that follow from a kind, or from a part that only some runs have."""
    kept: list[str] = []
    fields = differing(runs)
    for path in sorted(fields, key=lambda path: not path.endswith(".kind")):
        if not any(_follows(path, other, runs) for other in kept):
            kept.append(path)
    return [path for path in fields if path in kept]


def _follows(path: str, other: str, runs: Sequence[Run]) -> bool:
    """Whether a field's value follows from another field of the same part, such as its kind."""
    values = [(repr(get(run.config, other)), get(run.config, path)) for run in runs]
    part, _, name = other.rpartition(".")
    if not path.startswith(f"{part}."):
        return False
    of_kind = name == "kind"
    of_part = any(value is None for _, value in values) and any(get(run.config, part) is None for run in runs)
    return (of_kind or of_part) and len({key for key, _ in values}) == len(
        {(key, repr(value)) for key, value in values}
    )


def settings_of_sweep(runs: Sequence[Run]) -> list[str]:
    """The fields that group a sweep's runs: the recipe if it differs, otherwise the swept fields."""
    fields = swept(runs)
    return [RECIPE] if RECIPE in fields or not fields else fields


def setting(run: Run, fields: Sequence[str]) -> str:
    """A run's values of the fields, as the label of its setting."""
    names, recipe = short_names(fields), run.config.get(RECIPE) or f"no recipe ({run.kind.replace('_', ' ')})"
    values = {field: f"{names[field]} {cell(get(run.config, field))}" for field in fields}
    if RECIPE in values:
        values[RECIPE] = one_line(str(recipe))
    return " · ".join(values.values())


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Each dotted path, shortened to the last parts that tell it from the others; a kind by the part that it belongs to."""
    names = {}
    for path in paths:
        parts = path.split(".")
        last = len(parts) - (2 if parts[-1] == "kind" and len(parts) > 1 else 1)
        ends = (".".join(parts[start:]) for start in range(last, -1, -1))
        names[path] = next(
            end
            for end in ends
            if end == path or not any(other != path and f".{other}".endswith(f".{end}") for other in paths)
        )
    return names


def seed_of(run: Run) -> int:
    """The seed, by which runs of different settings are paired; if another trainer has not said it, a number that no other run has."""
    seed = get(run.config, "theirs.seed" if run.recorded else SEED)
    return seed if isinstance(seed, int) else -run.id if run.recorded else 0


def cell(value: Json) -> str:
    """A value of a configuration on one line."""
    if value is None:
        return MISSING
    if isinstance(value, int | float) and not isinstance(value, bool):
        written = show_number(value)
        return f"{int(written):,}" if written.lstrip("-").isdigit() else written
    return one_line(
        value
        if isinstance(value, str)
        else yaml.safe_dump(value, default_flow_style=True).removesuffix("\n...\n").strip()
    )


def scored_by(runs: Sequence[Run]) -> dict[str, Json]:
    """Of each own reward file, the short hashes of its texts that scored these runs, in their order."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        texts: dict[str, list[str]] = {}
        if any(file_of(text_at(function, "function")) for _, function in rewards_in(run.config)):
            for version in reversed(_versions(run.id, run.attempt)):
                for file in version.files:
                    texts.setdefault(file.name, []).append(file.sha256[:DIGITS])
        for name, hashes in texts.items():
            changes = [one for one, before in zip(hashes, [None, *hashes], strict=False) if one != before]
            found.setdefault(name, {})[", then ".join(changes)] = None
    return {f"{name} (SHA-256)": " or ".join(each) for name, each in found.items()}


@st.cache_data(ttl=10, max_entries=64, show_spinner=False)
def _versions(run_id: int, attempt: int) -> list[RewardVersion]:  # noqa: ARG001 — a part of the cache's key
    with guard():
        return client().rewards(run_id)


def draw_differences(configs: Mapping[str, Mapping[str, Json]]) -> None:
    """The table; `configs` are named as its columns will be."""
    st.subheader("Where they differ")
    if len(configs) < 2:
        st.caption("Choose a second run to see the fields in which they differ.")
        return
    rows = differences(dict(enumerate(configs.values())))
    if not rows:
        st.caption("Nowhere: their configurations are the same.")
        return
    recorded = any(map(is_recorded, configs.values()))
    alone = {path: row for path, row in rows.items() if recorded and not in_several(row)}
    if shared := {path: row for path, row in rows.items() if path not in alone}:
        _draw_table(shared, list(configs), "differences")
    else:
        st.caption("In no field that two of them have.")
    if alone:
        with st.expander(f"{counted(len(alone), 'field')} that only one of them has"):
            st.caption(
                "Each trainer has settings of its own; what a recorded run does not say of ours is not known, not different."
            )
            _draw_table(alone, list(configs), "differences-alone")


def _draw_table(rows: Mapping[str, Mapping[int, Json]], names: Sequence[str], key: str) -> None:
    table = pd.DataFrame(
        [{"field": path, **{name: cell(row[place]) for place, name in enumerate(names)}} for path, row in rows.items()]
    )
    st.dataframe(table, hide_index=True, key=key, height="content" if len(table) <= ROWS else 460)
