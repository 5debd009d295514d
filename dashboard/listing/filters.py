"""Which runs are listed: every filter stands in the address, so that a list can be sent to somebody."""

from dataclasses import dataclass
from typing import get_args

import streamlit as st

from backend.contract.records import Page, Run, Status
from dashboard.components.model_text import one_line
from dashboard.form.paths import get
from dashboard.format import model_name
from dashboard.session import client

ROWS = 30
_CURSOR = "before"


@dataclass(frozen=True)
class Filters:
    """What was chosen; None lets everything through."""

    state: str | None = None
    recipe: str | None = None
    model: str | None = None
    tag: str | None = None
    search: str | None = None
    cursor: str | None = None

    @property
    def any(self) -> bool:
        """Whether something is left out."""
        return any((self.state, self.recipe, self.model, self.tag, self.search, self.cursor))

    def fetch(self) -> Page[Run]:
        """The runs, newest first."""
        return client().runs(
            status=self.state,
            recipe=self.recipe,
            model=self.model,
            tag=self.tag,
            search=self.search,
            limit=ROWS,
            cursor=self.cursor,
        )


@st.cache_data(ttl=10, max_entries=1, show_spinner=False)
def _known() -> tuple[list[str], list[str], list[str]]:
    """Recipes, models and tags of the latest runs, to choose from."""
    runs = client().runs(limit=200).items
    recipes = {str(run.config["recipe"]) for run in runs if run.config.get("recipe")}
    models = {str(get(run.config, "model.source")) for run in runs}
    return sorted(recipes), sorted(models), sorted({tag for run in runs for tag in run.tags})


def show_filters() -> Filters:
    """The choices in one line."""
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
    return Filters(state, recipe, model, tag, search or None, st.query_params.get(_CURSOR))


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


def show_pages(filters: Filters, page: Page[Run]) -> None:
    """Newest and older runs, where there are more than fit."""
    if not filters.cursor and page.next_cursor is None:
        return
    with st.container(horizontal=True, horizontal_alignment="right"):
        st.button("Newest", icon=":material/first_page:", disabled=not filters.cursor, on_click=_first_page)
        st.button(
            "Older",
            icon=":material/chevron_right:",
            disabled=page.next_cursor is None,
            on_click=lambda: st.query_params.update({_CURSOR: page.next_cursor or ""}),
        )


def clear_filters() -> None:
    """Let every run through again."""
    for key in ("state", "recipe", "model", "tag"):
        st.session_state[key] = None
    st.session_state["named"] = ""
    _first_page()


def _first_page() -> None:
    st.query_params.pop(_CURSOR, None)
