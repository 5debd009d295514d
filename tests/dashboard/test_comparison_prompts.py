"""The prompts of compared runs: which runs are looked at, and which stand side by side."""

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlparse

import pytest
from streamlit.testing.v1 import AppTest

from backend.contract.inspection import CommonPrompt, PromptSummary
from backend.contract.records import Page, Progress, Run
from dashboard.comparison import prompts


class Recorded:
    """Answers as the backend does, with one prompt that every run drew, and one that only the last two drew."""

    def __init__(self, runs: int) -> None:
        self.last_two = (runs - 1, runs)
        self.asked: list[list[int]] = []

    def common_prompts(self, *, runs: list[int], search: str | None, limit: int) -> Page[CommonPrompt]:
        self.asked.append(runs)
        late = {run_id: drawn("late") for run_id in runs if run_id in self.last_two}
        items = [{run_id: drawn("all") for run_id in runs}, *([late] if late else [])]
        return Page(items=[CommonPrompt(draws=draws) for draws in items])


def drawn(name: str) -> PromptSummary:
    return PromptSummary(prompt_id=name, prompt=name, draws=1, probes=0, first_step=0, last_step=0)


def run(number: int) -> Run:
    return Run(
        id=number,
        name="x",
        kind="grpo",
        status="finished",
        config={},
        progress=Progress(step=1, total_steps=1),
        attempt=1,
        failures=0,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def recorded(monkeypatch: pytest.MonkeyPatch, runs: int) -> Recorded:
    made = Recorded(runs)
    prompts._ask_once.clear()
    monkeypatch.setattr(prompts, "client", lambda: made)
    return made


def page(runs: "list[Run]") -> None:
    """A page of the prompts alone; its source is a script of its own."""
    from dashboard.comparison.prompts import draw_prompts

    draw_prompts(runs)


def linked(address: str) -> list[int]:
    return [int(number) for number in parse_qs(urlparse(address).query)["runs"][0].split(",")]


def test_side_by_side_stand_the_runs_that_drew_the_prompt_as_many_as_its_page_takes() -> None:
    assert linked(prompts.side_by_side({30: drawn("late"), 31: drawn("late")})) == [30, 31]
    assert linked(prompts.side_by_side({number: drawn("all") for number in range(1, 46)})) == [*range(1, 21)]


def test_one_draw_is_one_number_and_each_run_has_its_name_above_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    one = drawn("once").model_copy(update={"reward_first": 0.55, "reward_last": 0.55})
    assert prompts.course(one) == "0.550"
    assert prompts.course(one.model_copy(update={"draws": 3, "reward_last": 1.0})) == "0.550 → 1.00 (3)"
    assert prompts.course(None) == "–"
    recorded(monkeypatch, 2)
    at = AppTest.from_function(page, default_timeout=20, args=([run(1), run(2)],)).run()
    assert list(at.dataframe[0].value.columns) == ["prompt", "probe", "runs", "x #1", "x #2", "side by side"]


def test_of_many_runs_the_first_are_looked_at_and_more_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = recorded(monkeypatch, 31)
    at = AppTest.from_function(page, default_timeout=20, args=([run(number) for number in range(1, 32)],)).run()
    assert not at.exception
    assert backend.asked == [[*range(1, 21)]]
    assert "Searched: the first 20 of 31 runs." in [caption.value for caption in at.caption]
    at.button(key="more-prompt-runs").click().run()
    assert backend.asked[-1] == [*range(1, 32)]
    assert [linked(address) for address in at.dataframe[0].value["side by side"]] == [[*range(1, 21)], [30, 31]]
    assert not at.button


def test_runs_that_have_ended_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = recorded(monkeypatch, 2)
    for _ in range(2):
        AppTest.from_function(page, default_timeout=20, args=([run(1), run(2)],)).run()
    assert backend.asked == [[1, 2]]


def test_a_prompt_that_each_trainer_names_in_its_own_way_is_opened_under_all_its_names() -> None:
    beside = {1: drawn("arithmetic-7"), 2: drawn("ab12"), 3: drawn("ab12")}
    assert parse_qs(urlparse(prompts.side_by_side(beside)).query) == {
        "runs": ["1,2,3"],
        "prompt": ["arithmetic-7", "ab12"],
    }
