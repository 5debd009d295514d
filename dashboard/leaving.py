"""Leaving a page: by a click on something that is not a link, so that the browser's Back finds it as it was (decision 0023)."""

from typing import NamedTuple, NoReturn
from uuid import uuid4

import streamlit as st

from dashboard.components.address import Place, by_history, place
from dashboard.session import LEFT, PageName, Query, given, script

_GOING = "going"  # where `go` leads, until the browser is there
# Each link is pressed once, also where a tick draws it once more.
_PRESS = """
export default function ({ data }) {
  let frame
  const press = () => {
    const link = document.querySelector(`.st-key-${data} a`)
    if (!link) {
      frame = requestAnimationFrame(press)
    } else if (document.body.dataset.pressed !== data) {
      document.body.dataset.pressed = data
      link.click()
    }
  }
  press()
  return () => cancelAnimationFrame(frame)
}
"""
# A page whose widgets keep something in the address is left in two steps: Streamlit writes the next page's query behind the
# path of this one, and then the path. The first would be an address that leads nowhere, for Back to stop at: its own, or, where
# this page was itself come back to and is still being drawn, in the place of this page's.
_ONE_STEP = """
export default function () {
  const other = (address) => new URL(address, location).pathname !== location.pathname
  const ways = ["pushState", "replaceState"]
  const restore = () => ways.forEach((way) => delete history[way])
  const onClick = (event) => {
    const link = event.target.closest("a[href]:not([download], [target=_blank])")
    const elsewhere = event.metaKey || event.ctrlKey || event.shiftKey || event.altKey  // a new tab, a window, a file
    if (!link || elsewhere || !other(link.href)) return
    for (const way of ways) {
      history[way] = (state, title, address) => {
        if (!other(address)) return
        restore()
        history[way](state, title, address)
      }
    }
  }
  document.addEventListener("click", onClick, true)
  window.addEventListener("popstate", restore)
  return () => {
    document.removeEventListener("click", onClick, true)
    window.removeEventListener("popstate", restore)
  }
}
"""
# Going to another page of the dashboard keeps the session; loading a page again, or closing it, does not.
_ASK_FIRST = """
export default function ({ data }) {
  const onUnload = (event) => data && event.preventDefault()
  window.addEventListener("beforeunload", onUnload)
  return () => window.removeEventListener("beforeunload", onUnload)
}
"""
_press = st.components.v2.component("groupscope.press", js=_PRESS)
_one_step = st.components.v2.component("groupscope.one-step", js=_ONE_STEP)
_ask_first = st.components.v2.component("groupscope.ask-first", js=_ASK_FIRST)


class _Going(NamedTuple):
    """A way on that the browser may still have to take."""

    key: str  # of the link; a tab outlives its session
    since: Place
    page: PageName
    query: dict[str, str]


def go(page: PageName, **query: Query) -> NoReturn:
    """Leave for another page: the browser presses a link that nobody sees. Were it the server that changed the page, what the
    browser asks meanwhile would still be in the name of the page before, and Streamlit would mix up the two."""
    st.session_state[_GOING] = going = _Going(f"way-on-{uuid4().hex}", place(), page, given(query))
    st.session_state[LEFT] = st.session_state.get(LEFT, 0) + 1
    _draw_way(going)
    st.stop()


def _go_on() -> None:
    """Draw the link again on a page that is drawn anew before the browser has seen it: the run that it shows has moved."""
    going: _Going | None = st.session_state.get(_GOING)
    if going is None:
        return
    if place() == going.since and not by_history():
        _draw_way(going)
    else:
        del st.session_state[_GOING]


def _draw_way(going: _Going) -> None:
    with st.container(key=going.key):
        st.page_link(script(going.page), label=going.page, query_params=going.query)
        _press(key=f"press-{going.key}", data=going.key)


def leave_in_one_step() -> None:
    """While this is on a page, a link adds one address to the browser's history, and a click that leads away does so though the page is drawn anew."""
    with st.container(key="one-step"):
        _one_step(key="one-step-script")
        _go_on()


def ask_before_unload(*, unsaved: bool) -> None:
    """While something is unsaved, the browser asks before it loads the page again or closes it: what was written would be lost."""
    with st.container(key="ask-first"):
        _ask_first(key="ask-first-script", data=unsaved)
