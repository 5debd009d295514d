"""Which runs are listed: every filter stands in the address, so that a list can be sent to somebody."""

from collections.abc import Callable
from functools import partial
from typing import get_args

import streamlit as st

from backend.contract.records import Page, Run, Status
from dashboard.components.model_text import one_line
from dashboard.form.paths import get
from dashboard.format import model_name
from dashboard.session import client

ROWS = 30
_CURSOR = "before"


_FILTERS = ("state", "recipe", "model", "tag", "named")  # in the session and in the address


def is_narrowed() -> bool:
    """Whether the list leaves a run out."""
    return any(st.session_state.get(name) for name in _FILTERS) or _CURSOR in st.query_params


@st.cache_data(ttl=10, max_entries=1, show_spinner=False)
def _known() -> tuple[list[str], list[str], list[str]]:
    """Recipes, models and tags of the latest runs, to choose from."""
    runs = client().runs(limit=200).items
    recipes = {str(run.config["recipe"]) for run in runs if run.config.get("recipe")}
    models = {str(get(run.config, "model.source")) for run in runs}
    return sorted(recipes), sorted(models), sorted({tag for run in runs for tag in run.tags})


def show_filters() -> Callable[[], Page[Run]]:
    """Draw the choices in one line; what fetches the runs that fit them, newest first."""
    recipes, models, tags = _known()
    state = st.selectbox(
        "State",
        list(get_args(Status)),
        index=None,
        key="state",
        bind="query-params",
        placeholder="any state",
        label_visibility="collapsed",
        width=130,
        on_change=_first_page,
    )
    recipe = _choice("recipe", recipes, 150)
    model = _choice("model", models, 190)
    tag = _choice("tag", tags, 120)
    search = st.text_input(
        "Search",
        key="named",
        type="search",
        live=True,
        bind="query-params",
        placeholder="search names",
        label_visibility="collapsed",
        width=180,
        on_change=_first_page,
    )
    return partial(
        client().runs,
        status=state,
        recipe=recipe,
        model=model,
        tag=tag,
        search=search or None,
        limit=ROWS,
        cursor=st.query_params.get(_CURSOR),
    )


def _choice(name: str, options: list[str], width: int) -> str | None:
    return st.selectbox(
        name.capitalize(),
        options,
        index=None,
        key=name,
        bind="query-params",
        format_func=model_name if name == "model" else one_line,
        placeholder=f"any {name}",
        accept_new_options=True,
        label_visibility="collapsed",
        width=width,
        on_change=_first_page,
    )


def show_pages(page: Page[Run]) -> None:
    """Newest and older runs, if there are more than fit."""
    cursor = st.query_params.get(_CURSOR)
    if not cursor and page.next_cursor is None:
        return
    with st.container(horizontal=True, horizontal_alignment="right"):
        st.button("Newest", icon=":material/first_page:", disabled=not cursor, on_click=_first_page)
        st.button(
            "Older",
            icon=":material/chevron_right:",
            disabled=page.next_cursor is None,
            on_click=lambda: st.query_params.update({_CURSOR: page.next_cursor or ""}),
        )


def clear_filters() -> None:
    """Let every run through again."""
    for name in _FILTERS:
        st.session_state[name] = "" if name == "named" else None
    _first_page()


def _first_page() -> None:
    st.query_params.pop(_CURSOR, None)
