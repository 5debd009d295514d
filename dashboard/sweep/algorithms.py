"""Algorithms as what varies: recipes to tick, all put on the same ground."""

from collections.abc import Sequence

import streamlit as st

from backend.contract.catalog import RecipeCard
from backend.contract.common_ground import comparable, distinct, on_common_ground
from dashboard.format import plain
from dashboard.sweep.base import Base, about, choose_base, grounds_of
from dashboard.sweep.variant import Plan, Variant

ACROSS = 3
SUGGESTED = {"grpo", "dapo", "rloo"}
_RECIPES = "recipes"  # in the address
_WRITTEN = "sweep-recipes-written"


def show_algorithms(recipes: Sequence[RecipeCard], others: Sequence[Base]) -> Plan:
    """The ground, and the recipes that differ on it."""
    st.caption(
        "Each recipe brings its algorithm, updates per batch included, and its penalty for length if it has one; if it was made for the "
        "same model, also its optimizer settings and group size. Task, model, all other rewards, decoding, steps and completions a step "
        "are the same for all. Several seeds tell a difference from luck."
    )
    known = comparable(recipes)
    help = "Task, model, rewards but for a recipe's own penalty for length, decoding, prompts and evaluation of every run\\."
    base = choose_base("The same for all runs", grounds_of(known, others), help).config
    chosen = show_recipes(distinct(known, base))
    variants = [Variant(card.id, on_common_ground(card.config, base), {"recipe": card.id}) for card in chosen]
    title = f"{', '.join(card.id for card in chosen)} on {about(base).partition(',')[0]}"
    return Plan(variants, "recipe", title, () if chosen else ("Tick the recipes to compare",))


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
