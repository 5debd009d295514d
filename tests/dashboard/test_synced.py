"""Widgets that follow the address, where the browser sends once more what they showed before."""

import pytest
from clock import Clock
from streamlit.testing.v1 import AppTest

from dashboard.components import synced


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(synced, "monotonic", clock)
    return clock


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


def test_what_the_toggle_showed_before_the_click_does_not_undo_it_nor_later_where_the_address_is_not_known_yet(
    at: AppTest, clock: Clock
) -> None:
    for _ in range(2):
        at.toggle[0].set_value(True).run()
        assert shown(at) == (False, "step 3")
    clock.now += 0.6  # a little more than a browser needs, and less than a slow line does
    at.query_params.clear()
    at.toggle[0].set_value(True).run()
    assert shown(at) == (False, "step 3")


def test_a_person_who_has_seen_the_answer_is_heard(at: AppTest, clock: Clock) -> None:
    clock.now += 0.6
    at.toggle[0].set_value(True).run()
    assert shown(at) == (True, "step newest")


def test_on_a_page_where_nothing_was_clicked_before_a_person_is_heard_at_once() -> None:
    at = AppTest.from_function(page)
    at.query_params["step"] = "3"
    at.run()
    for on, step in ((True, "step newest"), (False, "step 5"), (True, "step newest")):
        at.toggle[0].set_value(on).run()
        assert shown(at) == (on, step)


def following() -> None:
    import streamlit as st

    from dashboard.components.address import read, write
    from dashboard.components.synced import on_choice, sync

    newest, wanted = st.session_state.setdefault("newest", 3), read("step")
    sync("at", int(wanted or newest), follows=not wanted)
    st.select_slider("Step", range(newest + 1), key="at", on_change=on_choice("at", lambda step: write(step=str(step))))
    st.button("Something else")


def test_of_a_page_that_follows_a_run_a_step_is_kept_to_if_a_person_chose_it_and_not_if_the_browser_lags_behind(
    clock: Clock,
) -> None:
    at = AppTest.from_function(following).run()
    for newest in (4, 5):
        at.session_state["newest"] = newest
        at.run()
        assert not at.exception
    for shown in (3, 4):
        at.select_slider[0].set_value(shown)
        at.button[0].click().run()
        assert (at.select_slider[0].value, dict(at.query_params)) == (5, {})
    clock.now += 0.6
    at.select_slider[0].set_value(3).run()
    assert at.select_slider[0].value == 3
    assert at.query_params["step"] in ("3", ["3"])
