"""What the address says, also where the browser asks for a page before it has heard of a change."""

import ast
import re
from pathlib import Path

import pytest
from clock import Clock
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard.components import address

ROOT = Path(dashboard.__file__).parent
SOURCES = list(ROOT.rglob("*.py"))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(address, "monotonic", clock)
    return clock


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


def test_a_request_from_before_takes_nothing_back_even_if_it_is_answered_late(at: AppTest, clock: Clock) -> None:
    for seconds in (0.0, 0.0, 20.0):  # the page was drawn that long
        at.query_params.clear()
        clock.now += seconds
        assert shown(at.run()) == ["knows False", "step 3"]
    assert at.query_params["step"] == "3"


def test_a_pulse_sends_what_the_browser_should_have_heard_of_again(at: AppTest, clock: Clock) -> None:
    at.query_params["pulse"] = "yes"
    assert shown(at.run()) == ["knows False"]
    assert at.query_params == {"pulse": "yes"}  # it may be on its way
    clock.now += 2.1
    assert shown(at.run()) == ["knows False"]
    assert at.query_params == {"pulse": "yes", "step": "3"}
    assert shown(at.run()) == ["knows True"]


def test_what_a_widget_has_been_bound_to_since_is_the_widgets(at: AppTest, clock: Clock) -> None:
    at.button[2].click().run()
    at.query_params.clear()
    at.query_params.update({"bound": "yes", "pulse": "yes"})
    clock.now += 2.1
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


def test_a_request_from_before_an_earlier_choice_takes_nothing_back(at: AppTest, clock: Clock) -> None:
    at.button[1].click().run()
    at.query_params.clear()
    clock.now += 20.0
    assert shown(at.run()) == ["knows False", "step 4"]
    at.query_params["step"] = "3"
    assert shown(at.run()) == ["knows False", "step 4"]


def test_after_the_browser_has_named_it_its_address_leads_again(at: AppTest, clock: Clock) -> None:
    at.query_params["step"] = "3"
    assert shown(at.run()) == ["knows True", "step 3"]
    clock.now += 2.1
    at.query_params.clear()
    assert shown(at.run()) == ["knows True", "step newest"]


@pytest.mark.parametrize(
    ("query", "seconds", "step"),
    [({"step": "5"}, 0.0, "5"), ({"id": "2"}, 0.0, "newest"), ({}, 31.0, "newest")],
    ids=["another value was chosen since", "another page has an address of its own", "a browser that never names it"],
)
def test_the_browsers_address_leads(
    at: AppTest, clock: Clock, query: dict[str, str], seconds: float, step: str
) -> None:
    at.query_params.update(query)
    clock.now += seconds
    assert shown(at.run()) == ["knows True", f"step {step}"]


def test_who_goes_back_is_not_held(at: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "by_history", lambda: True)
    assert shown(at.run()) == ["knows True", "step newest"]


def bound(source: Path) -> list[str]:
    """The keys, written as they are, of the widgets that a file binds to the address."""
    calls = (node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call))
    given = [{one.arg: one.value for one in call.keywords} for call in calls]
    return [
        str(ast.literal_eval(one["key"])) for one in given if "bind" in one and isinstance(one["key"], ast.Constant)
    ]


def test_no_two_widgets_have_one_name_in_the_address() -> None:
    """Streamlit would take what one held on the page before for what the other holds, and write it into the new page's address."""
    keys = [key for source in SOURCES for key in bound(source)]
    assert len(keys) > 20
    assert sorted(keys) == sorted(set(keys))


def test_one_module_alone_reads_and_writes_the_address() -> None:
    """The others ask it: what it wrote holds against a request that the browser sent before it saw the new address."""
    users = {source for source in SOURCES if re.search(r"\bst\.query_params", source.read_text())}
    assert users == {ROOT / "components/address.py"}
