"""Figures: data in, Vega-Lite out."""

import base64
import json
import re

import pytest
from answers import completion_of
from hypothesis import given
from hypothesis import strategies as s

from backend.contract.records import Metrics, Series
from dashboard.charts.comparison import View, comparison_figure
from dashboard.charts.figure import Figure, colour
from dashboard.charts.group import reward_squares, strip_figure
from dashboard.charts.meaning import _MEANINGS, in_order, meaning
from dashboard.charts.outcome import Group, Member, Stroke
from dashboard.charts.palette import (
    CATEGORICAL,
    DISCOURAGED,
    GROUPS,
    NEUTRAL,
    REINFORCED,
    SIZES,
    UNSCORED,
    advantage_colour,
    reward_colours,
    run_colours,
)
from dashboard.charts.parallel import Axis, parallel_figure
from dashboard.charts.series import XAxis
from dashboard.charts.training import Panel, pair_panels, panels, training_figure
from dashboard.components import pictures
from dashboard.components.chart import place_key

LOGGED = (
    *("reward", "rewards/correctness/mean", "rewards/format/mean", "eval/pass@1", "eval/pass@4", "eval/greedy_pass@1"),
    *("group_reward_std", "frac_reward_zero_std", "frac_unscored", "kl", "entropy", "completions/mean_length"),
    *("completions/clipped_ratio", "clip_ratio/low_mean", "clip_ratio/high_mean", "loss", "grad_norm", "learning_rate"),
    *("time/rollout", "time/reward", "time/reference", "time/update", "time/report"),
    *("tokens_per_second", "peak_memory"),
)
PANELS = panels(LOGGED, ["correctness", "format"])


def panel_of(key: str) -> Panel:
    return next(panel for panel in PANELS if panel.key == key)


def series(steps: int) -> dict[str, Series]:
    return {name: Series(step=list(range(steps)), value=[float(step) for step in range(steps)]) for name in LOGGED}


def test_every_metric_of_the_trainer_has_its_place_in_a_chart() -> None:
    assert {name for panel in PANELS for name in panel.labels} == set(LOGGED)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.key)
def test_every_chart_of_a_run_has_its_words_the_runs_steps_as_its_axis_and_the_same_specification_for_any_data(
    panel: Panel,
) -> None:
    assert panel.title
    assert len(panel.help) > 40
    early, late = (training_figure(panel, series(steps), steps=50, weight=0.6, mark=2) for steps in (3, 40))
    assert early.spec == late.spec, "new data leave the specification as it is"

    assert len(early.data) < len(late.data)
    spec = json.dumps(early.spec)
    assert set(re.findall(r'"field": "([^"]*)"', spec)) <= set(early.data.columns)
    assert set(early.data["label"]) == set(panel.labels.values())
    assert '"title": "metric"' in spec, "the tooltip names the field"
    assert '"domain": [0, 50]' in spec, "the steps of the run"
    assert ('"picked"' in spec) == (panel.key != "held-out"), "a step can be clicked where it has groups"
    points = [layer for layer in early.spec["layer"] if "transform" in layer and layer["mark"]["type"] == "point"]
    assert [layer["transform"] for layer in points][:1] == [[{"filter": "datum.touch"}]], (
        "shapes for what a pointer finds"
    )


def test_of_lines_that_lie_on_each_other_each_is_seen() -> None:
    panel = panel_of("held-out")
    line, points = (
        layer["encoding"]
        for layer in training_figure(panel, series(5), steps=5, weight=0.6).spec["layer"]  # type: ignore[union-attr,index]
        if {"strokeDash", "size"} & set(layer["encoding"])  # type: ignore[index,arg-type,call-overload]
    )
    whole, *broken = line["strokeDash"]["scale"]["range"]  # type: ignore[index,call-overload]
    assert whole == [1, 0]
    assert len({tuple(one) for one in broken}) == len(broken) == len(panel.labels) - 1  # type: ignore[arg-type]
    sizes = points["size"]["scale"]["range"]  # type: ignore[index,call-overload]
    assert sizes == sorted(sizes, reverse=True)  # type: ignore[type-var,arg-type]
    assert len(set(sizes)) == len(sizes)  # type: ignore[arg-type]


def test_the_learning_rate_is_drawn_as_it_was_set_however_smooth_the_rest() -> None:
    data = training_figure(panel_of("learning_rate"), series(5), steps=5, weight=0.9).data
    assert list(data["smooth"]) == list(data["value"])


def test_each_step_on_the_axis_is_a_number_of_its_own_unit() -> None:
    picture = pictures.svg(training_figure(panel_of("reward"), series(5), steps=3000, weight=0.6))
    labels = re.findall(r">([0-9.k]+)</text>", picture)
    assert {"0", "500", "1k", "1.5k", "3k"} <= set(labels)
    assert "0k" not in labels


