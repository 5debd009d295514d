"""A sweep: several recipes, each with several seeds, on the same task and budget, queued with one click."""

import json
import re
from uuid import NAMESPACE_URL, uuid4, uuid5

import streamlit as st

from backend.contract.base import Json
from backend.contract.catalog import Catalog, RecipeCard
from backend.contract.client import ApiError, Unreachable
from backend.contract.common_ground import comparable, distinct, on_common_ground, seeded, sweep_of
from backend.contract.preflight import Preflight
from dashboard.comparison.progress import runs_and_time
from dashboard.form import draft as drafts
from dashboard.form.paths import get, put
from dashboard.format import counted, model_name, plain
from dashboard.session import client, explain, go, guard

ACROSS = 3
SUGGESTED = {"grpo", "dapo", "rloo"}
FORM = "form"
MOST_RUNS, MOST_SEEDS = 200, 10
_FORM_ID = "sweep-form"
_RECIPES = "recipes"
_WRITTEN = "sweep-recipes-written"
Config = dict[str, Json]


@st.cache_data(ttl=60, max_entries=1, show_spinner=False)
def fetch_catalog() -> Catalog:
    """Recipes and models; they change only with the backend's version."""
    return client().catalog()


@st.cache_data(ttl=30, max_entries=100, show_spinner=False)
def check(config: str) -> Preflight:
    """What a run of the sweep would do; the configuration as JSON."""
    return client().preflight(json.loads(config))


def show_page() -> None:
    """Lay the page: recipes to the left, the rest and what it would cost to the right."""
    with guard():
        recipes = comparable(fetch_catalog().recipes)
    written, beside = st.columns([2.5, 1], gap="medium")
    with written:
        st.subheader("Compare algorithms", anchor=False)
        st.caption(
            "Each recipe brings its algorithm; task, model, rewards, decoding and budget are the same for all, so that what "
            "differs between the runs is the algorithm. Several seeds tell a difference from luck."
        )
        base = show_ground(recipes)
        chosen = show_recipes(distinct(recipes, base))
    with beside, st.container(key="preflight", border=True):  # stays in sight, as on the form of a run
        show_queue(chosen, base)


def show_ground(recipes: list[RecipeCard]) -> Config:
    """What all runs share: the quickstart's, another recipe's, or what stands in the form; and the number of steps."""
    grounds = grounds_of(recipes)
    place, length = st.columns([3, 1])
    asked = st.query_params.get("base", "")
    key = place.selectbox(
        "Common ground",
        list(grounds),
        index=list(grounds).index(asked) if asked in grounds else 0,
        format_func=lambda name: f"{'What is in the form' if name == FORM else name} · {_about(grounds[name])}",
        help="Task, model, rewards, decoding, prompts and evaluation of every run\\.",
    )
    base = grounds[key]
    steps = get(base, "budget.steps")
    value = steps if isinstance(steps, int) else 100
    own = length.number_input("Steps of each", 1, 1_000_000, value=value, step=1, key=f"sweep-steps-{key}")
    return _as_config(put(base, "budget.steps", own))


def grounds_of(recipes: list[RecipeCard]) -> dict[str, Config]:
    """What there is to choose from: each pair of model and task once, and the form if somebody has written in it."""
    found: dict[str, Config] = {}
    for card in recipes:
        ground = (get(card.config, "model"), get(card.config, "task"))
        known = [(get(one, "model"), get(one, "task")) for one in found.values()]
        if card.config["kind"] == "grpo" and ground not in known:
            found[card.id] = card.config
    draft = drafts.current().config
    return {**found, FORM: draft} if draft.get("kind") == "grpo" else found


def show_recipes(recipes: list[RecipeCard]) -> list[RecipeCard]:
    """Cards to tick; the ticks stand in the address, which leads where somebody else wrote it.

    What this page wrote itself may come back late: a browser's address lags behind quick clicks, and would undo them.
    """
    keys = {card.id: f"sweep-recipe-{card.id}" for card in recipes}
    asked = st.query_params.get(_RECIPES, "")
    fresh = not any(key in st.session_state for key in keys.values())  # the page was left, and its ticks with it
    if fresh:
        st.session_state[_WRITTEN] = set()
    if fresh or asked not in st.session_state[_WRITTEN]:
        named = keys.keys() & set(asked.split(",")) or keys.keys() & SUGGESTED
        st.session_state.update({key: recipe in named for recipe, key in keys.items()})

    def tick(every: bool) -> None:
        for key in keys.values():
            st.session_state[key] = every

    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Recipes**", width="content")
        st.button("All", type="tertiary", on_click=tick, args=(True,))
        st.button("None", type="tertiary", on_click=tick, args=(False,))
    ticked = []
    for start in range(0, len(recipes), ACROSS):
        for column, card in zip(st.columns(ACROSS), recipes[start : start + ACROSS], strict=False):
            with column.container(border=True, height="stretch"):
                if st.checkbox(f"**{plain(card.title)}**", key=keys[card.id], help=plain(card.source)):
                    ticked.append(card)
                st.caption(plain(card.sentence))
    st.query_params[_RECIPES] = ",".join(card.id for card in ticked)
    st.session_state[_WRITTEN].add(st.query_params[_RECIPES])
    return ticked


