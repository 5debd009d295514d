"""Compared runs: how far they are, the fields that group them, the ends of their series, and their common prompts."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from urllib.parse import parse_qs, urlparse

import pytest
from answers import MADE, run_of
from streamlit.testing.v1 import AppTest

from backend.contract.base import Json
from backend.contract.inspection import CommonPrompt, PromptSummary
from backend.contract.recipes import RECIPES
from backend.contract.records import Metrics, Page, Progress, Run, RunError, Series, Status
from backend.telemetry.stretches import in_stretches, stretch_of
from dashboard.charts.outcome import outcome
from dashboard.comparison import metrics, prompts
from dashboard.comparison.curves import groups_of
from dashboard.comparison.selection import how_far, runs_and_time, seconds_left
from dashboard.comparison.settings import cell, differences, flatten, setting, settings_of_sweep, short_names, swept
from dashboard.sweep.fields import place

# ---- how far they are


def under_way(status: Status, step: int = 0, *, took: float | None = None, eta: float | None = None) -> Run:
    return run_of(
        status=status,
        progress=Progress(step=step, total_steps=100, eta_seconds=eta),
        error=RunError(code="x", message="x") if status == "failed" else None,
        started_at=MADE,
        finished_at=MADE + timedelta(days=2) if took else None,  # it was paused for two days
        trained_seconds=took,
    )


def test_the_rest_takes_as_long_a_step_as_what_has_finished_without_its_pauses_and_two_workers_share_it() -> None:
    waiting, half_done = under_way("queued"), under_way("running", 50)
    runs = [under_way("finished", 100, took=60), under_way("finished", 100, took=100), waiting, waiting]
    assert seconds_left(runs) == pytest.approx(160)
    assert how_far(runs) == "2 of 4 finished · about 3 min left"
    runs = [under_way("finished", 100, took=100), half_done, half_done, waiting]
    assert seconds_left(runs) == pytest.approx(100)
    assert how_far(runs) == "1 of 4 finished · 2 running · about 2 min left"
    ended = [under_way("finished", 100, took=10), under_way("failed", 3, took=1), under_way("stopped", 5, took=1)]
    assert how_far(ended) == "1 of 3 finished · 1 failed · 1 stopped"


def test_before_the_first_has_finished_a_running_one_tells() -> None:
    assert seconds_left([under_way("running", 60, eta=20), under_way("queued")]) == pytest.approx(70)
    assert seconds_left([under_way("running"), under_way("queued")]) is None


def test_how_long_a_sweep_would_take() -> None:
    assert runs_and_time(45, 3900) == "45 runs · about 1 h 05 m with one worker"
    without = runs_and_time(45, 3900, with_evaluations=False)
    assert without == "45 runs · about 1 h 05 m with one worker, evaluations not counted"
    assert "not known yet" in runs_and_time(1, None)


# ---- by which fields they are taken together


def swept_runs(*points: dict[str, Json]) -> list[Run]:
    """A run of the quickstart for each point."""
    configs = [place(RECIPES[0].config, point)[0] for point in points]
    return [run_of(number, status="queued", attempt=0, config=config) for number, config in enumerate(configs)]


def test_what_a_kind_brings_along_was_not_swept() -> None:
    kinds = ("group_zscore", "softmax", "gae")
    made = swept_runs(
        *({"algorithm.advantage.kind": kind, "algorithm.kl.beta": beta} for kind in kinds for beta in (0.0, 0.1))
    )
    assert swept(made) == settings_of_sweep(made) == ["algorithm.advantage.kind", "algorithm.kl.beta"]
    gae, std = {"algorithm.advantage.kind": "gae"}, "algorithm.advantage.std"
    varied = swept_runs(gae, {std: "population"}, {std: "sample"})  # by itself, too
    assert swept(varied) == ["algorithm.advantage.kind", std]


def test_a_part_that_only_some_have_is_one_field() -> None:
    assert len(swept(swept_runs({"model.lora": True}, {"model.lora": False}))) == 1
    many = swept_runs({"model.lora": False}, *({"model.lora": True, "model.lora.rank": rank} for rank in (4, 8)))
    assert swept(many) == ["model.lora.rank"]


def test_many_fields_that_vary_are_all_kept_and_runs_that_differ_in_nothing_are_taken_together_by_their_recipe() -> (
    None
):
    fields = ("optimizer.learning_rate", "optimizer.weight_decay", "sampling.group_size", "sampling.top_p")
    points: list[Sequence[Json]] = [(1e-5, 0.0, 4, 0.9), (2e-5, 0.1, 8, 0.95), (3e-5, 0.2, 16, 1.0)]
    made = swept_runs(*(dict(zip(fields, point, strict=True)) for point in points))
    assert sorted(settings_of_sweep(made)) == list(fields)
    assert settings_of_sweep(swept_runs({}, {})) == ["recipe"]


def test_a_run_without_a_recipe_is_not_taken_for_one_of_the_recipe_named_like_its_kind() -> None:
    with_it, without = (run_of(config={"recipe": recipe}) for recipe in ("grpo", None))
    assert [setting(run, ["recipe"]) for run in (with_it, without)] == ["grpo", "no recipe (grpo)"]


def test_a_label_names_what_a_kind_is_the_kind_of_and_writes_numbers_as_people_do() -> None:
    fields = ["algorithm.advantage.kind", "optimizer.learning_rate"]
    (run,) = swept_runs({"optimizer.learning_rate": 1e-5})
    assert setting(run, fields) == "advantage.kind group_zscore · learning_rate 1e-5"
    assert short_names(["a.b", "c.b"]) == {"a.b": "a.b", "c.b": "c.b"}
    written = [cell(value) for value in (1_000_000, 1e6, -1.0, 8, 2e-4, 0.95, True, None)]
    assert written == ["1,000,000", "1,000,000", "-1", "8", "2e-4", "0.95", "true", "–"]


def test_groups_are_in_the_order_of_their_first_run_and_without_fields_each_run_is_one() -> None:
    rate = "optimizer.learning_rate"
    made = swept_runs({rate: 5e-4}, {rate: 1e-4}, {rate: 5e-4})
    found = {run.id: Metrics(run_id=run.id, series={}) for run in made}
    together = [(group.label, len(group.members)) for group in groups_of(made, found, [rate])]
    assert together == [("learning_rate 5e-4", 2), ("learning_rate 1e-4", 1)]
    assert [group.number for group in groups_of(made, found, [])] == [run.id for run in made]


def test_paths_into_lists_count_from_zero_and_what_only_one_run_has_and_false_beside_zero_are_differences() -> None:
    config: dict[str, Json] = {"rewards": {"functions": [{"name": "a", "weight": 1.0}], "gates": []}, "seed": 0}
    assert flatten(config) == {
        "rewards.functions.0.name": "a",
        "rewards.functions.0.weight": 1.0,
        "rewards.gates": [],
        "seed": 0,
    }
    configs: dict[int, dict[str, Json]] = {1: {"a": 1, "b": 2, "c": False}, 2: {"a": 1, "c": 0}}
    assert differences(configs) == {"b": {1: 2, 2: None}, "c": {1: False, 2: 0}}


# ---- the ends of their series

LONG = 1500  # steps


class Measured:
    """Answers as the backend does: the value of a step is its number. Counts what it is asked."""

    steps, asked = LONG, 0

    def compare_metrics(
        self, *, runs: Iterable[int], names: Iterable[str], from_step: int, to_step: int, width: int
    ) -> Page[Metrics]:
        assert width == 1
        assert to_step - from_step < 64, "not more than a stretch"
        self.asked += 1
        steps = list(range(from_step, min(to_step + 1, self.steps)))
        series = Series(step=steps, value=[float(step) for step in steps])
        return Page(items=[Metrics(run_id=run_id, series=dict.fromkeys(names, series)) for run_id in runs])


def long_run(status: Status, steps: int) -> Run:
    return run_of(status=status, progress=Progress(step=steps, total_steps=2 * LONG))


def thinned(steps: int, *names: str, every: int = 1) -> metrics.Found:
    """Each step, or each n-th one, in stretches of 64."""
    series = in_stretches((stretch_of(step, float(step)) for step in range(0, steps, every)), 64)
    return {1: Metrics(run_id=1, series=dict.fromkeys(names, series))}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    made = Measured()
    metrics._ask_once.clear()
    monkeypatch.setattr(metrics, "client", lambda: made)
    return made


@pytest.mark.parametrize("lines", [1, 8, 20, 200])
def test_250_steps_are_drawn_one_by_one_however_many_lines_there_are(lines: int) -> None:
    assert {metrics.width_of(steps, metrics.points_of(lines)) for steps in range(1, 251)} == {1}


@pytest.mark.parametrize("status", ["running", "paused", "finished"])
@pytest.mark.parametrize("name", ["reward", "step_time"])
def test_the_final_of_a_long_run_is_the_mean_of_its_last_values_wherever_it_is_and_follows_it(
    measured: Measured, status: Status, name: str
) -> None:
    for asked, steps in enumerate((LONG, LONG + 7), 1):
        measured.steps = steps
        # the run's row may be a step behind what it has logged
        found = metrics.with_whole_ends(thinned(steps, name), [long_run(status, steps - 1)], [name], tail=10)
        assert outcome(name, found[1].series, 10).final == steps - 5.5
        assert measured.asked == asked


def test_the_stretch_that_the_end_is_a_part_of_keeps_the_rest_and_its_extremes(measured: Measured) -> None:
    found = metrics.with_whole_ends(thinned(LONG, "reward"), [long_run("running", LONG)], ["reward"], tail=10)
    series = found[1].series["reward"]
    assert series.stretches is not None
    assert series.step[-12:] == [1471, 1489, *range(1490, LONG)]
    assert series.value[-11] == pytest.approx(sum(range(1472, 1490)) / 18)
    assert sum(series.stretches.finite) == LONG
    assert outcome("reward", found[1].series, 10).best == LONG - 1
    assert outcome("frac_unscored", {"frac_unscored": thinned(LONG, "x")[1].series["x"]}, 10).best == 0.0


def test_the_end_of_what_is_logged_now_and_then_reaches_further_back() -> None:
    series = thinned(LONG, "frac_filtered", every=7)[1].series["frac_filtered"]
    assert metrics._begins(series, 10) == 1408
    assert metrics._begins(series, 1000) == 0


def test_nothing_is_asked_where_all_of_the_end_is_there(measured: Measured) -> None:
    evaluations = {1: Metrics(run_id=1, series={"eval/pass@1": Series(step=[0, 900], value=[0.1, 0.9])})}
    assert metrics.with_whole_ends(evaluations, [long_run("running", LONG)], ["eval/pass@1"], tail=10) == evaluations
    steps = list(range(40))
    short = {1: Metrics(run_id=1, series={"reward": Series(step=steps, value=[0.0] * 40)})}
    assert metrics.with_whole_ends(short, [long_run("running", 40)], ["reward", "kl"], tail=10) == short
    assert measured.asked == 0


# ---- their common prompts


def drawn(name: str) -> PromptSummary:
    return PromptSummary(prompt_id=name, prompt=name, draws=1, probes=0, first_step=0, last_step=0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The runs of each request; a prompt that all of them drew answers it, and one that runs 30 and 31 alone drew."""
    asked: list[list[int]] = []

    def common_prompts(*, runs: list[int], **_: object) -> Page[CommonPrompt]:
        asked.append(runs)
        late = {run_id: drawn("late") for run_id in runs if run_id in (30, 31)}
        items = [{run_id: drawn("all") for run_id in runs}, *([late] if late else [])]
        return Page(items=[CommonPrompt(draws=draws) for draws in items])

    prompts._ask_once.clear()
    monkeypatch.setattr(prompts, "client", lambda: SimpleNamespace(common_prompts=common_prompts))
    return asked