@pytest.mark.parametrize("values", [[0.1] * 30, [0.1 + one * 1.4e-17 for one in range(30)], [0.1, 0.2, 0.1 + 0.2]])
def test_a_tick_has_no_digits_that_come_of_rounding(values: list[float]) -> None:
    data = {name: Series(step=list(range(len(values))), value=[*values]) for name in LOGGED}
    picture = pictures.svg(training_figure(panel_of("loss"), data, steps=30, weight=0.6))
    labels = re.findall(r">([-−0-9.e]+)</text>", picture)
    assert "0.1" in labels
    assert max(map(len, labels)) <= 6


def test_a_line_breaks_where_a_value_is_missing() -> None:
    def treatment(values: list[float | None]) -> set[str]:
        points = {"reward": Series(step=list(range(3)), value=values)}
        layers = training_figure(panel_of("reward"), points, steps=3, weight=0.5).spec["layer"]
        return {layer["mark"]["invalid"] for layer in layers if layer["mark"]["type"] == "line"}

    assert treatment([0.1, None, 0.3]) == {"break-paths-show-path-domains"}
    assert treatment([0.1, 0.2, 0.3]) == {"show"}


def test_a_single_point_is_drawn_as_a_dot() -> None:
    for steps, alone in ((1, [True]), (2, [False, False])):
        assert training_figure(panel_of("reward"), series(steps), steps=5, weight=0.6).data["alone"].tolist() == alone


PAIRS = (
    *("loss", "grad_norm", "learning_rate", "step_time", "num_tokens", "peak_memory"),
    *("eval/loss", "eval/accuracy", "eval/margin"),
)
LOGGED_ON_PAIRS = {
    "reward_model": (*PAIRS, "accuracy", "margin", "mean_reward"),
    "dpo": (
        *(*PAIRS, *(f"rewards/{name}" for name in ("chosen", "rejected", "accuracies", "margins"))),
        *("logps/chosen", "logps/rejected", "eval/pass@1", "eval/pass@4", "eval/greedy_pass@1"),
    ),
}


@pytest.mark.parametrize("kind", LOGGED_ON_PAIRS)
def test_every_metric_of_a_run_on_pairs_is_on_a_chart_and_has_a_meaning(kind: str) -> None:
    names = LOGGED_ON_PAIRS[kind]
    drawn = {name for panel in pair_panels(kind, names) for name in panel.labels}
    assert set(names) - drawn == {"num_tokens"}
    assert all(meaning(name).help != "A metric of the trainer." for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOGGED_ON_PAIRS)
def test_no_step_opens_groups_that_there_are_none_of(kind: str) -> None:
    names = LOGGED_ON_PAIRS[kind]
    points = {name: Series(step=[0, 1, 2], value=[0.0, 1.0, 2.0]) for name in names}
    for panel in pair_panels(kind, names):
        figure = training_figure(panel, points, steps=3, weight=0.5)
        assert "picked" not in str(figure.spec), panel.key
        assert len(figure.data) == 3 * len(panel.labels)


def line(run_id: int, values: list[float | None]) -> Group:
    metrics = Metrics(run_id=run_id, series={"kl": Series(step=list(range(len(values))), value=values)})
    return Group(f"run #{run_id}", run_id, Stroke("#123456"), (Member(0, True, metrics, 8),))


def compared(
    lines: list[Group],
    axis: XAxis = "step",
    *,
    name: str = "kl",
    steps: int = 2,
    log: bool = False,
    zoom: tuple[float, float] | None = None,
) -> Figure:
    """Single runs on one chart, the first of them in front."""
    return comparison_figure(name, lines, View(axis, 0.0, log, steps, zoom, by_run=True), front={1})


def test_compared_runs_lie_on_one_chart_under_their_labels_grey_unless_in_front() -> None:
    lines = [line(1, [0.1, 0.2]), line(2, [0.3])]
    figure = compared(lines, "samples")
    assert figure.data.groupby("label")["x"].apply(list).to_dict() == {"run #1": [8, 16], "run #2": [8]}
    assert f'"range": ["#123456", "{NEUTRAL}"]' in json.dumps(figure.spec)
    assert compared(lines, name="entropy").data.empty, "none of them has logged it"


def test_a_log_scale_leaves_out_what_is_not_above_zero() -> None:
    figure = compared([line(1, [0.0, 0.2])], log=True)
    assert figure.data["value"].isna().tolist() == [True, False]
    assert '"type": "log"' in json.dumps(figure.spec)


def test_a_zoom_shows_its_part_of_the_axis_and_nothing_else() -> None:
    figure = compared([line(1, [0.1, 0.2, 0.3, 0.4])], steps=4, zoom=(1, 2))
    assert figure.data["step"].tolist() == [0, 1, 2, 3], "lines lead out of the picture"
    nearer = compared([line(1, [0.1] * 9)], steps=9, zoom=(4.5, 6))
    assert nearer.data["step"].tolist() == [4, 5, 6, 7]
    assert '"domain": [1, 2]' in json.dumps(figure.spec)


