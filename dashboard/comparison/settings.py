"""By which field of their configurations runs are taken together."""

from collections.abc import Sequence

import yaml

from backend.contract.base import Json
from backend.contract.records import Run
from dashboard.components.config_difference import differences
from dashboard.components.group_arithmetic import exact
from dashboard.components.model_text import one_line
from dashboard.form.paths import get
from dashboard.format import MISSING

ALONE = "nothing"
RECIPE = "recipe"
SEED = "budget.seed"


def choices(runs: Sequence[Run]) -> list[str]:
    """Nothing, the recipe, and every other field in which the runs differ."""
    fields = differences({run.id: run.config for run in runs})
    return [ALONE, RECIPE, *(path for path in fields if path not in (RECIPE, SEED))]


def setting(run: Run, field: str) -> str:
    """What a run has in the field, as the label of its group."""
    if field == RECIPE:
        return one_line(str(run.config.get("recipe") or run.kind))
    return f"{field.rpartition('.')[2]} {cell(get(run.config, field))}"


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
