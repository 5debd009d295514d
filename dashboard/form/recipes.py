"""Recipe cards: a named starting point each, the chosen one marked."""

from collections.abc import Callable, Sequence

import streamlit as st

from backend.contract.records import RecipeCard
from dashboard.format import plain

ACROSS = 3


def show_recipes(recipes: Sequence[RecipeCard], chosen: str | None, choose: Callable[[str], None]) -> None:
    """Cards in rows; pressing one calls `choose` with its id."""
    for start in range(0, len(recipes), ACROSS):
        for column, recipe in zip(st.columns(ACROSS), recipes[start : start + ACROSS], strict=False):
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
            st.caption("Source", help=plain(recipe.source))
