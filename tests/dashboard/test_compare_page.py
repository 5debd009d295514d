"""The comparison of runs against a real backend."""

import re
from hashlib import sha256
from statistics import fmean

import pandas as pd
import pytest
import recorded
from on_screen import Open, shown
from serving import Backend, one_for_all
from streamlit.testing.v1 import AppTest

from backend.contract.base import Json
from backend.contract.records import RunError
from dashboard.comparison.seeds import MORE

backend = pytest.fixture(
    one_for_all
)  # runs that a test adds are none of the others', and none of them waits for a worker


def finished(backend: Backend, name: str, steps: int, size: int, *, seed: int = 0, **config: Json) -> int:
    """A finished run; each of its steps has two groups of this size."""
    run_id = recorded.queue(backend.client, name, **config)
    claimed = recorded.train(backend.client, run_id, steps=steps, total=100, prompts=2, group_size=size, seed=seed)
    recorded.finish(backend.client, run_id, claimed)
    return run_id


@pytest.fixture(scope="module")
def runs(shared_backend: Backend) -> list[int]:
    """Two finished runs that differ in learning rate and group size."""
    settings = (("slow", 1e-4, 8), ("fast", 5e-4, 4))
    return [
        finished(shared_backend, name, 4, size, optimizer={"learning_rate": rate}, sampling={"group_size": size})
        for name, rate, size in settings
    ]


def test_an_address_shows_runs_axis_smoothing_scale_what_each_came_to_and_only_the_fields_that_differ(
    open_page: Open, runs: list[int], backend: Backend
) -> None:
    chosen = {"x": "tokens", "smooth": "0.3", "log": "true", "judged": "Reward", "last": 2}
    at = open_page("compare", runs=f"{runs[0]},{runs[1]}", **chosen)
    assert at.multiselect[0].value == runs
    assert at.segmented_control[0].value == "tokens"
    assert at.slider[0].value == 0.3
    assert at.toggle[0].value is True
    assert len(at.get("vega_lite_chart")) == 6

    fields = frame(at, "field").set_index("field")
    assert sorted(fields.index) == ["optimizer.learning_rate", "sampling.group_size"]
    assert fields.loc["optimizer.learning_rate"].tolist() == ["1e-4", "5e-4"]

    table = frame(at, "final")
    finals = [float(text) for text in table["final"]]
    assert finals == sorted(finals, reverse=True)
    assert "Spread inside groups, last 2" in table
    assert "Held-out pass@1" in table
    row = table.set_index("run").loc[f"slow #{runs[0]}"]
    values = [value for value in backend.client.metrics(runs[0]).series["reward"].value if value is not None]
    assert float(row["final"]) == pytest.approx(fmean(values[-2:]), abs=0.005)
    assert float(row["best"]) == pytest.approx(max(values), abs=0.005)
    assert int(row["at step"]) == values.index(max(values))
    assert row["open"] == f"/run?id={runs[0]}"


def test_an_empty_comparison_says_what_to_do_and_a_choice_goes_into_the_address_until_the_browser_has_heard_of_it(
    open_page: Open, runs: list[int]
) -> None:
    at = open_page("compare")
    assert "Choose two runs or more" in shown(at)
    assert not at.dataframe
    at.multiselect[0].set_value(runs).run()
    assert at.query_params["runs"] == f"{runs[0]},{runs[1]}"
    at.multiselect[0].set_value([]).run()
    assert "runs" not in at.query_params

    at.multiselect[0].set_value(runs[:1]).run().run()
    assert at.multiselect[0].proto.set_value  # what was sent before may be lost when a page is drawn again at once
    assert at.multiselect[0].value == runs[:1]


def test_a_deleted_run_in_the_address_leaves_the_others(open_page: Open, backend: Backend, runs: list[int]) -> None:
    gone = recorded.queue(backend.client)
    backend.client.delete_run(gone)
    at = open_page("compare", runs=f"{gone},{runs[1]}")
    assert at.multiselect[0].value == [runs[1]]
    assert f"Deleted: run {gone}." in [one.value for one in at.caption]
    assert not at.error
    assert at.get("vega_lite_chart")


