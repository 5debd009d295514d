"""By which fields of their configurations runs are taken together."""

from collections.abc import Sequence

import yaml

from backend.contract.base import Json
from backend.contract.records import Run
from dashboard.comparison.flat import differences, flatten
from dashboard.components.model_text import one_line
from dashboard.form.paths import get
from dashboard.form.written import show_number
from dashboard.format import MISSING

RECIPE = "recipe"
SEED = "budget.seed"


def choices(runs: Sequence[Run]) -> list[str]:
    """The recipe, the fields in which the runs differ, then every other field."""
    fields = (path for run in runs for path in flatten(dict(run.config)))
    return list(dict.fromkeys([RECIPE, *differing(runs), *sorted(set(fields))]))


def differing(runs: Sequence[Run]) -> list[str]:
    """The fields in which the runs differ; the seed is luck and no setting."""
    return [path for path in differences({run.id: run.config for run in runs}) if path != SEED]


def swept(runs: Sequence[Run]) -> list[str]:
    """The fields in which the runs differ by choice: without those that came along with a kind, or with a part that only some have."""
    kept: list[str] = []
    fields = differing(runs)
    for path in sorted(fields, key=lambda path: not path.endswith(".kind")):
        if not any(_follows(path, other, runs) for other in kept):
            kept.append(path)
    return [path for path in fields if path in kept]


def _follows(path: str, other: str, runs: Sequence[Run]) -> bool:
    """Whether a field has its value because another one, of the same part or the kind of it, has its own."""
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
    """By what a sweep's runs are taken together: the recipe where it differs, else the fields that were swept."""
    fields = swept(runs)
    return [RECIPE] if RECIPE in fields or not fields else fields


def setting(run: Run, fields: Sequence[str]) -> str:
    """What a run has in the fields, as the label of its group."""
    names = short_names(fields)
    return " · ".join(
        _recipe(run) if field == RECIPE else f"{names[field]} {cell(get(run.config, field))}" for field in fields
    )


def _recipe(run: Run) -> str:
    """The recipe; a run without one is of none, also where a recipe is named like its kind."""
    recipe = run.config.get(RECIPE)
    return one_line(str(recipe) if recipe else f"no recipe ({run.kind.replace('_', ' ')})")


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Each dotted path by as many of its last parts as tell it from the others; a kind by what it is the kind of."""
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
    """By which runs of different groups are paired."""
    seed = get(run.config, SEED)
    return seed if isinstance(seed, int) else 0


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
