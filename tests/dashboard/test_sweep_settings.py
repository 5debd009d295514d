"""Settings as what varies in a sweep: the page, what it queues, and the comparison that opens, against a real backend."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import recorded
from following import follow
from on_screen import Open, press, queue_button, texts
from serving import Backend
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Multiselect, Selectbox

import dashboard
from backend.contract.recipes import RECIPES
from backend.contract.records import Run
from dashboard.stored import get

RATE, SIZE, ADVANTAGE = "optimizer.learning_rate", "sampling.group_size", "algorithm.advantage.kind"
LABELS = ["Optimizer › Learning rate", "Sampling › Group size", "Algorithm › Advantage"]


@pytest.fixture
def open_settings(open_page: Open) -> Open:
    """The page with some fields to sweep already chosen."""

    def open_(*fields: str, how: str = "Grid") -> AppTest:
        at = open_page("sweep")
        choose(at, "Settings")
        choose(at, how)
        picker(at).set_value(list(fields)).run()
        assert not at.exception
        return at

    return open_


def reopened(query: Mapping[str, object]) -> AppTest:
    """The page as somebody sees it to whom the address was sent."""
    at = AppTest.from_file(Path(dashboard.__file__).with_name("screens") / "sweep.py", default_timeout=20)
    at.query_params.update(query)
    at.run()
    assert not at.exception
    return at


def choose(at: AppTest, option: str) -> None:
    next(group for group in at.button_group if option in group.options).set_value(option).run()


def picker(at: AppTest) -> Multiselect:
    return at.multiselect(key="field")


def ground(at: AppTest) -> Selectbox:
    return next(box for box in at.selectbox if box.label == "Base configuration")


def preview(at: AppTest) -> list[list[str]]:
    """The runs that the page shows, its columns first."""
    (table,) = (frame.value for frame in at.dataframe)
    return [list(table.columns), *table.to_numpy().tolist()]


def queued(at: AppTest, backend: Backend) -> list[Run]:
    """What the button queues, in order."""
    press(at, "Queue")
    (made,) = backend.client.sweeps().items
    assert follow(at).query_params["sweep"] == str(made.id)
    return [backend.client.run(run.id) for run in backend.client.sweep(made.id).runs]


def test_a_grid_is_every_combination_with_every_seed(open_settings: Open, backend: Backend) -> None:
    at = open_settings(RATE, SIZE)
    at.text_input(key=RATE).set_value("1e-5, 3e-5 1e-4")
    at.text_input(key=SIZE).set_value("4, 8")
    at.number_input(key="seeds").set_value(2)
    at.number_input(key="steps:grpo").set_value(7).run()
    assert "6 combinations × 2 seeds" in texts(at)
    assert "12 runs" in texts(at)
    assert preview(at)[:3] == [["learning_rate", "group_size", "seed"], ["1e-5", "4", "0"], ["1e-5", "8", "0"]]
    assert len(preview(at)) == 1 + 8
    runs = queued(at, backend)
    assert [(get(run.config, RATE), get(run.config, SIZE), get(run.config, "budget.seed")) for run in runs] == [
        (rate, size, seed) for seed in (0, 1) for rate in (1e-5, 3e-5, 1e-4) for size in (4, 8)
    ]
    assert runs[0].name == "learning_rate 1e-5 · group_size 4, seed 0"
    assert {run.progress.total_steps for run in runs} == {7}
    assert {str(run.config["task"]) for run in runs} == {str(RECIPES[0].config["task"])}


def test_a_random_sweep_can_be_made_again(open_settings: Open, backend: Backend) -> None:
    at = open_settings(RATE, SIZE, how="Random")
    at.text_input(key=f"{RATE}:from").set_value("1e-6")
    at.text_input(key=f"{RATE}:to").set_value("1e-3")
    at.text_input(key=f"{SIZE}:to").set_value("16")
    at.number_input(key="draws").set_value(10)
    at.number_input(key="draw-seed").set_value(5)
    at.number_input(key="seeds").set_value(1).run()
    ends = {f"{RATE}:from": "1e-6", f"{RATE}:to": "1e-3", f"{SIZE}:to": "16"}
    asked = {"field": LABELS[:2], "how": "Random", **ends, "draws": "10", "draw-seed": "5", "seeds": "1"}
    again = reopened({"vary": "Settings", **asked})
    assert preview(again) == preview(at)
    again.number_input(key="draw-seed").set_value(6).run()
    assert preview(again) != preview(at)
    runs = queued(at, backend)
    rates, sizes = ([get(run.config, path) for run in runs] for path in (RATE, SIZE))
    assert len(set(rates)) == len(rates) == 10
    assert all(isinstance(rate, float) and 1e-6 <= rate <= 1e-3 for rate in rates)
    assert all(isinstance(size, int) and 2 <= size <= 16 for size in sizes)


def test_a_sweep_opens_from_its_address(open_page: Open) -> None:
    open_page("sweep")
    at = reopened(
        {
            "vary": "Settings",
            "field": [LABELS[0], LABELS[2]],
            RATE: "2e-5, 4e-5",
            ADVANTAGE: ["softmax", "leave one out"],
            "seed-list": "3, 5",
            "steps:grpo": "9",
        }
    )
    assert "4 combinations × 2 seeds" in texts(at)
    assert at.number_input(key="steps:grpo").value == 9
    assert preview(at)[1:3] == [["2e-5", "softmax", "3"], ["2e-5", "leave_one_out", "3"]]


def test_a_run_or_what_stands_in_the_form_can_be_the_base(
    open_settings: Open, backend: Backend, open_page: Open
) -> None:
    run = recorded.queue(backend.client, "mine", sampling={"group_size": 6}, budget={"steps": 12})
    assert ground(reopened({"vary": "Settings", "base": f"run:{run}"})).value == f"run:{run}"
    at = open_settings(RATE)
    ground(at).set_value(f"run:{run}").run()
    at.text_input(key=RATE).set_value("1e-5").run()
    runs = queued(at, backend)
    assert {(get(one.config, SIZE), one.progress.total_steps) for one in runs} == {(6, 12)}

    at = open_page("new-run", recipe="dpo")
    next(box for box in at.number_input if box.label == "Steps").set_value(11).run()
    at.switch_page("screens/sweep.py").run()
    choose(at, "Settings")
    ground(at).set_value("form").run()
    picker(at).set_value(["beta"]).run()
    assert not at.exception
    assert at.number_input(key="steps:form").value == 11
    assert preview(at)[0] == ["beta", "seed"]


def test_each_combination_that_cannot_run_is_named_and_can_be_left_out(open_settings: Open, backend: Backend) -> None:
    at = open_settings(SIZE, RATE)
    at.text_input(key=SIZE).set_value("1, 4")
    at.text_input(key=RATE).set_value("1e-5, 1e-4").run()
    assert queue_button(at).disabled
    said = "group_size 1 · learning_rate 1e-5 and 1 other: sampling.group_size group_zscore compares"
    assert said in texts(at)
    assert "use at least 2" in texts(at)
    at.toggle(key="leave-out").set_value(True).run()
    assert said not in texts(at)
    assert queue_button(at).label == "Queue 6 runs"
    assert {get(run.config, SIZE) for run in queued(at, backend)} == {4}


def test_what_cannot_be_queued_says_why_and_fewer_combinations_than_draws_are_said(open_settings: Open) -> None:
    at = open_settings()
    assert "Choose a field to sweep" in texts(at)
    assert queue_button(at).disabled
    picker(at).set_value([RATE]).run()
    for text, reason in (
        ("fast", "Optimizer › Learning rate: “fast” is not a number"),
        ("", "Optimizer › Learning rate: needs at least one value"),
        ("7", "learning_rate 7: optimizer.learning_rate must be at most 1 (got 7.0)"),
        (" ".join(f"{rate}e-6" for rate in range(1, 202)), "201 combinations are too many for one sweep; at most 200"),
        (" ".join(f"{rate}e-6" for rate in range(1, 70)), "207 runs are too many for one sweep; at most 200"),
    ):
        at.text_input(key=RATE).set_value(text).run()
        assert queue_button(at).disabled, text
        assert reason in texts(at), text
    choose(at, "Random")
    at.text_input(key=f"{RATE}:from").set_value("1").run()
    assert queue_button(at).disabled
    assert "Learning rate: a range goes up, and 1 is not below" in texts(at)

    at = open_settings(ADVANTAGE, how="Random")
    at.multiselect(key=ADVANTAGE).set_value(["group_zscore", "softmax"]).run()
    assert "There are only 2 different combinations to draw" in texts(at)
    assert queue_button(at).label == "Queue 6 runs"


def test_the_comparison_opens_on_the_fields_that_were_swept(
    open_settings: Open, open_page: Open, backend: Backend
) -> None:
    at = open_settings(ADVANTAGE, RATE)
    at.multiselect(key=ADVANTAGE).set_value(["group_zscore", "gae"])
    at.text_input(key=RATE).set_value("1e-5, 1e-4")
    at.number_input(key="seeds").set_value(1).run()
    assert len(queued(at, backend)) == 4
    assert at.multiselect(key="fields").value == [ADVANTAGE, RATE]  # not what a kind brings along
    at = open_page("compare", sweep=at.query_params["sweep"])
    assert next(box for box in at.multiselect if box.label == "Group by").value == [ADVANTAGE, RATE]
