"""The shell around every page: navigation, title, and one line about the workers. Streamlit runs it for each page."""

from pathlib import Path
from typing import get_args

import streamlit as st

from backend.contract.client import ApiError, Unreachable
from backend.server.log import about_run
from dashboard.components.address import follow_link, listen, read
from dashboard.format import counted
from dashboard.leaving import leave_in_one_step
from dashboard.session import AWAY, NAVIGATION, PageName, client, script, settings

TITLE = "Groupscope"
# Three completions of a group and their mean: one above it, one on it, one below.
_DOTS = (
    '<path d="M2 12h20" stroke="#8c929c" stroke-width="1.5"/><circle cx="6" cy="6" r="3.2" fill="#3a86d6"/>'
    '<circle cx="12" cy="12" r="3.2" fill="#8c929c"/><circle cx="18" cy="18" r="3.2" fill="#e8851c"/>'
)
MARK = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="24" height="24">{_DOTS}</svg>'
WORDMARK = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 132 24" width="132" height="24">{_DOTS}'
    f'<text x="31" y="17.5" font-family="Source Sans, Arial, sans-serif" font-size="17" font-weight="600" fill="#7d8794">'
    f"{TITLE}</text></svg>"
)


@st.fragment(run_every=3)
def pulse() -> None:
    """One line for the whole machine: 1 worker, busy · 2 queued. Draws the page again when the backend is back."""
    listen()
    line = _read_pulse()
    if line is not None and st.session_state.pop(AWAY, False):
        st.rerun()
    with st.container(key="pulse"):
        st.caption(":red[backend away]" if line is None else line)


@st.cache_data(ttl=2, max_entries=1, show_spinner=False)
def _read_pulse() -> str | None:
    """The line; None if the backend does not answer."""
    try:
        workers = [worker for worker in client().workers() if worker.alive]
        if settings().viewing and not workers:
            return ""
        queued = client().runs(kind="training", status="queued", limit=100)
    except Unreachable:
        return None
    except ApiError as refusal:
        return ":red[token refused]" if refusal.status == 401 else ":red[backend fails]"
    busy = sum(worker.run_id is not None for worker in workers)
    if not workers:
        state = ":orange[no worker]"
    elif len(workers) == 1:
        state = "1 worker, busy" if busy else "1 worker, idle"
    else:
        state = f"{counted(len(workers), 'worker')}, {busy} busy"
    waiting = f"{len(queued.items)}{'+' if queued.next_cursor else ''}"
    return f"{state} · {waiting} queued" if queued.items else state


def main() -> None:
    """Draw the frame, then run the page."""
    st.logo(WORDMARK, size="medium")
    st.html(Path(__file__).with_name("style.css"))
    shown = set(NAVIGATION) - ({"new-run", "workers"} if settings().viewing else set())
    page = st.navigation(
        [
            st.Page(
                script(name),
                title=name.replace("-", " ").capitalize(),
                url_path=name,
                default=name == "runs",
                visibility="visible" if name in shown else "hidden",
            )
            for name in get_args(PageName)
        ],
        position="top",
    )
    st.set_page_config(page_title=f"{page.title} · {TITLE}", page_icon=MARK, layout="wide")
    about_run(read("id") if page.url_path == "run" else None)
    leave_in_one_step()
    follow_link()
    pulse()
    page.run()


main()
