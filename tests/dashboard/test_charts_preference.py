"""The charts of runs on preference pairs."""

import pytest

from backend.contract.records import Series
from dashboard.charts.meaning import meaning
from dashboard.charts.training import pair_panels, training_figure

SHARED = (
    *("loss", "grad_norm", "learning_rate", "step_time", "num_tokens", "peak_memory"),
    *("eval/loss", "eval/accuracy", "eval/margin"),
)
LOGGED = {
    "reward_model": (*SHARED, "accuracy", "margin", "mean_reward"),
    "dpo": (
        *SHARED,
        *(f"rewards/{name}" for name in ("chosen", "rejected", "accuracies", "margins")),
        *("logps/chosen", "logps/rejected", "eval/pass@1", "eval/pass@4", "eval/greedy_pass@1"),
    ),
}


@pytest.mark.parametrize("kind", LOGGED)
def test_every_metric_of_a_run_on_pairs_is_on_a_chart_and_has_a_meaning(kind: str) -> None:
    drawn = {name for panel in pair_panels(kind, LOGGED[kind]) for name in panel.labels}
    assert set(LOGGED[kind]) - drawn == {"num_tokens"}
    assert all(meaning(name).help != "A metric of the trainer." for name in LOGGED[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOGGED)
def test_no_step_opens_groups_that_there_are_none_of(kind: str) -> None:
    points = {name: Series(step=[0, 1, 2], value=[0.0, 1.0, 2.0]) for name in LOGGED[kind]}
    for panel in pair_panels(kind, LOGGED[kind]):
        figure = training_figure(panel, points, steps=3, weight=0.5)
        assert "picked" not in str(figure.spec), panel.key
        assert len(figure.data) == 3 * len(panel.labels)
