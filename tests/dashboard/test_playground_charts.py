"""The Playground's figures: data in, Vega-Lite out."""

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd

from backend.contract.base import Json
from backend.contract.surrogate import Clip
from dashboard.charts.figure import Figure
from dashboard.charts.palette import DISCOURAGED, REINFORCED, UNSCORED
from dashboard.charts.playground import Curve, bars_figure, curves_figure
from dashboard.playground.surrogate import objective


def fields(spec: Json) -> Iterator[str]:
    if isinstance(spec, dict):
        if isinstance(spec.get("field"), str):
            yield str(spec["field"])
        for value in spec.values():
            yield from fields(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from fields(value)


def curves(new: float, *, band: tuple[float, float] | None = (0.8, 1.2)) -> Figure:
    drawn = [
        Curve(name, "#123456", *objective(Clip(), advantage, new, 0.5))
        for name, advantage in (("best", 1.0), ("worst", -1.0))
    ]
    return curves_figure(drawn, new / 0.5, x_title="ratio", y_title="objective", equal=1.0, band=band)


def marks(figure: Figure, kind: str) -> pd.DataFrame:
    return figure.data[figure.data["kind"] == kind]


def test_each_bar_carries_its_signed_number_in_the_colour_of_its_sign_and_many_leave_it_to_the_tooltip() -> None:
    data = bars_figure([1.0, 0.0, None], [0.9354, -0.9354, 0.0], "completion").data
    assert data["label"].tolist() == ["+0.935", "−0.935", "unscored"]
    assert data["colour"].tolist() == [REINFORCED, DISCOURAGED, UNSCORED]
    assert data["place"].tolist() == ["1|1", "2|0", "3|–"]

    assert set(bars_figure([1.0] * 17, [0.5] * 17, "completion").data["label"]) == {""}


def test_every_field_that_is_drawn_is_in_the_data_and_a_moved_point_rebuilds_nothing() -> None:
    for figure in (curves(0.9), bars_figure([1.0], [0.5], "completion")):
        assert set(fields(figure.spec)) <= set(figure.data.columns)
        assert json.dumps(figure.spec)

    assert curves(0.9).spec == curves(0.2, band=None).spec
    assert bars_figure([1.0], [0.5], "completion").spec == bars_figure([0.0, 1.0], [-1.0, 1.0], "completion").spec
    assert "datasets" not in curves(0.9).spec


def test_a_point_lies_on_its_curves_with_its_signed_numbers_which_are_kept_apart_where_curves_meet() -> None:
    points = marks(curves(0.9), "point")
    assert points["x"].tolist() == [1.8, 1.8]
    assert points["y"].tolist() == [1.2, -1.8]
    assert marks(curves(0.9), "number")["text"].tolist() == ["+1.20", "−1.80"]
    assert marks(curves(0.9), "number")["where"].tolist() == ["left above", "left below"]
    assert marks(curves(0.2), "number")["where"].tolist() == ["right below", "right above"]

    x = np.array([0.0, 1.0])
    both = [Curve("k1", "#111111", x, x, 0.5, strong=False), Curve("k2", "#222222", x, x**2, 0.25)]
    assert marks(curves_figure(both, 0.5, x_title="x", y_title="y", equal=0.0), "number")["label"].tolist() == ["k2"]

    meeting = [Curve("best", "#111111", x, 1 - x, 0.5), Curve("worst", "#222222", x, x - 1, -0.5)]
    ends = marks(curves_figure(meeting, 0.5, x_title="x", y_title="y", equal=0.0), "end")["y"].tolist()
    assert abs(ends[0] - ends[1]) > 0.1
