"""A run's prompts, and one prompt through time and across runs, against a real backend."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
import recorded
import streamlit as st
from following import follow
from on_screen import Open, shown
from serving import Backend, one_for_all
from streamlit.testing.v1 import AppTest

from backend.contract.groups import GroupReport, GroupState
from dashboard.charts.figure import PICKED
from dashboard.prompts import draws

backend = pytest.fixture(one_for_all)  # no test changes the run that others read, and what one adds is of other runs

ADDITION, PRODUCT, PROBE = "What is 1 + 1?", "What is 2 x 3?", "What is 5 - 5?"


def group(
    index: int, prompt: str, rewards: Sequence[float | None], texts: Sequence[str] = (), state: GroupState = "live"
) -> GroupReport:
    """A group of that prompt, whose id follows from its words."""
    made = recorded.group_of(index, rewards, texts=texts or None, prompt=prompt)
    return made.model_copy(update={"prompt_id": prompt.replace(" ", ""), "state": state})


def report(backend: Backend, name: str, steps: Sequence[Sequence[GroupReport]]) -> int:
    run_id, claimed = recorded.started(backend.client, name)
    for step, groups in enumerate(steps):
        recorded.report(backend.client, run_id, claimed.attempt, step, groups)
    recorded.finish(backend.client, run_id, claimed)
    return run_id


@pytest.fixture(scope="module")
def run_id(shared_backend: Backend) -> int:
    """A sum that is learned over three draws, a product drawn once, a probe drawn twice."""
    return report(
        shared_backend,
        "the **first**",
        [
            [group(0, ADDITION, [0.0, 0.1], ["it is 3", "it is 11"]), group(1, PROBE, [0.1, 0.0], state="probe")],
            [
                group(0, ADDITION, [1.0, 0.0], ["it is 2", "it is 1"]),
                group(1, PRODUCT, [1.0, 1.0], state="zero_variance"),
            ],
            [group(0, ADDITION, [1.0, 0.5], ["it is two", "2"]), group(1, PROBE, [1.0, 0.0], state="probe")],
        ],
    )


def drawn(at: AppTest) -> list[str]:
    """Both sides of the difference, as HTML."""
    return [html.value for html in at.get("html") if html.value.startswith('<div class="model-text difference"')]


def sides(at: AppTest) -> list[str]:
    return [re.sub("<[^>]*>", "", side) for side in drawn(at)]


def history(run_ids: str) -> dict[str, str]:
    return {"prompt": ADDITION.replace(" ", ""), "runs": run_ids}


def test_every_prompt_has_its_draws_and_its_change_is_sorted_and_searched_and_a_line_opens_its_history(
    open_page: Open, run_id: int
) -> None:
    at = open_page("run", id=run_id, tab="prompts")
    table = at.dataframe[0].value
    assert table[["probe", "prompt", "draws", "steps"]].values.tolist() == [
        ["", ADDITION, 3, "0 … 2"],
        ["probe", PROBE, 2, "0 … 2"],
        ["", PRODUCT, 1, "1"],
    ]
    assert table["first"].tolist() == ["0.0500", "0.0500", "1.00"]
    assert table["change"].tolist() == ["+0.700", "+0.450", "–"]
    assert "1 of them probes" in shown(at)

    at.session_state[f"prompts-{run_id}"] = {"selection": {"rows": [], "columns": [], "cells": [(0, "prompt")]}}
    follow(at.run())
    assert at.query_params["prompt"] == ADDITION.replace(" ", "")
    assert at.query_params["runs"] == str(run_id)
    assert at.dataframe[0].value["step"].tolist() == [0, 1, 2]

    at = open_page("run", id=run_id, tab="prompts", words="What", prompt_order="in order of appearance")
    assert at.dataframe[0].value["prompt"].tolist() == [ADDITION, PROBE, PRODUCT]
    at.text_input(key="words").set_value("x 3").run()
    assert at.dataframe[0].value["prompt"].tolist() == [PRODUCT]
    at.text_input(key="words").set_value("nothing of the kind").run()
    assert "No prompt has these words" in shown(at)


def test_a_history_holds_the_best_of_the_first_draw_against_the_latest_or_any_two_that_the_address_names(
    open_page: Open, run_id: int, backend: Backend
) -> None:
    at = open_page("prompt", **history(str(run_id)))
    assert sides(at) == ["it is 11", "it is two"]
    assert [side.count("<mark>") for side in drawn(at)] == [1, 1]

    draws = backend.client.groups_of_prompt(prompt_id=ADDITION.replace(" ", ""), runs=[run_id]).items
    at.selectbox(key="b").set_value(draws[1].id).run()
    at.selectbox(key="b_says").set_value(1).run()
    assert (at.query_params["b"], at.query_params["b_says"]) == (str(draws[1].id), "1")
    again = open_page("prompt", **{name: at.query_params[name] for name in at.query_params})
    assert again.selectbox(key="b").value == draws[1].id
    assert sides(again) == ["it is 11", "it is 1"]


def test_the_same_prompt_stands_side_by_side_across_runs(open_page: Open, backend: Backend, run_id: int) -> None:
    other = report(backend, "second", [[group(0, ADDITION, [0.0, 0.0], ["what?", "why?"])]])
    strange = report(backend, "third", [[group(0, "Another prompt", [0.0, 0.0])]])
    at = open_page("prompt", **history(str(run_id)))
    offered = at.multiselect(key="of-runs").options
    assert f"#{other} second" in offered
    assert f"#{strange} third" not in offered

    at.multiselect(key="of-runs").set_value([run_id, other]).run()
    assert at.query_params["runs"] == f"{run_id},{other}"
    assert at.dataframe[0].value["run"].tolist() == [f"#{run_id}"] * 3 + [f"#{other}"]
    assert {"it is two", "what?"} <= {code.value for code in at.code}

    at.select_slider(key="at").set_value(0).run()
    assert {"it is 11", "what?"} <= {code.value for code in at.code}
    assert at.query_params["at"] == "0"


def test_a_click_on_a_point_compares_that_runs_draw(
    open_page: Open, backend: Backend, run_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = report(backend, "second", [[group(0, ADDITION, [0.2, 0.0], ["what?", "why?"])]])  # at step 0, as the first

    def click(sent: pa.Table, spec: Any, *, key: str, on_select: Callable[[], None], **_: object) -> None:
        """What the browser does with a click on the second run's point."""
        data = sent.to_pandas()
        point = data[data["label"] == f"#{other} second"].iloc[0]
        asked = next(one["select"]["fields"] for one in spec["params"] if one["name"] == PICKED)
        st.session_state[key] = {"selection": {PICKED: [{name: point[name] for name in asked}]}}
        on_select()

    monkeypatch.setattr(st, "vega_lite_chart", click)
    at = open_page("prompt", **history(f"{run_id},{other}"))
    draw = backend.client.groups_of_prompt(prompt_id=ADDITION.replace(" ", ""), runs=[other]).items[0]
    assert at.query_params["b"] == str(draw.id)
    assert sides(at)[1] == "what?"


