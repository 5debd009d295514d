"""What the runs of a sweep begin with: a recipe, what stands in the form, or an earlier run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import streamlit as st

from backend.contract.base import Json
from backend.contract.catalog import Catalog, RecipeCard
from backend.contract.common_ground import warmed_up
from dashboard.components.address import read, whole
from dashboard.components.synced import whole_number
from dashboard.form import draft as drafts
from dashboard.form.schema import FIELDS, complete
from dashboard.format import model_name
from dashboard.session import client, guard
from dashboard.stored import get, put
from dashboard.text import one_line

FORM, RUN = "form", "run:"
LATEST = 30  # runs to choose from
Config = dict[str, Json]


@dataclass(frozen=True)
class Base:
    """Where a configuration comes from, what it is called, and the configuration."""

    key: str  # in the address: a recipe's name, `form` or `run:3`
    name: str
    config: Config


def choose_base(label: str, bases: Sequence[Base], help: str) -> Base:
    """One of them, and the number of its steps. `?base=` says which is chosen at first, `?from=` what was chosen since."""
    asked, known = read("base"), {one.key: one for one in bases}
    place, length = st.columns([3, 1])
    key = place.selectbox(
        label,
        list(known),
        index=list(known).index(asked) if asked in known else 0,
        format_func=lambda key: known[key].name,
        key="from",
        bind="query-params",
        help=help,
    )
    chosen = known[key]
    steps = get(chosen.config, "budget.steps")
    usual = steps if isinstance(steps, int) else 100
    own = whole_number("Steps per run", 1, 1_000_000, usual, place=length, key=f"steps:{chosen.key}")
    return Base(chosen.key, chosen.name, warmed_up(cast("Config", put(chosen.config, "budget.steps", own))))


def grounds_of(recipes: Sequence[RecipeCard], others: Sequence[Base]) -> list[Base]:
    """Common ground for algorithms: each pair of model and task once, then algorithms without a recipe that train on groups."""
    found: dict[str, Base] = {}
    for card in recipes:
        ground = str((get(card.config, "model"), get(card.config, "task")))
        if card.config["kind"] == "grpo":
            found.setdefault(ground, _of_recipe(card))
    return [*found.values(), *(one for one in others if one.config.get("kind") == "grpo")]


def recipes_of(catalog: Catalog) -> list[Base]:
    """Every recipe."""
    return [_of_recipe(card) for card in catalog.recipes]


def others_of() -> list[Base]:
    """The form if somebody has written in it, the run in the address, and the latest runs; what a run lacks gets its default."""
    draft, asked = drafts.current().config, whole(read("base").removeprefix(RUN))
    found = [Base(FORM, f"What is in the form · {about(draft)}", draft)] if draft else []
    with guard():
        runs = client().runs(kind="training", limit=LATEST).items
        if asked is not None and asked not in {run.id for run in runs}:
            runs = [client().run(asked), *runs]
    for run in runs:
        if run.kind in FIELDS:
            config = cast("Config", complete(FIELDS[run.kind], dict(run.config)))
            found.append(Base(f"{RUN}{run.id}", f"Run {run.id}, {one_line(run.name)} · {about(config)}", config))
    return found


def about(config: Mapping[str, Json]) -> str:
    """A configuration in a few words: task, model, and how much it samples in a step."""
    source = model_name(str(get(dict(config), "model.source")))
    task = get(dict(config), "task.kind") or get(dict(config), "pairs.task.kind") or "pairs"
    sampling = [get(dict(config), f"sampling.{name}") for name in ("prompts_per_step", "group_size")]
    size = f", {sampling[0]} × {sampling[1]} completions a step" if all(sampling) else ""
    return f"{task} on {source}{size}"


def _of_recipe(card: RecipeCard) -> Base:
    return Base(card.id, f"{card.id} · {about(card.config)}", card.config)
