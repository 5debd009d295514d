"""The search in a run's completions against a real backend."""

import pytest
import recorded
from following import follow
from on_screen import Open, press, shown
from serving import Backend, one_for_all
from streamlit.testing.v1 import AppTest

from dashboard.components.listing import ROWS

backend = pytest.fixture(one_for_all)  # only one test adds to the run, and it has its own


def record(backend: Backend) -> int:
    """Two steps: a live group with four texts, and a dead one with sixty."""
    made, claimed = recorded.started(backend.client)
    first = recorded.group_of(
        0, [1.0, 0.1, 0.0, None], texts=["a violet whale", "a violet cat", "a green whale", "<b>whale</b>"]
    )
    dead = recorded.group_of(1, [1.0] * 60, texts=[f"number {place}" for place in range(60)])
    for step, group in enumerate((first, dead)):
        recorded.report(backend.client, made, claimed.attempt, step, [group])
    return made


@pytest.fixture(scope="module")
def run_id(shared_backend: Backend) -> int:
    return record(shared_backend)


def found(at: AppTest) -> list[str]:
    return [str(text) for text in at.dataframe[0].value["completion"]]


def test_words_ranges_states_and_ends_find_the_completions_in_the_order_chosen_and_a_line_opens_its_group(
    open_page: Open, run_id: int, backend: Backend
) -> None:
    at = open_page("run", id=run_id, tab="search", find="whale")
    assert found(at) == ["a violet whale", "a green whale", "<b>whale</b>"]
    at.text_input(key="find").set_value("violet").run()
    assert found(at) == ["a violet whale", "a violet cat"]

    at.text_input(key="find").set_value("cat").run()
    at.session_state[f"found-{run_id}"] = {"selection": {"rows": [], "columns": [], "cells": [(0, "completion")]}}
    follow(at.run())
    group = backend.client.groups(run_id, step=0).items[0]
    assert at.query_params == {"id": str(group.id), "tokens": "2"}

    at = open_page("run", id=run_id, tab="search", steps_to=0)
    for field, value, texts in (
        ("reward_from", 0.05, ["a violet whale", "a violet cat"]),
        ("reward_to", 0.05, ["a green whale"]),
        ("advantage_from", 0.1, ["a violet whale"]),
        ("tokens_to", 12, ["a violet cat", "<b>whale</b>"]),
    ):
        at.number_input(key=field).set_value(value).run()
        assert found(at) == texts, field
        at.number_input(key=field).set_value(None).run()

    at = open_page("run", id=run_id, tab="search", group_state="live", hit_order="lowest reward first")
    assert found(at) == ["a green whale", "a violet cat", "a violet whale", "<b>whale</b>"]
    at.selectbox(key="finish").set_value("cut at the token limit").run()
    assert found(at) == ["a green whale", "<b>whale</b>"]


def test_an_address_brings_back_every_field_and_the_page_and_what_finds_nothing_is_one_click_from_everything(
    open_page: Open, run_id: int, backend: Backend
) -> None:
    at = open_page("run", id=run_id, tab="search", find="number", steps_from=1, reward_from=0.5)
    assert len(found(at)) == ROWS
    at.button(key="found-next").click().run()
    assert len(found(at)) == 60 - ROWS
    assert at.button(key="found-next").disabled

    again = open_page("run", **dict(at.query_params))
    assert found(again) == found(at)
    again.button(key="found-previous").click().run()
    assert len(found(again)) == ROWS
    assert "found" not in again.query_params

    at.text_input(key="find").set_value("number 1").run()
    assert len(found(at)) == 11

    at = open_page("run", id=run_id, tab="search", find="unicorn", reward_from=0.5)
    assert "No completion fits" in shown(at)
    assert "Search for a shorter piece" in shown(at)
    assert "Widen the ranges" in shown(at)
    assert "Widen" not in shown(open_page("run", id=run_id, tab="search", find="unicorn"))
    assert "shorter" not in shown(open_page("run", id=run_id, tab="search", reward_from=7))
    press(at, "Show all completions")
    assert len(found(at)) == ROWS
    assert at.number_input(key="reward_from").value is None

    at = open_page("run", id=recorded.queue(backend.client, sampling={"engine": "vllm"}), tab="search")
    assert "No completions yet" in shown(at)


def test_a_line_that_is_clicked_is_the_line_that_was_seen_though_a_step_came_since(
    open_page: Open, backend: Backend
) -> None:
    run_id = record(backend)
    at = open_page("run", id=run_id, tab="search", hit_order="latest first")
    seen = backend.client.completions(run_id, sort="-step", limit=1).items[0]
    recorded.report(backend.client, run_id, 1, 2, [recorded.group_of(0, [1.0, 0.1], texts=["new", "newer"])])
    at.session_state[f"found-{run_id}"] = {"selection": {"rows": [], "columns": [], "cells": [(0, "completion")]}}
    follow(at.run())
    assert at.query_params == {"id": str(seen.group_id), "tokens": str(seen.index + 1)}
