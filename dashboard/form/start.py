"""What the form begins with: the card of a recipe, or a reward model that another run trained."""

from collections.abc import Callable, Sequence
from typing import cast

import streamlit as st

from backend.contract.base import Json
from backend.contract.catalog import RecipeCard
from backend.contract.records import Run
from dashboard.components.listing import across
from dashboard.format import plain
from dashboard.stored import get, put

ACROSS = 3


def show_recipes(recipes: Sequence[RecipeCard], chosen: str | None, choose: Callable[[str], None]) -> None:
    """The families, and the cards of one of them; pressing a card calls `choose` with its id."""
    families = list(dict.fromkeys(recipe.family for recipe in recipes))
    own = next((recipe.family for recipe in recipes if recipe.id == chosen), families[0])
    # A key of its own for each start: the family of a recipe that was chosen elsewhere (an address, a clone) shows first.
    picked = st.segmented_control(
        "Recipes", families, default=own, required=True, key=f"family-{chosen}", label_visibility="collapsed"
    )
    shown = [recipe for recipe in recipes if recipe.family == (picked or own)]
    for column, recipe in across(shown, ACROSS):
        with column:
            _show_recipe(recipe, recipe.id == chosen, choose)


def _show_recipe(recipe: RecipeCard, chosen: bool, choose: Callable[[str], None]) -> None:
    mark = "chosen" if chosen else "offered"
    with st.container(border=True, key=f"recipe-{mark}-{recipe.id}", height="stretch"):
        st.markdown(f"**{plain(recipe.title)}**  \n{plain(recipe.sentence)}")
        st.caption(plain(recipe.when))
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.button(
                "Chosen" if chosen else "Use this",
                key=f"recipe-{recipe.id}",
                icon=":material/check:" if chosen else None,
                help="Start again from this recipe" if chosen else None,
                on_click=choose,
                args=(recipe.id,),
            )
            with st.popover("Formula", type="tertiary", key=f"formula-{recipe.id}"):
                st.latex(recipe.formula)
                st.caption(plain(recipe.source))


def rewarded_by(run: Run, step: int, recipe: RecipeCard) -> dict[str, Json]:
    """The recipe's algorithm on the model, task and decoding that the reward model's pairs came from.

    The reward model is the only reward; correctness, where the pairs were decided by it, is measured beside it.
    """
    source = f"run:{run.id}@{step}"
    learned: dict[str, Json] = {"kind": "reward_model", "name": "reward-model", "weight": 1.0, "source": source}
    functions: list[Json] = [learned]
    config: Json = recipe.config
    pairs = get(run.config, "pairs")
    if get(pairs, "kind") == "sampled":
        config = put(config, "model.source", get(run.config, "model.source"))
        config = put(config, "task", get(pairs, "task"))
        sampling, decoding = get(config, "sampling"), get(pairs, "decoding")
        if isinstance(sampling, dict) and isinstance(decoding, dict):
            config = put(config, "sampling", {**sampling, **decoding})
        scored = get(pairs, "rewards.functions")
        for function in scored if isinstance(scored, list) else []:
            if isinstance(function, dict) and function.get("kind") == "correctness":
                functions.append({**function, "weight": 0.0})
    return cast("dict[str, Json]", put(put(config, "rewards.functions", functions), "rewards.gates", []))
