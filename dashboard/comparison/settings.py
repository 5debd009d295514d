"""By which fields of their configurations runs are taken together."""

from collections.abc import Sequence

import yaml

from backend.contract.base import Json
from backend.contract.records import Run
from dashboard.components.config_difference import differences, flatten
from dashboard.components.group_arithmetic import exact
from dashboard.components.model_text import one_line
from dashboard.form.paths import get
from dashboard.format import MISSING

RECIPE = "recipe"
SEED = "budget.seed"
_TOGETHER = 3  # of more fields that differ, the recipe says enough


def choices(runs: Sequence[Run]) -> list[str]:
    """The recipe, the fields in which the runs differ, then every other field."""
    fields = (path for run in runs for path in flatten(dict(run.config)))
    return list(dict.fromkeys([RECIPE, *differing(runs), *sorted(set(fields))]))


def differing(runs: Sequence[Run]) -> list[str]:
    """The fields in which the runs differ; the seed is luck and no setting."""
    return [path for path in differences({run.id: run.config for run in runs}) if path != SEED]


def settings_of_sweep(runs: Sequence[Run]) -> list[str]:
    """What a sweep varies: the recipe, or the few fields that differ."""
    fields = differing(runs)
    return [RECIPE] if RECIPE in fields or not 0 < len(fields) <= _TOGETHER else fields


def setting(run: Run, fields: Sequence[str]) -> str:
    """What a run has in the fields, as the label of its group."""
    names = short_names(fields)
    return " · ".join(
        one_line(str(run.config.get(RECIPE) or run.kind))
        if field == RECIPE
        else f"{names[field]} {cell(get(run.config, field))}"
        for field in fields
    )


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Each dotted path by as many of its last parts as tell it from the others."""
    names = {}
    for path in paths:
        parts = path.split(".")
        ends = (".".join(parts[start:]) for start in range(len(parts) - 1, -1, -1))
        names[path] = next(
            end
            for end in ends
            if end == path or not any(other != path and f".{other}".endswith(f".{end}") for other in paths)
        )
    return names


def seed_of(run: Run) -> int:
    """By which runs of different groups are paired."""
    seed = get(run.config, SEED)
    return seed if isinstance(seed, int) else 0


def cell(value: Json) -> str:
    """A value of a configuration on one line."""
    if value is None:
        return MISSING
    if isinstance(value, float):
        return exact(value)
    return one_line(
        value
        if isinstance(value, str)
        else yaml.safe_dump(value, default_flow_style=True).removesuffix("\n...\n").strip()
    )
