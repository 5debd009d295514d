"""The controls of a list that the backend answers page by page: words, order, other choices, and the pages themselves.

All of it stands in the address: the choices under their own names, and the way from the first page to this one under the
list's name. Any other choice begins at the first page again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.components.address import read, show_more, write
from dashboard.format import counted

S = TypeVar("S", bound=str)
T = TypeVar("T")
ROWS = 50
_KEPT = 30  # cursors in the address; further back there is the first page


def cursor(name: str) -> str | None:
    """Where this page begins; None is the first."""
    trail = _trail(name)
    return trail[-1] if trail else None


def first_page(name: str) -> None:
    """Forget the way: what is listed has changed."""
    write(**{name: None})


def words_field(
    label: str, key: str, pages: str, *, placeholder: str, help: str = "Press / to jump here.", width: int | None = None
) -> str | None:
    """A field that searches while a person types; None if nothing is typed. With a width, the label is for readers alone."""
    said = st.text_input(
        label,
        key=key,
        type="search",
        live="300ms",
        bind="query-params",
        placeholder=placeholder,
        help=help,
        icon=":material/search:",
        label_visibility="collapsed" if width else "visible",
        width=width or "stretch",
        on_change=first_page,
        args=(pages,),
    )
    return said.strip() or None


def order_field(key: str, pages: str, orders: Mapping[str, S]) -> S:
    """What the list is sorted by; `orders` has it by the words for it."""
    chosen = st.selectbox("Order", list(orders), key=key, bind="query-params", on_change=first_page, args=(pages,))
    return orders[chosen]


def choice_field(
    label: str,
    key: str,
    pages: str,
    options: Sequence[str],
    *,
    any_word: str = "any",
    words: Callable[[str], str] = str,
    new: bool = False,
    width: int | None = None,
) -> str | None:
    """One of a few, or None for any; `new` takes others that a person types. With a width, the label is for readers alone."""
    chosen: str | None = st.selectbox(
        label,
        options,
        index=None,
        key=key,
        bind="query-params",
        format_func=words,
        placeholder=any_word,
        accept_new_options=new,
        label_visibility="collapsed" if width else "visible",
        width=width or "stretch",
        on_change=first_page,
        args=(pages,),
    )
    return chosen


def nothing(words: str, *, show_all: str | None = None, clear: Callable[[], None] | None = None) -> None:
    """Say that no row fits, and offer to show all of them."""
    st.info(words, icon=":material/search_off:")
    if show_all and clear:
        st.button(show_all, icon=":material/filter_alt_off:", on_click=clear)


def offer_more(left: int, noun: str, name: str, at_once: int, *, key: str) -> None:
    """A button for more of a list, of which `left` are not shown; its length stands in the address under `name`."""
    if left > 0:
        more, icon = counted(left, f"more {noun}"), ":material/expand_more:"
        st.button(more, icon=icon, key=key, on_click=show_more, args=(name, at_once))


def across(items: Sequence[T], beside: int) -> Iterator[tuple[DeltaGenerator, T]]:
    """Each item with its place on the page; `beside` of them stand in a row."""
    for start in range(0, len(items), beside):
        yield from zip(st.columns(beside), items[start : start + beside], strict=False)


def show_pager(name: str, following: str | None) -> None:
    """First, previous and next; nothing if all fits on one page."""
    trail = _trail(name)
    if not trail and following is None:
        return
    with st.container(horizontal=True, horizontal_alignment="right", key=f"pager-{name}"):
        for word, icon, there, way in (
            ("First", "first_page", bool(trail), []),
            ("Previous", "chevron_left", bool(trail), trail[:-1]),
            ("Next", "chevron_right", following is not None, [*trail, following or ""]),
        ):
            st.button(
                word,
                icon=f":material/{icon}:",
                key=f"{name}-{word.lower()}",
                disabled=not there,
                on_click=write,
                kwargs={name: ",".join(way[-_KEPT:]) or None},
            )


def _trail(name: str) -> list[str]:
    return [part for part in read(name).split(",") if part]
