"""What lies far down a page is drawn when somebody comes there."""

import streamlit as st

_SCRIPT = """
export default function ({ parentElement, setStateValue }) {
  const place = parentElement.host ?? parentElement
  const watch = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && setStateValue("seen", true))
  watch.observe(place)
  return () => watch.disconnect()
}
"""
_place = st.components.v2.component("groupscope.place", html="<span>&nbsp;</span>", js=_SCRIPT)


def in_sight(key: str) -> bool:
    """Whether somebody has scrolled to the end of what is drawn so far. Where not, this marks the place and draws again once it is so."""
    if st.session_state.get(key):
        return True

    def seen() -> None:
        st.session_state[key] = True

    _place(key=f"place-{key}", on_seen_change=seen)
    return False
