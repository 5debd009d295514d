"""The form that queues a sweep, and the comparison that it leads to, against a real backend."""

from collections.abc import Mapping

import pytest
import recorded
from following import follow
from on_screen import Open, press, queue_button, texts
from serving import Backend
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Multiselect

from backend.contract import protocol as p
from backend.contract.client import Client
from backend.contract.common_ground import comparable, distinct, sweep_of
from backend.contract.recipes import RECIPES
from backend.contract.records import Sweep
from dashboard.session import script

QUICKSTART = RECIPES[0].config
PAIR = [card for card in RECIPES if card.id in ("grpo", "grpo-notebook")]


def learn(client: Client, first: float, last: float) -> None:
    """The next run in the queue starts, is evaluated, makes two steps, is evaluated again, and finishes."""
    claimed = recorded.claim(client)
    run_id = claimed.run_id
    reports: list[dict[str, object]] = [
        {"step": 0, "metrics": {"eval/pass@1": first}},
        {"step": 0, "metrics": {"reward": first, "kl": 0.0, "entropy": 0.4}},
        {"step": 1, "metrics": {"reward": last, "kl": 0.01, "entropy": 0.3}},
        {"step": 2, "metrics": {"eval/pass@1": last}},
    ]
    for seq, report in enumerate(reports):
        client.report(run_id, p.Report.model_validate({"attempt": claimed.attempt, "seq": seq, **report}))
    recorded.finish(client, run_id, claimed)


@pytest.fixture
def sweep(backend: Backend) -> Sweep:
    """Two recipes with three seeds, of which five runs have finished."""
    made = backend.client.create_sweep("side by side", sweep_of(PAIR, QUICKSTART, [0, 1, 2]))
    for first, last in ((0.50, 0.90), (0.50, 0.60), (0.52, 0.94), (0.52, 0.63), (0.51, 0.92)):
        learn(backend.client, first, last)
    return made


def test_the_form_offers_every_recipe_that_can_be_compared(open_page: Open) -> None:
    at = open_page("sweep")
    offered = [box.key.removeprefix("sweep-recipe-") for box in at.checkbox]
    # Streamlit reads labels out as they are written
    assert not [box.label for box in at.checkbox if set("*\\") & set(box.label)]
    assert offered == [card.id for card in distinct(comparable(RECIPES), QUICKSTART)]


def test_one_click_queues_recipes_times_seeds_on_the_common_ground(open_page: Open, backend: Backend) -> None:
    at = open_page("sweep", recipes="grpo,grpo-notebook")
    at.number_input(key="seeds").set_value(2)
    at.number_input(key="steps:grpo").set_value(7)
    at.run()
    assert "2 recipes × 2 seeds" in texts(at)
    assert queue_button(at).label == "Queue 4 runs"
    press(at, "Queue")
    (made,) = backend.client.sweeps().items
    runs = [backend.client.run(run.id) for run in backend.client.sweep(made.id).runs]
    assert [run.name for run in runs] == [f"{card.id}, seed {seed}" for seed in (0, 1) for card in PAIR]
    assert {run.progress.total_steps for run in runs} == {7}
    assert {str(run.config["task"]) for run in runs} == {str(QUICKSTART["task"])}
    assert follow(at).query_params["sweep"] == str(made.id)


def test_the_form_of_a_run_can_be_the_common_ground_and_a_recipe_that_cannot_work_on_it_is_named(
    open_page: Open, backend: Backend
) -> None:
    at = open_page("new-run", recipe="grpo")
    for size in (1, 4):
        at.switch_page(script("new-run")).run()
        next(box for box in at.number_input if box.label == "Group size").set_value(size).run()
        at.switch_page(script("sweep")).run()
        next(box for box in at.selectbox if box.label == "Settings that all runs share").set_value("form").run()
        assert queue_button(at).disabled == (size == 1)
        assert ("grpo and 1 other: sampling.group_size" in texts(at)) == (size == 1)
    press(at, "Queue")
    runs = backend.client.runs(limit=200).items
    assert {run.config["sampling"]["group_size"] for run in runs if run.config["recipe"] == "grpo"} == {4}  # type: ignore[index,call-overload]


