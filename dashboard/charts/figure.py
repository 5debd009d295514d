"""A figure: a Vega-Lite specification and its data, apart, so that new data moves the lines and rebuilds nothing.

The browser rebuilds a chart whose specification changed and only redraws one whose data changed. Specifications are therefore
functions of what stays (labels, colours, the number of steps), and are remembered.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import altair as alt
import pandas as pd
import pyarrow as pa

from backend.contract.base import Json

Spec: TypeAlias = dict[str, Json]
PICKED = "picked"  # the selection that a click on a step makes
ZOOMED = "zoomed"  # the selection that dragging along the x axis makes
# letters that fit into a line of a legend in a chart of a third of the page; longer labels stand in two columns
LETTERS = 60


@dataclass(frozen=True, eq=False)
class Figure:
    """What `components.chart.show` draws."""

    spec: Spec
    data: pd.DataFrame

    @cached_property
    def sent(self) -> pa.Table:
        """The data as a browser gets it, made once for everybody who sees the figure.

        Each distinct text is sent once, and numbers refer to it: decoding texts is much of what a table costs a browser.
        """
        texts = {name: "category" for name, kind in self.data.dtypes.items() if kind == "str"}
        return pa.Table.from_pandas(self.data.astype(texts))


def specification(chart: alt.Chart | alt.LayerChart | alt.FacetChart) -> Spec:
    """The chart as Vega-Lite, without data; its sizes are its own, not the library's defaults."""
    spec: Spec = chart.to_dict()
    return {key: value for key, value in spec.items() if key != "config"}


def picture_address(svg: str) -> str:
    """The data address of a small picture."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def canvas() -> alt.Chart:
    """A chart whose data comes later, under the name that Streamlit gives it."""
    return alt.Chart(alt.NamedData(name="source"))


def tips(*lines: tuple[str, ...]) -> list[alt.Tooltip]:
    """What a chart says where the pointer is: a line for each field, with its title and the format of a number (d3)."""
    return [alt.Tooltip(field, title=title, format=form[0] if form else alt.Undefined) for field, title, *form in lines]


def colour(colours: Mapping[str, str], *, legend: bool) -> alt.Color:
    """Labels in their colours; labels without points keep their place in the legend."""
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color("label:N", scale=scale, legend=legend_of(list(colours)) if legend else None)


def legend_of(labels: Sequence[str]) -> alt.Legend:
    """The strokes of the labels above the chart. Several channels with the same legend share it."""
    letters = sum(len(label) + 5 for label in labels)  # 5: the symbol and the space around it
    return alt.Legend(
        orient="top",
        title=None,
        symbolType="stroke",
        symbolOpacity=1,
        symbolStrokeWidth=3,
        padding=0,
        offset=4,
        columns=5 if letters <= LETTERS else 2,
    )