def show_queue(chosen: list[RecipeCard], base: Config) -> None:
    """Name, seeds, what it comes to, and the button; when it cannot be pressed, the reason."""
    name = st.text_input("Name", max_chars=200, key="sweep-name", placeholder="made up if empty")
    seeds = show_seeds()
    problems = _counted_problems(chosen, seeds)
    runs = sweep_of(chosen, base, seeds) if seeds and not problems else []
    if seeds and runs:
        problems = show_cost(chosen, base, seeds)
    title = name.strip() or f"{', '.join(card.id for card in chosen)} on {_task(base)}"[:200]
    label = f"Queue {counted(len(runs), 'run')}" if runs else "Queue runs"
    ready = bool(runs) and not problems
    if st.button(label, type="primary", icon=":material/play_arrow:", width="stretch", disabled=not ready):
        queue(title, runs)
    for problem in problems:
        st.caption(f":red[{plain(problem)}]")


def show_seeds() -> list[int] | None:
    """So many from 0, or exactly those that are named; None where they cannot be read."""
    many, named = st.columns(2)
    number = many.number_input("Seeds of each", 1, MOST_SEEDS, value=3, step=1, key="sweep-seeds")
    text = named.text_input("or these", key="sweep-seed-list", placeholder="0, 1, 2")
    return list(range(number)) if not text.strip() else read_seeds(text)


def read_seeds(text: str) -> list[int] | None:
    """1, 2 7 as numbers; None where it is no list of at most ten different seeds."""
    parts = [part for part in re.split(r"[,\s]+", text) if part]
    if not all(part.isascii() and part.isdigit() and int(part) < 2**31 for part in parts):
        return None
    seeds = list(dict.fromkeys(int(part) for part in parts))
    return seeds if 1 <= len(seeds) <= MOST_SEEDS else None


def show_cost(chosen: list[RecipeCard], base: Config, seeds: list[int]) -> list[str]:
    """How many runs and how long, from preflight; what is wrong with a recipe on this ground, in words."""
    wrong, seconds = [], []
    for card in chosen:
        config = json.dumps(seeded(on_common_ground(card.config, base), 0), sort_keys=True)
        try:
            found = check(config)
        except (ApiError, Unreachable) as error:
            return [
                error.message if isinstance(error, ApiError) else "The backend does not answer; what you chose stays."
            ]
        wrong += [f"{card.id}: {one.field or ''} {one.text}" for one in found.messages if one.level == "error"]
        seconds += [found.time.total_seconds] if found.time else []
    each = (
        sum(seconds) / len(seconds) if seconds else None
    )  # a recipe that was never measured takes as long as the others
    total = len(chosen) * len(seeds)
    st.markdown(f"{counted(len(chosen), 'recipe')} × {counted(len(seeds), 'seed')}")
    st.caption(runs_and_time(total, each and each * total))
    return wrong


def _counted_problems(chosen: list[RecipeCard], seeds: list[int] | None) -> list[str]:
    if not chosen:
        return ["Tick the recipes to compare"]
    if seeds is None:
        return [f"The seeds are 1 to {MOST_SEEDS} whole numbers from 0 on, such as 0, 1, 2"]
    if len(chosen) * len(seeds) > MOST_RUNS:
        return [f"{len(chosen) * len(seeds)} runs are too many for one sweep; at most {MOST_RUNS}"]
    return []


def queue(name: str, runs: list[Config]) -> None:
    """Queue all of it and go to the comparison; a refusal leaves the form as it is."""
    form: str = st.session_state.setdefault(_FORM_ID, uuid4().hex)
    key = str(uuid5(NAMESPACE_URL, json.dumps([form, name, runs], sort_keys=True)))
    try:
        sweep = client().create_sweep(name, runs, idempotency_key=key)
    except ApiError as refusal:
        st.error(explain(refusal), icon=":material/error:")
        return
    except Unreachable:
        st.error("The backend does not answer. Press again once it is up: it makes one sweep, not two.")
        return
    del st.session_state[_FORM_ID]
    go("compare", sweep=sweep.id)


def _about(config: Config) -> str:
    sampling = [get(config, f"sampling.{name}") for name in ("prompts_per_step", "group_size")]
    return f"{_task(config)}, {sampling[0]} × {sampling[1]} completions a step"


def _task(config: Config) -> str:
    return f"{get(config, 'task.kind')} on {model_name(str(get(config, 'model.source')))}"


def _as_config(value: Json) -> Config:
    assert isinstance(value, dict)  # noqa: S101 — `put` into an object answers one
    return value


show_page()
