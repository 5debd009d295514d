"""Keys that Streamlit's own shortcuts do not know, such as [ ] and /: each presses a button or goes to a field of the page."""

from collections.abc import Mapping

import streamlit as st

# `data-keys` says which keys act by now: the script comes a moment after the rest of the page. A button may come even later than
# the script, and after its own frame: a key pressed in between waits for it.
# Typing belongs to the field that is typed into, and a table has arrow keys of its own. AltGr, which some keyboards need for a bracket, counts as Ctrl with Alt.
_SCRIPT = """
export default function ({ data }) {
  const find = (place) => document.querySelector(`.st-key-${place} :is(input, button)`)
  const act = (place, frames = 60) => {
    const field = find(place)
    if (!field && frames) requestAnimationFrame(() => act(place, frames - 1))
    if (!field || field.disabled) return
    field.tagName === "INPUT" ? field.focus() : field.click()
  }
  const onKey = (event) => {
    const place = data[event.key]
    const busy = event.target.closest("input, textarea, select, [contenteditable=true], [data-testid=stDataFrame]")
    if (!place || busy || event.metaKey || event.ctrlKey !== event.altKey || event.repeat) return
    if (find(place)?.disabled || !document.querySelector(`.st-key-${place}`)) return
    event.preventDefault()
    act(place)
  }
  document.addEventListener("keydown", onKey)
  document.body.dataset.keys = Object.keys(data).join(" ")
  return () => {
    document.removeEventListener("keydown", onKey)
    delete document.body.dataset.keys
  }
}
"""
_keys = st.components.v2.component("groupscope.keys", js=_SCRIPT)


def listen(keys: Mapping[str, str]) -> None:
    """While this is on the page, each key acts on the element with that Streamlit key: a field gets the cursor, a button is pressed."""
    _keys(key="keys", data=dict(keys))
