"""Which runs are listed: every filter stands in the address, so that a list can be sent to somebody."""

from collections.abc import Callable
from functools import partial
from typing import get_args

import streamlit as st

from backend.contract.records import Page, Run, Status
from dashboard.components.listing import choice_field, cursor, first_page, words_field
from dashboard.format import model_name
from dashboard.session import client
from dashboard.stored import get
from dashboard.text import one_line

ROWS = 30
PAGES = "before"  # the name of the pages in the address
_FILTERS = ("state", "recipe", "model", "tag", "named")  # in the session and in the address


def is_narrowed() -> bool:
    """Whether the list leaves a run out."""
    return any(st.session_state.get(name) for name in _FILTERS) or cursor(PAGES) is not None


@st.cache_data(ttl=10, max_entries=1, show_spinner=False)
def _known() -> tuple[list[str], list[str], list[str]]:
    """Recipes, models and tags of the latest runs, to choose from."""
    runs = client().runs(kind="training", limit=200).items
    recipes = {str(run.config["recipe"]) for run in runs if run.config.get("recipe")}
    models = {str(get(run.config, "model.source")) for run in runs}
    return sorted(recipes), sorted(models), sorted({tag for run in runs for tag in run.tags})


def show_filters() -> Callable[[], Page[Run]]:
    """Draw the choices in one line; what fetches the runs that fit them, newest first."""
    recipes, models, tags = _known()
    return partial(
        client().runs,
        kind="training",
        status=choice_field("State", "state", PAGES, list(get_args(Status)), any_word="any state", width=130),
        recipe=_choice("recipe", recipes, one_line, 150),
        model=_choice("model", models, model_name, 190),
        tag=_choice("tag", tags, one_line, 120),
        search=words_field("Search", "named", PAGES, placeholder="search names", help="", width=180),
        limit=ROWS,
        cursor=cursor(PAGES),
    )


def _choice(name: str, options: list[str], words: Callable[[str], str], width: int) -> str | None:
    return choice_field(
        name.capitalize(), name, PAGES, options, any_word=f"any {name}", words=words, new=True, width=width
    )


def clear_filters() -> None:
    """Let every run through again."""
    for name in _FILTERS:
        st.session_state[name] = "" if name == "named" else None
    first_page(PAGES)