def test_the_strip_stacks_equal_rewards_and_leaves_unscored_completions_out() -> None:
    rewards = [(1.0, 1.0), (1.0, 1.0), (0.0, -1.0), (None, None)]
    figure = strip_figure([completion_of(index, *each) for index, each in enumerate(rewards)], 0.5, 0.5)
    assert "reward · line: mean · band: mean ± 1 std" in str(figure.spec)
    assert figure.data[["completion", "level"]].to_numpy().tolist() == [[1, 1], [2, 2], [3, 1]]
    # further apart than numbers go
    far = [completion_of(index, reward, 0.0) for index, reward in enumerate((1.7e308, -1.7e308, 0.0))]
    assert strip_figure(far, 0.0, 1.7e308).data["level"].tolist() == [1, 1, 1]


def test_the_sign_of_an_advantage_is_its_colour() -> None:
    assert advantage_colour(2.0, 2.0) == REINFORCED
    assert advantage_colour(-2.0, 2.0) == DISCOURAGED
    assert advantage_colour(0.0, 2.0) == advantage_colour(0.0, 0.0) == NEUTRAL
    assert advantage_colour(None, 2.0) == UNSCORED


def test_what_runs_came_to_is_drawn_in_no_colour_that_a_group_has() -> None:
    axes = [Axis("rate", {1: 0.1, 2: 0.2}), Axis("Reward", {1: 0.5, 2: None})]
    spec = json.dumps(parallel_figure(axes, {1: "a", 2: "b"}, better="higher").spec).lower()
    assert SIZES[0] in spec
    assert SIZES[1] in spec
    assert not [colour for colour in (*GROUPS, *CATEGORICAL, REINFORCED, DISCOURAGED) if colour in spec]


def svg(address: str) -> str:
    head, _, data = address.partition(",")
    assert head == "data:image/svg+xml;base64"
    return base64.b64decode(data).decode()


def test_squares_tell_zero_from_missing_and_are_as_full_as_their_rewards() -> None:
    assert "<path" not in svg(reward_squares([0.0, 1.0], [-1.0, 1.0], 0.0, 1.0))
    assert svg(reward_squares([None, 1.0], [None, 0.0], 0.0, 1.0)).count("<path") == 1
    picture = svg(reward_squares([0.5], [0.0], 0.0, 1.0))
    assert 'height="16" fill' in picture
    assert 'height="8.0" fill' in picture


def test_what_was_not_trained_on_is_grey_and_the_rounding_of_a_trainers_advantages_has_no_colour() -> None:
    picture = svg(reward_squares([1.0, 1.0], [None, None], 0.0, 1.0))
    assert NEUTRAL in picture
    assert UNSCORED not in picture, "it is no error"
    assert DISCOURAGED not in svg(reward_squares([0.25, 0.25], [-4.7e-6, -4.7e-6], 0.0, 1.0))
    assert DISCOURAGED in svg(reward_squares([0.25, 0.26], [-4.7e-6, 4.7e-6], 0.0, 1.0))


def test_a_run_and_a_reward_keep_their_colours_whatever_stands_beside_them() -> None:
    few, many = run_colours([3, 7]), run_colours([3, 7, *range(20, 38)])
    assert {run_id: many[run_id] for run_id in few} == few
    assert len(set(many.values())) == 20
    assert reward_colours(["correctness"])["correctness"] == reward_colours(["format", "correctness"])["correctness"]


@pytest.mark.parametrize(
    ("labels", "columns"), [(["rollout", "update"], 5), ([f"#{n} a long name" * 2 for n in range(3)], 2)]
)
def test_a_legend_of_long_names_stands_in_two_columns(labels: list[str], columns: int) -> None:
    drawn = colour(dict.fromkeys(labels, REINFORCED), legend=True).to_dict()
    assert drawn["legend"]["columns"] == columns


def test_every_metric_has_words_of_its_own_even_one_that_nobody_foresaw_and_the_most_asked_for_come_first() -> None:
    titles = [meaning(name).title for name in in_order(_MEANINGS)]
    assert len(set(titles)) == len(titles)
    assert meaning("eval/pass@8").axis == "~%"
    assert meaning("rewards/correctness/mean").better == "higher"
    assert meaning("time/rollout").title == "Time for sampling"
    assert meaning("something/new").title == "something/new"
    assert in_order(["zeta", "kl", "reward", "alpha"]) == ["reward", "kl", "alpha", "zeta"]


NAMES = s.text(s.sampled_from("ab.-_/: "), min_size=1, max_size=6)


@given(s.sets(NAMES | NAMES.map(lambda name: "x" * 80 + name), min_size=2, max_size=30))
def test_names_that_differ_in_a_sign_or_far_behind_have_keys_of_their_own_that_a_class_can_be_called(
    names: set[str],
) -> None:
    keys = {place_key("panel", name) for name in names}
    assert len(keys) == len(names)
    assert all(key.replace("-", "").replace("_", "").isalnum() for key in keys)
    assert place_key("panel", "reward") == "panel-reward"
