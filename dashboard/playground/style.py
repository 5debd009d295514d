"""How the Playground looks, where Streamlit's theme cannot say it."""

import streamlit as st

_RULES = """<style>
table.play-readings { width: 100%; border-collapse: collapse; font-size: 0.9rem; }
table.play-readings th { font-weight: 400; opacity: 0.65; text-align: right; padding: 0.1rem 0.4rem; }
table.play-readings td { text-align: right; padding: 0.3rem 0.4rem; border-top: 1px solid rgba(128, 134, 145, 0.25); }
table.play-readings td:first-child { text-align: left; line-height: 1.25; }
table.play-readings td:last-child { font-weight: 600; white-space: nowrap; }
table.play-readings small { opacity: 0.65; }
table.play-readings tr.chosen td:first-child { box-shadow: inset 3px 0 0 #3a86d6; }
table.play-tokens { width: 100%; table-layout: fixed; border-collapse: collapse; font-size: 0.9rem; }
table.play-tokens th { font-weight: 400; opacity: 0.65; }
table.play-tokens td, table.play-tokens th { text-align: right; padding: 0.2rem 0.4rem; }
table.play-tokens td:first-child, table.play-tokens th:first-child { text-align: left; }
table.play-tokens td { border-top: 1px solid rgba(128, 134, 145, 0.25); }
.st-key-play-status { margin-top: -0.5rem; }
.st-key-play-examples, .st-key-play-cases { margin-top: -0.6rem; }
.st-key-play-examples button, .st-key-play-cases button { padding: 0 0.4rem; min-height: 1.6rem; }
.st-key-play-examples button p, .st-key-play-cases button p { font-size: 0.87rem; color: #3a86d6; }
</style>"""


def apply_style() -> None:
    """Put the rules on the page."""
    st.html(_RULES)


def draw_title(title: str, question: str) -> None:
    """The title of a part, and beside it what the part is about."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.markdown(f"##### {title}", width="content")
        st.caption(question, width="stretch")