def test_seeds_are_named_or_refused_and_no_number_out_of_range_queues_anything(open_page: Open) -> None:
    at = open_page("sweep", recipes="grpo")
    for seeds, label, reason in (
        ("3, 5 8", "Queue 3 runs", None),
        ("one", "Queue runs", "a whole number"),
        ("-1", "Queue runs", "a whole number"),
    ):
        at.text_input(key="seed-list").set_value(seeds).run()
        button = queue_button(at)
        assert (button.label, button.disabled) == (label, reason is not None), seeds
        assert reason is None or reason in texts(at), seeds
    at.text_input(key="seed-list").set_value("").run()
    press(at, "None")
    assert queue_button(at).disabled
    assert "Tick the recipes to compare" in texts(at)
    at = open_page("sweep", recipes="grpo")
    for field, number in (("seeds", 11), ("steps", 0)):
        [typed] = [one for one in at.number_input if str(one.key).startswith(field)]
        typed.set_value(number).run()
        assert any(f"not {number}" in one.value for one in at.error)
        assert not [one for one in at.button if one.label.startswith("Queue")]


def finals(at: AppTest) -> Mapping[str, Mapping[str, str]]:
    table = next(frame.value for frame in at.dataframe if "gain" in frame.value.columns)
    return table[["setting", "n", "final", "best", "gain"]].set_index("setting").to_dict("index")


def together(at: AppTest) -> Multiselect:
    return next(box for box in at.multiselect if box.label == "Group by")


def test_the_comparison_of_a_sweep_is_by_recipe_with_means_intervals_and_words_and_by_any_other_field_or_nothing(
    open_page: Open, sweep: Sweep
) -> None:
    at = open_page("compare", sweep=sweep.id)
    assert together(at).value == ["recipe"]
    table = finals(at)
    # gains 0.40, 0.42, 0.41: std 0.01, t 4.303, so ± 4.303 · 0.01 / √3 = 0.0248
    assert table["grpo"] == {
        "n": "3",
        "final": "0.920 ± 0.020",
        "best": "0.920 ± 0.020",
        "gain": "+0.410 [+0.385, +0.435]",
    }
    assert (table["grpo-notebook"]["n"], table["grpo-notebook"]["final"]) == ("2", "0.615 ± 0.021")
    # by seed: −0.30, −0.31
    assert "grpo-notebook − grpo** · −0.305: two seeds cannot tell; run three or more" in texts(at)
    assert len(at.get("vega_lite_chart")) == 7

    assert together(at).options[0] == "recipe"
    assert together(at).options.index("algorithm.ratio") < together(at).options.index("sampling.group_size")
    together(at).set_value(["algorithm.ratio"]).run()
    assert set(finals(at)) == {"ratio token", "ratio sequence_product"}
    together(at).set_value([]).run()
    assert not at.exception
    assert any("state" in frame.value.columns for frame in at.dataframe)

    assert "6 runs: 5 finished, 1 queued" in texts(open_page("compare"))
    assert "There is no sweep 99" in open_page("compare", sweep=99).error[0].value


def test_progress_is_told_until_all_have_finished(open_page: Open, backend: Backend, sweep: Sweep) -> None:
    at = open_page("compare", sweep=sweep.id)
    assert "5 of 6 finished" in str(at.get("progress")[0].proto)
    assert any(button.label == "Stop all" for button in at.button)
    learn(backend.client, 0.51, 0.60)
    at.run()
    assert not at.get("progress")  # a full bar says no more than the words
    assert "6 of 6 finished" in texts(at)
    assert not any(button.label == "Stop all" for button in at.button)
    assert finals(at)["grpo-notebook"]["n"] == "3"


def test_a_sweep_without_results_says_what_will_appear_is_stopped_by_a_click_and_says_so_if_its_runs_were_deleted(
    open_page: Open, backend: Backend
) -> None:
    made = backend.client.create_sweep("waiting", sweep_of(PAIR, QUICKSTART, [0]))
    at = open_page("compare", sweep=made.id)
    assert "A row appears for each setting as soon as one of its runs has finished" in texts(at)
    assert "no finished runs to compare" in texts(at)

    press(at, "Stop all")
    assert backend.client.sweep(made.id).statuses == {"stopped": 2}
    for run in made.runs:
        backend.client.delete_run(run.id)
    assert "All runs of this sweep were deleted" in texts(open_page("compare", sweep=made.id))
