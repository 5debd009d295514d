"""What the address says, also where the browser asks for a page before it has heard of a change."""

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.components import address


def page() -> None:
    import streamlit as st

    from dashboard.components.address import browser_knows, listen, read, write

    st.button("Step 3", on_click=write, kwargs={"step": "3"})
    st.button("Step 4", on_click=write, kwargs={"step": "4"})
    st.button("Step 3 of the groups", on_click=write, kwargs={"step": "3", "tab": "groups"})
    st.text(f"knows {browser_knows()}")
    if "bound" in st.query_params:
        st.text_input("Step", key="step", bind="query-params")
    if "pulse" in st.query_params:
        listen()
        st.stop()
    if "unread" not in st.query_params:
        st.text(f"step {read('step', 'newest')}")


def shown(at: AppTest) -> list[str]:
    assert not at.exception
    return [text.value for text in at.text]


@pytest.fixture
def at() -> AppTest:
    """The page after a click, and a request that left before the browser heard of what the click wrote."""
    at = AppTest.from_function(page).run()
    assert shown(at) == ["knows True", "step newest"]
    at.button[0].click().run()
    assert shown(at) == ["knows True", "step 3"]
    at.query_params.clear()
    return at


def test_a_request_from_before_takes_nothing_back(at: AppTest) -> None:
    for _ in range(2):
        at.query_params.clear()
        at.run()
        assert shown(at) == ["knows False", "step 3"]
    assert at.query_params["step"] == "3"


def test_a_pulse_sends_what_the_browser_should_have_heard_of_again(
    at: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.query_params["pulse"] = "yes"
    assert shown(at.run()) == ["knows False"]
    assert at.query_params == {"pulse": "yes"}  # it may be on its way
    later = address.monotonic() + 2.1
    monkeypatch.setattr(address, "monotonic", lambda: later)
    assert shown(at.run()) == ["knows False"]
    assert at.query_params == {"pulse": "yes", "step": "3"}
    assert shown(at.run()) == ["knows True"]


def test_what_a_widget_has_been_bound_to_since_is_the_widgets(at: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    at.button[2].click().run()
    at.query_params.clear()
    at.query_params.update({"bound": "yes", "pulse": "yes"})
    later = address.monotonic() + 2.1
    monkeypatch.setattr(address, "monotonic", lambda: later)
    assert shown(at.run()) == ["knows False"]
    assert at.query_params == {"bound": "yes", "pulse": "yes", "tab": "groups"}


def test_what_a_tick_brought_holds_for_the_request_that_it_overtook() -> None:
    at = AppTest.from_function(page)
    at.query_params["unread"] = "yes"
    at.run()
    at.button[0].click().run()
    assert shown(at) == ["knows True"]
    at.query_params.clear()
    at.run()
    assert shown(at) == ["knows False", "step 3"]


def test_a_request_from_before_that_is_answered_late_takes_nothing_back(
    at: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = address.monotonic() + 20.0  # the page was drawn that long
    monkeypatch.setattr(address, "monotonic", lambda: later)
    assert shown(at.run()) == ["knows False", "step 3"]


def test_a_request_from_before_an_earlier_choice_takes_nothing_back(
    at: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.button[1].click().run()
    at.query_params.clear()
    later = address.monotonic() + 20.0
    monkeypatch.setattr(address, "monotonic", lambda: later)
    assert shown(at.run()) == ["knows False", "step 4"]
    at.query_params["step"] = "3"
    assert shown(at.run()) == ["knows False", "step 4"]


def test_after_the_browser_has_named_it_its_address_leads_again(at: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    at.query_params["step"] = "3"
    assert shown(at.run()) == ["knows True", "step 3"]
    later = address.monotonic() + 2.1
    monkeypatch.setattr(address, "monotonic", lambda: later)
    at.query_params.clear()
    assert shown(at.run()) == ["knows True", "step newest"]


def test_another_value_than_before_was_chosen_since(at: AppTest) -> None:
    at.query_params["step"] = "5"
    assert shown(at.run()) == ["knows True", "step 5"]


def test_a_browser_that_never_names_it_leads_again_at_last(at: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    later = address.monotonic() + 31.0
    monkeypatch.setattr(address, "monotonic", lambda: later)
    assert shown(at.run()) == ["knows True", "step newest"]


def test_another_page_has_an_address_of_its_own(at: AppTest) -> None:
    at.query_params["id"] = "2"
    assert shown(at.run()) == ["knows True", "step newest"]


def test_who_goes_back_is_not_held(at: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "by_history", lambda: True)
    assert shown(at.run()) == ["knows True", "step newest"]
