"""Controls whose values stand in the address under their names, unless they are what the page opens with.

The address leads. What it says is put into the widget before the widget is drawn, and what a person types is put into the
address, so that a state can be sent to somebody, and the browser's way back finds the state before.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

from dashboard.components.address import read, write
from dashboard.components.told import heard, tell

_GOOD = "last-good"
T = TypeVar("T")


def typed(label: str, name: str, default: str, *, help: str | None = None, placeholder: str | None = None) -> str:
    """A text that takes effect while it is typed."""
    value = read(name, default)
    st.text_input(
        label,
        "" if _follow(name, value) else value,
        key=_key(name),
        live=True,
        on_change=_kept(name, default),
        help=help,
        placeholder=placeholder,
    )
    return str(st.session_state[_key(name)])


def stepped(label: str, name: str, default: float, *, low: float, high: float, step: float, help: str) -> float:
    """A number that can be typed, and moved in steps."""
    try:
        value = float(read(name, str(default)))
    except ValueError:
        value = default
    value = value if low <= value <= high else default
    st.number_input(
        label,
        low,
        high,
        "min" if _follow(name, value) else value,
        step=step,
        format="%g",
        key=_key(name),
        on_change=_kept(name, default),
        help=help,
    )
    return float(st.session_state[_key(name)])


def chosen(
    label: str, name: str, default: str, options: Sequence[str], *, words: Callable[[str], str], help: str | None = None
) -> str:
    """One of a few: side by side where three or fewer, else in a list."""
    asked = read(name, default)
    value = asked if asked in options else default
    followed = _follow(name, value)
    if len(options) <= 3:
        st.segmented_control(
            label,
            options,
            default=None if followed else value,
            required=True,
            key=_key(name),
            format_func=words,
            on_change=_kept(name, default),
            help=help,
        )
    else:
        st.selectbox(
            label,
            options,
            0 if followed else options.index(value),
            key=_key(name),
            format_func=words,
            on_change=_kept(name, default),
            help=help,
        )
    return str(st.session_state[_key(name)])


def last_good(name: str, read: Callable[[], T], opening: Callable[[], T]) -> tuple[T, str | None]:
    """What was read, and None; or what could be read last, and the message of what could not be read."""
    good: dict[str, T] = st.session_state.setdefault(_GOOD, {})
    try:
        good[name] = read()
    except ValueError as error:
        return good[name] if name in good else opening(), str(error)
    return good[name], None


def _key(name: str) -> str:
    return f"set-{name}"


def _follow(name: str, value: str | float) -> bool:
    """Put the address's value into a widget that shows another one; True if so, and the widget then needs no default.

    A widget that shows it already is left alone, since setting it would interrupt who is typing.
    """
    key = _key(name)
    if key not in st.session_state or st.session_state[key] == value:
        return False
    tell(key, value)
    return True


def _kept(name: str, default: str | float) -> Callable[[], None]:
    return heard(_key(name), lambda value: write(**{name: None if value == default else str(value)}))
