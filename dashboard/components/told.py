"""Widgets whose values the page sets, and what the browser still says of them when it asks before it has heard."""

from collections.abc import Callable
from time import monotonic
from typing import Any

import streamlit as st

from dashboard.components.address import browser_knows, just_written

_TOLD = "told"  # key -> the value that the browser showed before, and when it was told another
_HEARD = 0.5  # seconds after which a browser that knows the new address has the new values too; no person is as quick


def tell(key: str, value: object) -> None:
    """Put the value, which follows from the address, into the widget, before it is drawn."""
    told = st.session_state.setdefault(_TOLD, {})
    if not just_written():
        told.pop(key, None)  # a page that opens: nothing was clicked before
    elif key in st.session_state and st.session_state[key] != value and not _is_echo(key):
        told[key] = st.session_state[key], monotonic()
    st.session_state[key] = value


def heard(key: str, act: Callable[[Any], None]) -> Callable[[], None]:
    """The widget's callback, which acts on the value that a person chose.

    The browser sends all its widgets with all that it asks. Where a click comes before the answer to the one before, it sends
    values that the page has set anew meanwhile, and Streamlit takes that for changes: they would undo the first click.
    """

    def callback() -> None:
        if not _is_echo(key):
            act(st.session_state[key])

    return callback


def _is_echo(key: str) -> bool:
    if key not in (told := st.session_state.get(_TOLD, {})):
        return False
    before, when = told[key]
    return before == st.session_state[key] and (monotonic() - when < _HEARD or not browser_knows())