def test_a_run_that_was_tried_again_shows_the_rewards_of_its_last_attempt(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    failure = RunError(code="crash", message="it fell over")
    recorded.fail(backend.client, run_id, recorded.train(backend.client, run_id, steps=1, total=1, prompts=2), failure)
    compared = open_page("compare", runs=run_id)
    compared.session_state["view"] = "Distributions"
    before = compared.run().get("vega_lite_chart")[0].proto.data.data
    backend.client.command(run_id, "retry")
    again = recorded.train(backend.client, run_id, steps=1, total=1, prompts=3, seed=5)
    recorded.fail(backend.client, run_id, again, failure)
    compared.session_state["view"] = "Distributions"
    assert compared.run().get("vega_lite_chart")[0].proto.data.data != before


def frame(at: AppTest, column: str) -> pd.DataFrame:
    """The table that has a column of this name."""
    return next(one.value for one in at.dataframe if column in one.value.columns)


@pytest.mark.thorough
def test_other_texts_of_a_reward_file_are_among_the_differences(open_page: Open, backend: Backend) -> None:
    kept, changed = (recorded.scored_by_files(backend.client, texts) for texts in (["one"], ["one", "other"]))
    one, other = (sha256(text.encode()).hexdigest()[:8] for text in ("one", "other"))
    at = open_page("compare", runs=f"{kept},{changed}")
    table = frame(at, "field").set_index("field")
    assert table.loc["right.py (SHA-256)"].tolist() == [one, f"{one}, then {other}"]
    third = recorded.scored_by_files(backend.client, ["one"], optimizer={"learning_rate": 1e-4})
    at = open_page("compare", runs=f"{kept},{changed},{third}")
    next(box for box in at.multiselect if box.label == "Group by").set_value(["optimizer.learning_rate"]).run()
    grouped = frame(at, "field").set_index("field")
    assert grouped.loc["right.py (SHA-256)"].tolist() == [f"{one} or {one}, then {other}", one]


def test_a_text_of_a_reward_file_that_scored_both_runs_is_no_difference(open_page: Open, backend: Backend) -> None:
    runs = [recorded.scored_by_files(backend.client, ["one"]) for _ in range(2)]
    assert "Nowhere" in shown(open_page("compare", runs=f"{runs[0]},{runs[1]}"))


@pytest.mark.thorough
def test_runs_are_judged_by_a_metric_that_is_not_drawn(open_page: Open, backend: Backend) -> None:
    run_id = finished(backend, "evaluated", 25, 2)
    at = open_page("compare", runs=run_id)
    next(box for box in at.multiselect if box.label == "Charts").set_value(["kl"]).run()
    assert next(box for box in at.selectbox if box.label == "Compared by").value == "eval/pass@1"
    held_out = backend.client.metrics(run_id).series["eval/pass@1"].value[-1]
    assert held_out is not None
    assert float(frame(at, "final")["final"][0]) == pytest.approx(held_out, abs=0.005)
    next(box for box in at.multiselect if box.label == "Group by").set_value(["recipe"]).run()
    assert float(frame(at, "gain")["final"][0]) == pytest.approx(held_out, abs=0.005)
    next(box for box in at.selectbox if box.label == "Compared by").set_value("reward").run()
    assert "A row appears for each setting" not in shown(at)


@pytest.mark.thorough
def test_runs_are_grouped_by_two_fields_at_once_and_by_one_in_which_they_do_not_differ(
    open_page: Open, runs: list[int]
) -> None:
    address = {"runs": f"{runs[0]},{runs[1]}"}
    at = open_page("compare", **address)
    together = next(box for box in at.multiselect if box.label == "Group by")
    assert together.options[:3] == ["recipe", "sampling.group_size", "optimizer.learning_rate"]
    together.set_value(["optimizer.learning_rate", "sampling.group_size"]).run()
    settings = {f"learning_rate {rate} · group_size {size}" for rate, size in (("1e-4", 8), ("5e-4", 4))}
    assert set(frame(at, "gain")["setting"]) == settings
    next(box for box in at.multiselect if box.label == "Group by").set_value(["model.source"]).run()
    assert len(frame(at, "gain")) == 1
    assert "Only one setting" in shown(at)


def test_a_zoom_in_the_address_shows_its_part_of_the_axis_and_offers_the_way_back_and_one_that_is_none_is_passed_over(
    open_page: Open, runs: list[int]
) -> None:
    at = open_page("compare", runs=runs[0], range="1.0-2.0")
    assert '"domain": [1.0, 2.0]' in at.get("vega_lite_chart")[1].proto.spec
    next(button for button in at.button if button.label == "Step 1.00 to 2.00").click().run()
    assert "range" not in at.query_params
    for whole in (at, *(open_page("compare", runs=runs[0], range=nonsense) for nonsense in ("x", "5-1", "nan-2"))):
        assert '"domain": [0, 100]' in whole.get("vega_lite_chart")[1].proto.spec


def test_of_many_lines_two_charts_are_drawn_at_first_and_a_metric_that_nobody_logged_says_so(
    open_page: Open, backend: Backend
) -> None:
    many = [recorded.queue(backend.client, f"run {number}", sampling={"engine": "vllm"}) for number in range(13)]
    at = open_page("compare", runs=",".join(map(str, many)))
    assert len(at.get("vega_lite_chart")) == 2
    next(button for button in at.button if button.label == "4 more charts").click().run()
    assert len(at.get("vega_lite_chart")) == shown(at).count("None of these runs has recorded it yet.") == 6


def test_one_run_alone_has_no_differences_and_at_first_six_charts_and_more_on_demand(
    open_page: Open, runs: list[int]
) -> None:
    at = open_page("compare", runs=runs[0])
    assert "Choose a second run" in shown(at)
    assert len(at.get("vega_lite_chart")) == 6

    next(box for box in at.multiselect if box.label == "Charts").set_value(
        ["reward", "kl", "entropy", "loss", "grad_norm", "step_time", "reward_std", "learning_rate"]
    ).run()
    assert len(at.get("vega_lite_chart")) == 6
    next(button for button in at.button if button.label == "2 more charts").click().run()
    assert len(at.get("vega_lite_chart")) == 8
    assert at.query_params["charts"] == "12"


def test_a_run_without_a_metric_is_named_under_its_chart(open_page: Open, backend: Backend, runs: list[int]) -> None:
    run_id, claimed = recorded.started(backend.client, "no *kl*")
    report = recorded.p.Report(attempt=claimed.attempt, seq=0, step=0, metrics={"step_time": 1.0, "reward": 0.5})
    backend.client.report(run_id, report)
    at = open_page("compare", runs=f"{runs[0]},{run_id}")
    [said] = [text.value for text in at.caption if text.value.startswith("No kl")]
    assert said == rf"No kl was recorded in no \*kl\* \#{run_id}\."
    grouped = open_page("compare", runs=f"{runs[0]},{run_id}", by="sampling.group_size")
    # both are of one group, which has it
    assert not [text.value for text in grouped.caption if text.value.startswith("No kl")]


def test_a_verdict_says_that_one_was_updated_more_often(open_page: Open, backend: Backend) -> None:
    run_ids = [finished(backend, "updated", 2, 8, algorithm={"updates_per_batch": updates}) for updates in (1, 2)]
    at = open_page("compare", runs=",".join(map(str, run_ids)), by="algorithm.updates_per_batch")
    (verdict,) = (text.value for text in at.markdown if "one seed cannot tell" in text.value)
    assert verdict.endswith("(with 2 updates per batch, the other with 1)")


@pytest.mark.thorough
def test_beside_the_verdict_stands_how_many_more_seeds_it_takes(open_page: Open, backend: Backend) -> None:
    run_ids = []
    for updates, seed in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0)]:
        config: dict[str, Json] = {"algorithm": {"updates_per_batch": updates}, "budget": {"seed": seed}}
        run_ids.append(finished(backend, "seeded", 2, 8, seed=10 * updates + seed, **config))
    at = open_page("compare", runs=",".join(map(str, run_ids)), by="algorithm.updates_per_batch", judged="Reward")
    table = frame(at, MORE).set_index("settings")
    found = table.loc["updates_per_batch 2 − updates_per_batch 1"]
    assert found["seeds"] == "3"
    assert re.fullmatch(r"(\d+|more than 197) \(\d+ to (\d+|more than 197)\)", found[MORE])
    assert re.fullmatch(r"\d+ % \(\d+ % to \d+ %\)", found["power now"])
    assert "run two more of each" in table.loc["updates_per_batch 3 − updates_per_batch 1"][MORE]
    assert "From 3 seeds the spread is hardly known" in shown(at)
    next(box for box in at.number_input if box.label == "Difference to tell").set_value(100.0).run()
    assert frame(at, MORE).set_index("settings").loc["updates_per_batch 2 − updates_per_batch 1"][MORE] == "0"


def test_runs_beyond_those_that_are_drawn_are_named_and_a_logarithmic_axis_without_a_positive_value_says_so(
    open_page: Open, backend: Backend
) -> None:
    run_ids = [recorded.queue(backend.client, f"run {number}", sampling={"engine": "vllm"}) for number in range(23)]
    run_id, claimed = recorded.started(backend.client, "below")
    report = recorded.p.Report(attempt=claimed.attempt, seq=0, step=0, metrics={"reward": -0.5})
    backend.client.report(run_id, report)
    at = open_page("compare", runs=",".join(map(str, [run_id, *run_ids])), log="true")
    assert at.multiselect[0].value == [run_id, *run_ids[:19]]
    [said] = [one.value.replace("\\", "") for one in at.caption if "Not drawn" in one.value]
    assert (
        said
        == f"20 runs are drawn at most. Not drawn: {', '.join(f'run {19 + n} #{run_ids[19 + n]}' for n in range(4))}."
    )
    assert [one.value for one in at.caption if "above 0" in one.value] == [
        "No value is above 0, so a logarithmic axis has nothing to show."
    ]
    assert len(at.get("vega_lite_chart")) == 1
