"""The prompts of compared runs: which runs are looked at, and which stand side by side."""

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlparse

import pytest
from streamlit.testing.v1 import AppTest

from backend.contract.inspection import PromptSummary
from backend.contract.records import Page, Progress, Run
from dashboard.comparison import prompts


class Recorded:
    """Answers as the backend does, with one prompt that every run drew, and one that only the last two drew."""

    def __init__(self, runs: int) -> None:
        self.last_two = (runs - 1, runs)
        self.asked: list[int] = []

    def prompts(self, run_id: int, *, search: str | None, sort: str, limit: int) -> Page[PromptSummary]:
        self.asked.append(run_id)
        return Page(items=[drawn(name) for name in ("all", "late")[: 1 + (run_id in self.last_two)]])


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
    assert linked(prompts.side_by_side("late", {30: drawn("late"), 31: drawn("late")})) == [30, 31]
    assert linked(prompts.side_by_side("all", {number: drawn("all") for number in range(1, 46)})) == [*range(1, 21)]


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
    assert sorted(backend.asked) == [*range(1, 21)]
    assert "Searched: the first 20 of 31 runs." in [caption.value for caption in at.caption]
    at.button(key="more-prompt-runs").click().run()
    assert sorted(backend.asked) == [*range(1, 32)]
    assert [linked(address) for address in at.dataframe[0].value["side by side"]] == [[*range(1, 21)], [30, 31]]
    assert not at.button


def test_the_largest_sweep_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = recorded(monkeypatch, 200)
    for _ in range(2):
        for number in range(1, 201):
            prompts._ask_once(number, 1, "")
    assert len(backend.asked) == 200
