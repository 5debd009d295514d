"""A figure as a picture: what the browser draws, drawn by vl-convert."""

import json
from typing import cast

import vl_convert

from dashboard.charts.figure import Figure, Spec

WIDTH = 420  # of the plot, in CSS pixels


def svg(figure: Figure, *, width: int = WIDTH) -> str:
    """The figure as SVG."""
    return str(vl_convert.vegalite_to_svg(_whole(figure, width)))


def png(figure: Figure, *, width: int = WIDTH, scale: float = 2.0) -> bytes:
    """The figure as PNG, with `scale` pixels for each CSS pixel."""
    return bytes(vl_convert.vegalite_to_png(_whole(figure, width), scale=scale))


def _whole(figure: Figure, width: int) -> Spec:
    """The specification with its data in it. What was not finite is null, as it is where the browser draws."""
    rows = json.loads(figure.data.to_json(orient="records"))
    return cast(Spec, {**figure.spec, "width": width, "background": "white", "datasets": {"source": rows}})
