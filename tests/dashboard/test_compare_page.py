"""The comparison of runs against a real backend."""

from collections.abc import Callable

import pytest
import recorded
from serving import Backend
from streamlit.testing.v1 import AppTest

from backend.contract.base import Json
from dashboard.components.config_difference import differences, flatten

# Whole pages, or processes that have to die: right, but too slow for `make check`.
pytestmark = pytest.mark.slow

Open = Callable[..., AppTest]


def sentences(at: AppTest) -> str:
    return "\n".join(element.value for kind in (at.caption, at.info, at.markdown) for element in kind)


@pytest.fixture
def runs(backend: Backend) -> list[int]:
    """Two finished runs that differ in learning rate and group size."""
    ids = []
    for name, rate, size in (("slow", 1e-4, 8), ("fast", 5e-4, 4)):
        run_id = recorded.queue(backend.client, name, optimizer={"learning_rate": rate}, sampling={"group_size": size})
        claimed = recorded.train(backend.client, run_id, steps=4, total=100, prompts=2, group_size=size)
        recorded.finish(backend.client, run_id, claimed)
        ids.append(run_id)
    return ids


def test_an_empty_comparison_says_what_to_do(open_page: Open) -> None:
    at = open_page("compare")
    assert "Choose two runs or more" in sentences(at)
    assert not at.dataframe


def test_the_address_chooses_runs_axis_smoothing_and_scale(open_page: Open, runs: list[int]) -> None:
    at = open_page("compare", runs=f"{runs[0]},{runs[1]}", x="tokens", smooth="0.3", log="true")
    assert at.multiselect[0].value == runs
    assert at.segmented_control[0].value == "tokens"
    assert at.slider[0].value == 0.3
    assert at.toggle[0].value is True
    assert len(at.get("vega_lite_chart")) == 6


def test_a_choice_goes_into_the_address(open_page: Open, runs: list[int]) -> None:
    at = open_page("compare")
    at.multiselect[0].set_value(runs).run()
    assert at.query_params["runs"] == f"{runs[0]},{runs[1]}"
    at.multiselect[0].set_value([]).run()
    assert "runs" not in at.query_params


def test_only_the_fields_that_differ_are_listed(open_page: Open, runs: list[int]) -> None:
    at = open_page("compare", runs=f"{runs[0]},{runs[1]}")
    table = at.dataframe[1].value.set_index("field")
    assert sorted(table.index) == ["optimizer.learning_rate", "sampling.group_size"]
    assert table.loc["optimizer.learning_rate"].tolist() == ["0.0001", "0.0005"]


def test_the_final_table_has_what_each_run_came_to(open_page: Open, backend: Backend, runs: list[int]) -> None:
    at = open_page("compare", runs=f"{runs[0]},{runs[1]}")
    table = at.dataframe[2].value
    rewards = table[table["metric"] == "Reward"].set_index("run")
    values = [value for value in backend.client.metrics(runs[0]).series["reward"].value if value is not None]
    row = rewards.loc[f"slow #{runs[0]}"]
    assert float(row["last"]) == pytest.approx(values[-1], abs=0.005)
    assert float(row["best"]) == pytest.approx(max(values), abs=0.005)
    assert int(row["at step"]) == values.index(max(values))


def test_one_run_alone_has_charts_and_no_differences(open_page: Open, runs: list[int]) -> None:
    at = open_page("compare", runs=runs[0])
    assert "Choose a second run" in sentences(at)
    assert len(at.get("vega_lite_chart")) == 6


def test_a_metric_that_nobody_logged_says_so(open_page: Open, backend: Backend) -> None:
    at = open_page("compare", runs=recorded.queue(backend.client))
    assert sentences(at).count("None of these runs has logged it yet.") == 6


def test_paths_into_lists_count_from_zero() -> None:
    config: dict[str, Json] = {"rewards": {"functions": [{"name": "a", "weight": 1.0}], "gates": []}, "seed": 0}
    assert flatten(config) == {
        "rewards.functions.0.name": "a",
        "rewards.functions.0.weight": 1.0,
        "rewards.gates": [],
        "seed": 0,
    }


def test_a_field_that_only_one_run_has_is_a_difference() -> None:
    first: dict[str, Json] = {"a": 1, "b": 2}
    second: dict[str, Json] = {"a": 1}
    assert differences({1: first, 2: second}) == {"b": {1: 2, 2: None}}


def test_false_and_zero_are_different_values() -> None:
    assert differences({1: {"a": False}, 2: {"a": 0}}) == {"a": {1: False, 2: 0}}