def test_a_run_with_many_draws_takes_no_other_runs_place_and_keeps_its_newest(
    open_page: Open, backend: Backend, run_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draws, "MOST", 4)
    monkeypatch.setattr(draws, "_PAGE", 1)
    other = report(backend, "second", [[group(0, ADDITION, [0.0, 0.0])], [], [], [group(0, ADDITION, [0.2, 0.0])]])
    at = open_page("prompt", **history(f"{run_id},{other}"), at=0)
    assert at.dataframe[0].value[["run", "step"]].values.tolist() == [
        *([f"#{run_id}", 1], [f"#{run_id}", 2]),
        *([f"#{other}", 0], [f"#{other}", 3]),
    ]
    said = shown(at)
    assert "**4 draws**, the newest 2 of each run: older ones are not shown" in said
    assert "Its draws up to step 0 are not on this page, only its newest 2." in said  # of the first run
    assert "step 0 · 1 draw · mean 0" in said  # of the second, which is whole
    assert "Not drawn" not in said
    at.select_slider(key="at").set_value(3).run()
    assert "step 2 · more than 2 draws · mean 0.750" in shown(at)


def test_a_history_says_where_no_run_drew_the_prompt_a_deleted_run_leaves_the_others_and_at_first_there_are_none(
    open_page: Open, run_id: int, backend: Backend
) -> None:
    assert "does not name a prompt" in shown(open_page("prompt"))
    assert "has drawn this prompt" in shown(open_page("prompt", prompt="unknown", runs=run_id))
    assert "has drawn this prompt" in shown(open_page("prompt", **history("999")))
    assert len(open_page("prompt", **history(f"999,{run_id}")).dataframe[0].value) == 3

    waiting = recorded.queue(backend.client, sampling={"engine": "vllm"})
    assert "No prompts yet" in shown(open_page("run", id=waiting, tab="prompts"))
