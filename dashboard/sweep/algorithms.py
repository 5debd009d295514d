"""Algorithms as what varies: recipes to tick, all put on the same ground."""

from collections.abc import Mapping, Sequence

import streamlit as st

from backend.contract.catalog import RecipeCard
from backend.contract.common_ground import comparable, distinct, on_common_ground
from dashboard.components.address import read, write
from dashboard.components.listing import across
from dashboard.format import plain
from dashboard.sweep.base import Base, about, choose_base, grounds_of
from dashboard.sweep.fields import Plan, Variant

ACROSS = 3
SUGGESTED = {"grpo", "dapo", "rloo"}
_RECIPES = "recipes"  # in the address
NOTHING = "none"  # there, for no recipe at all


def show_algorithms(recipes: Sequence[RecipeCard], others: Sequence[Base]) -> Plan:
    """The ground, and the recipes that differ on it."""
    st.caption(
        "Each recipe brings its algorithm with its updates per batch, and its length penalty if it has one. A recipe that was made for "
        "the chosen model also brings its optimizer settings and group size. Everything else is the same in all runs: model, task, other "
        "rewards, decoding, steps, completions per step. Several seeds show whether a difference is luck."
    )
    known = comparable(recipes)
    help = "Every run takes its model, task, rewards, decoding, prompts and evaluation from here\\. Of the rewards, only a length penalty comes from the recipe\\."
    base = choose_base("Settings that all runs share", grounds_of(known, others), help).config
    chosen = show_recipes(distinct(known, base))
    variants = [Variant(card.id, on_common_ground(card.config, base), {"recipe": card.id}) for card in chosen]
    title = f"{', '.join(card.id for card in chosen)} on {about(base).partition(',')[0]}"
    return Plan(variants, "recipe", title, () if chosen else ("Tick the recipes to compare",))


def show_recipes(recipes: list[RecipeCard]) -> list[RecipeCard]:
    """Cards to tick; the ticks stand in the address."""
    keys = {card.id: f"sweep-recipe-{card.id}" for card in recipes}
    asked = read(_RECIPES).split(",")
    ticked = [one for one in keys if one in asked]
    if not ticked and asked != [NOTHING]:  # the address names none of them
        ticked = [one for one in keys if one in SUGGESTED]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Recipes**", width="content")
        st.button("All", type="tertiary", on_click=_tick, args=(list(keys),))
        st.button("None", type="tertiary", on_click=_tick, args=([],))
    for column, card in across(recipes, ACROSS):
        key, label = keys[card.id], plain(card.title)
        if st.session_state.get(key) != (card.id in ticked):
            st.session_state[key] = card.id in ticked
        with column.container(border=True, height="stretch"):
            st.checkbox(label, key=key, help=plain(card.source), on_change=_tick_as_shown, args=(keys,))
            st.caption(plain(card.sentence))
    return [card for card in recipes if card.id in ticked]


def _tick(recipes: Sequence[str]) -> None:
    write(**{_RECIPES: ",".join(recipes) or NOTHING})


def _tick_as_shown(keys: Mapping[str, str]) -> None:
    """Take all the boxes as the browser shows them: a second tick may come before the answer to the first."""
    _tick([recipe for recipe, key in keys.items() if st.session_state[key]])
