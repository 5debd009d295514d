"""The curve behind a hint: its steps, and those before them, so that one sees how it came to be."""

from backend.contract.health import Evidence
from backend.contract.records import Series
from dashboard.charts.figure import Figure
from dashboard.charts.lines import Look, line_figure
from dashboard.charts.meaning import meaning
from dashboard.charts.palette import INK
from dashboard.charts.series import long_table

BEFORE = 3  # times the evidence's own length is shown before it
HEIGHT = 110


def shown_steps(evidence: Evidence) -> tuple[int, int]:
    """The first and the last step of its charts."""
    length = evidence.to_step - evidence.from_step + 1
    return max(0, evidence.from_step - BEFORE * length), max(evidence.to_step, evidence.from_step + 1)


def evidence_figure(name: str, series: Series, evidence: Evidence) -> Figure:
    """One metric; a line marks where the evidence begins, unless all of the chart is evidence."""
    about = meaning(name)
    first, last = shown_steps(evidence)
    look = Look(
        colours=((about.title, INK),),
        axis=about.axis,
        x_axis="~d",
        x_domain=(first, last),
        from_zero=True,
        mark=evidence.from_step if evidence.from_step > first else None,
        height=HEIGHT,
    )
    return line_figure(look, long_table({name: series}, {name: about.title}, 0.0))
