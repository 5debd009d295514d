"""Widgets in step with the address: what it says is put into the widget, and what a person chooses is put into the address.

The address leads, so that a state can be sent to somebody, and the browser's way back finds the state before. A value that the
page opens with does not stand in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.components.address import browser_knows, just_written, read, write

_REPLACED = "synced-before"  # key -> what the browser showed before
_HEARD = 0.5  # seconds after which a browser that knows the new address has the new values too; no person is as quick
_GOOD = "last-good"
BESIDE = 3  # choices that stand side by side; their words are read as markup, those of a list are not
T = TypeVar("T")


@dataclass(frozen=True)
class _Replaced:
    """A value in whose place the page has put another one."""

    value: object
    until: float
    followed: bool  # because a run went on, and not because of the address

    def holds(self) -> bool:
        """Whether the browser may still send it without anybody having chosen it."""
        return monotonic() < self.until or not (self.followed or browser_knows())


def sync(key: str, value: object, *, follows: bool = False) -> None:
    """Put the value into the widget before it is drawn: what follows from the address, or, if it `follows` a run, how far that is."""
    replaced: dict[str, list[_Replaced]] = st.session_state.setdefault(_REPLACED, {})
    if not follows and not just_written():
        replaced.pop(key, None)  # a page that opens: nothing was clicked before
    elif key in st.session_state and st.session_state[key] != value and not _is_echo(key):
        before = [one for one in replaced.get(key, []) if follows and one.holds()]
        replaced[key] = [*before, _Replaced(st.session_state[key], monotonic() + _HEARD, follows)]
    st.session_state[key] = value


def on_choice(key: str, act: Callable[[Any], None]) -> Callable[[], None]:
    """The widget's callback, which acts on the value that a person chose.

    The browser sends the values of all its widgets with every request. If a second click comes before the answer to the first, it
    sends values that the page has replaced meanwhile, and Streamlit takes them for changes: they would undo the first click. So would
    a click on anything else, sent before the browser had the next step of a run that the page follows: the page would follow no more.
    """

    def callback() -> None:
        if not _is_echo(key):
            act(st.session_state[key])

    return callback


def _is_echo(key: str) -> bool:
    replaced: dict[str, list[_Replaced]] = st.session_state.get(_REPLACED, {})
    return any(one.value == st.session_state[key] and one.holds() for one in replaced.get(key, []))


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
    """One of a few: up to BESIDE side by side, more in a list."""
    asked = read(name, default)
    value = asked if asked in options else default
    followed = _follow(name, value)
    if len(options) <= BESIDE:
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


def one_of(label: str, options: Sequence[str], *, key: str) -> str:
    """One of a few beside each other, by default the first; the label is for screen readers alone."""
    return str(
        st.segmented_control(
            label,
            options,
            default=options[0],
            required=True,
            key=key,
            bind="query-params",
            label_visibility="collapsed",
        )
    )


def whole_number(
    label: str, low: int, high: int, value: int, *, place: DeltaGenerator, key: str, help: str | None = None
) -> int:
    """A whole number, which also stands in the address. If it is out of range, the page says so and ends there.

    With bounds of its own, Streamlit would keep the last good number, and the page would use another than the field shows.
    """
    typed = place.number_input(label, value=value, step=1, key=key, bind="query-params", help=help)
    if not low <= typed <= high:
        place.error(f"{low:,} to {high:,}, not {typed:,}")
        st.stop()
    return typed


def last_good(name: str, read: Callable[[], T], opening: Callable[[], T]) -> tuple[T, str | None]:
    """What was read, and None; or the last that could be read, and why this could not."""
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
    sync(key, value)
    return True


def _kept(name: str, default: str | float) -> Callable[[], None]:
    return on_choice(_key(name), lambda value: write(**{name: None if value == default else str(value)}))
