"""Widgets that follow the address, where the browser sends once more what they showed before."""

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.components import synced


def page() -> None:
    import streamlit as st

    from dashboard.components.address import read, write
    from dashboard.components.synced import on_choice, sync

    st.button("Step 3", on_click=write, kwargs={"step": "3"})
    sync("newest", read("step") == "")
    st.toggle(
        "Follow the newest", key="newest", on_change=on_choice("newest", lambda on: write(step=None if on else "5"))
    )
    st.text(f"step {read('step', 'newest')}")


def shown(at: AppTest) -> tuple[bool, str]:
    assert not at.exception
    return at.toggle[0].value, at.text[0].value


@pytest.fixture
def at() -> AppTest:
    """The page after a click that switched the toggle off."""
    at = AppTest.from_function(page).run()
    assert shown(at) == (True, "step newest")
    at.button[0].click().run()
    assert shown(at) == (False, "step 3")
    return at


@pytest.fixture
def later(at: AppTest, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """A little later than a browser needs."""
    now = synced.monotonic() + 0.6
    monkeypatch.setattr(synced, "monotonic", lambda: now)
    return at


def test_what_the_toggle_showed_before_the_click_does_not_undo_it(at: AppTest) -> None:
    for _ in range(2):
        at.toggle[0].set_value(True).run()
        assert shown(at) == (False, "step 3")


def test_nor_later_on_a_slow_line_whose_browser_does_not_know_the_address(later: AppTest) -> None:
    later.query_params.clear()
    later.toggle[0].set_value(True).run()
    assert shown(later) == (False, "step 3")


def test_a_person_who_has_seen_the_answer_is_heard(later: AppTest) -> None:
    later.toggle[0].set_value(True).run()
    assert shown(later) == (True, "step newest")


def test_on_a_page_where_nothing_was_clicked_before_a_person_is_heard_at_once() -> None:
    at = AppTest.from_function(page)
    at.query_params["step"] = "3"
    at.run()
    for on, step in ((True, "step newest"), (False, "step 5"), (True, "step newest")):
        at.toggle[0].set_value(on).run()
        assert shown(at) == (on, step)