def prompts_of(runs: int) -> AppTest:
    def page(runs: "list[Run]") -> None:
        from dashboard.comparison.prompts import draw_prompts

        draw_prompts(runs)

    at = AppTest.from_function(page, default_timeout=20, args=([run_of(number) for number in range(1, runs + 1)],))
    assert not at.run().exception
    return at


def linked(address: str) -> list[int]:
    return [int(number) for number in parse_qs(urlparse(address).query)["runs"][0].split(",")]


def test_side_by_side_stand_the_runs_that_drew_the_prompt_as_many_as_its_page_takes_under_all_its_names() -> None:
    assert linked(prompts.side_by_side({number: drawn("all") for number in range(1, 46)})) == [*range(1, 21)]
    beside = {1: drawn("arithmetic-7"), 2: drawn("ab12"), 3: drawn("ab12")}  # each trainer names it in its own way
    query = {"runs": ["1,2,3"], "prompt": ["arithmetic-7", "ab12"]}
    assert parse_qs(urlparse(prompts.side_by_side(beside)).query) == query


def test_one_draw_is_one_number_and_each_run_has_its_name_above_its_column_and_is_asked_for_once(
    asked: list[list[int]],
) -> None:
    one = drawn("once").model_copy(update={"reward_first": 0.55, "reward_last": 0.55})
    assert prompts.course(one) == "0.550"
    assert prompts.course(one.model_copy(update={"draws": 3, "reward_last": 1.0})) == "0.550 → 1.00 (3)"
    assert prompts.course(None) == "–"
    for _ in range(2):
        columns = list(prompts_of(2).dataframe[0].value.columns)
        assert columns == ["prompt", "probe", "runs", "x #1", "x #2", "side by side"]
    assert asked == [[1, 2]]


def test_of_many_runs_the_first_are_looked_at_and_more_on_demand(asked: list[list[int]]) -> None:
    at = prompts_of(31)
    assert asked == [[*range(1, 21)]]
    assert "Searched: the first 20 of 31 runs." in [caption.value for caption in at.caption]
    at.button(key="more-prompt-runs").click().run()
    assert asked[-1] == [*range(1, 32)]
    assert [linked(address) for address in at.dataframe[0].value["side by side"]] == [[*range(1, 21)], [30, 31]]
    assert not at.button
