"""How a run's name, a row of figures and a chart's place look, where Streamlit's theme cannot say it."""

import streamlit as st

TITLE = "run-title"  # keys of the containers that the rules name
FIGURES = "figures"
CHARTS = "charts"

# A chart's place is there before the chart: what lies below does not jump, and is not taken for what is in sight.
# A name is plain text, never a heading's Markdown; it only looks like one.
_RULES = f"""<style>
.st-key-{TITLE} [data-testid="stText"] {{ font-family: inherit; font-size: 1.6rem; font-weight: 650; line-height: 1.3; }}
.st-key-{FIGURES} [data-testid="stMetricValue"] {{ font-size: 1.35rem; }}
.st-key-{CHARTS} [data-testid="stColumn"] {{ min-height: 16.5rem; }}
@media (max-width: 640px) {{
  .st-key-{FIGURES} [data-testid="stHorizontalBlock"] {{ gap: 0.4rem 0.75rem; }}
  .st-key-{FIGURES} [data-testid="stColumn"] {{ flex: 1 1 30%; min-width: 30%; }}
  .st-key-{FIGURES} [data-testid="stMetricValue"] {{ font-size: 1rem; }}
}}
</style>"""


def apply_style() -> None:
    """Put the rules on the page."""
    st.html(_RULES)


def count_on_tab(tabs: str, place: int, count: int) -> None:
    """Write how many there are behind the name of a tab, if there are some; `tabs` is the key of the row.

    Part of the name itself, a new count would be another row of tabs to Streamlit: the browser would build all that is on the open
    one anew, and lose a click on a table in it.
    """
    shown = f"content: ' · {count}'" if count else ""
    st.html(f"<style>.st-key-{tabs} [role='tab']:nth-of-type({place + 1}) p::after {{ {shown} }}</style>")
