"""What every page needs from its surroundings: the backend's client, its failures in words, and the pages' addresses."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, tzinfo
from typing import Literal, NoReturn, TypeVar
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import streamlit as st

from backend.contract.catalog import Catalog
from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.home import load
from backend.contract.records import Page, Run
from dashboard.format import plain
from dashboard.settings import Settings
from dashboard.shared import Shared

PageName = Literal["runs", "new-run", "compare", "playground", "workers", "sweep", "run", "group", "prompt"]
NAVIGATION: tuple[PageName, ...] = ("runs", "new-run", "compare", "playground", "workers")
"""The pages that the bar at the top leads to, in its order; links lead to the others."""
Query = str | int | None
T = TypeVar("T")

FRESH = 0.5  # seconds for which one look at a run serves all who watch it
AWAY = "backend-away"  # a page could not be drawn; it is drawn again once the backend answers
LEFT = "pages-left"  # how often, by a click on something that is not a link (dashboard.leaving)


def zone() -> tzinfo:
    """The time zone of the browser; UTC if it is not known, here or there."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (LookupError, ValueError, OSError):
        return UTC


@st.cache_resource
def settings() -> Settings:
    """The settings of this process."""
    return load(Settings)


@st.cache_resource
def client() -> Client:
    """The one client of this process."""
    return Client(settings().backend_url, settings().secret())


@st.cache_resource
def _looks() -> Shared[Run]:
    return Shared(seconds=FRESH, most=256)


def run_now(run_id: int) -> Run:
    """The run as it was at most half a second ago, and behind what this dashboard asked for meanwhile. Raises as the client does."""
    return _looks().get(run_id, lambda: client().run(run_id))


@contextmanager
def guard() -> Iterator[None]:
    """Shows a refusal or a silent backend as a message, and stops the page (or the fragment) there.

    Only reads belong inside: what a form holds must survive a backend that restarts.
    """
    try:
        yield
    except Unreachable:
        st.session_state[AWAY] = True
        st.error(
            f"The backend at {plain(settings().backend_url)} does not answer. Training goes on without it, and this page "
            "comes back by itself once it is up. Start it with `groupscope backend`, or all three parts with `groupscope up`.",
            icon=":material/cloud_off:",
        )
        st.stop()
    except ApiError as refusal:
        st.error(explain(refusal), icon=":material/error:")
        st.stop()


def carried_out(action: Callable[[], object]) -> bool:
    """Whether something that a person asked of the backend was done; a refusal is said in its words, and the page stays."""
    try:
        action()
    except ApiError as refusal:
        st.toast(explain(refusal), icon=":material/error:")
    except Unreachable:
        away = "The backend does not answer; nothing was changed\\. Try again when it is back\\."
        st.toast(away, icon=":material/cloud_off:")
    else:
        return True
    finally:
        _looks().forget()
    return False


def pages_of(fetch: Callable[[str | None], Page[T]]) -> Iterator[Page[T]]:
    """One page of a list after the other; `fetch` gets where a page begins, None for the first."""
    cursor: str | None = None
    while True:
        with guard():
            page = fetch(cursor)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


@st.cache_data(ttl=60, max_entries=1, show_spinner=False)
def fetch_catalog() -> Catalog:
    """Recipes, models and schemas; they change only with the backend's version."""
    return client().catalog()


def queued(create: Callable[[], T], away: str, icon: str | None = None) -> T | None:
    """What the backend made or queued. None if it refused, or does not answer: the page says so, in its words or with `away`."""
    try:
        return create()
    except ApiError as refusal:
        st.error(explain(refusal), icon=":material/error:")
    except Unreachable:
        st.error(away, icon=icon)
    return None


def run_or_none(run_id: int) -> Run | None:
    """The run; None where there is none, so that a page of several runs can still show the others. Raises ApiError and Unreachable."""
    try:
        return run_now(run_id)
    except ApiError as refusal:
        if refusal.status == 404:
            return None
        raise


@st.cache_data(ttl=10, max_entries=64, show_spinner=False)
def in_the_way(run_id: int) -> list[str]:
    """Why no worker takes the queued run, in preflight's words; empty if one can, or nobody knows."""
    try:
        messages = client().preflight(run_now(run_id).config).messages
    except (ApiError, Unreachable):
        return []
    return [message.text for message in messages if message.waits]


def explain(refusal: ApiError) -> str:
    """The backend's own words, safe in a label, and what to do about a wrong token."""
    if refusal.status == 401:
        return (
            "The backend refuses this dashboard's token. Give both the same GROUPSCOPE_TOKEN, or the same GROUPSCOPE_HOME, "
            "and start the dashboard again."
        )
    return plain(refusal.message)


def script(page: PageName) -> str:
    """The file of a page's screen, below `dashboard/`."""
    return f"screens/{page.replace('-', '_')}.py"


def url(page: PageName, **query: Query) -> str:
    """The page's address on this server: `url("run", id=3, tab="groups")` is `/run?id=3&tab=groups`."""
    path = "/" if page == "runs" else f"/{page}"
    asked = given(query)
    return f"{path}?{urlencode(asked)}" if asked else path


def link(page: PageName, label: str, *, icon: str | None = None, help: str | None = None, **query: Query) -> None:
    """A link within the application; the label is shown as it is, never as markup."""
    st.page_link(script(page), label=plain(label), icon=icon or "", help=help or "", query_params=given(query))


def lead_back(words: str) -> NoReturn:
    """Say that the address leads to nothing, link to all runs, and end the page."""
    st.info(words, icon=":material/search_off:")
    link("runs", "All runs", icon=":material/list:")
    st.stop()


def given(query: dict[str, Query]) -> dict[str, str]:
    """The query as it stands in an address, without what is not asked."""
    return {key: str(value) for key, value in query.items() if value is not None}
