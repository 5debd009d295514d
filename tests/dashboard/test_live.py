"""A page that follows runs, drawn again."""

from streamlit.testing.v1 import AppTest


def page() -> None:
    import streamlit as st
    from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx

    from dashboard.components.live import draw_again

    seen = st.session_state.setdefault("seen", [])
    seen.append(st.query_params.get("page"))
    context = get_script_run_ctx()
    if context is not None and context.script_requests is not None and len(seen) == 1:
        context.script_requests.request_rerun(RerunData(query_string="page=next"))  # as a click on a link does
        draw_again()


def test_a_click_on_a_link_goes_before_the_page_is_drawn_again() -> None:
    assert AppTest.from_function(page).run().session_state["seen"] == [None, "next"]
