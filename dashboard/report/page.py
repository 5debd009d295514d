"""The report: one HTML file without scripts, in which every text from elsewhere is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path

import yaml

from backend.contract.base import Json
from backend.contract.groups import Group
from backend.contract.health import Hint
from backend.contract.records import Metrics, Run
from dashboard.charts.preference import pair_panels
from dashboard.charts.training import Panel, panels, training_figure
from dashboard.components.completion_html import TextLook, card_html, look_at, order_of
from dashboard.components.group_arithmetic import estimator, formula
from dashboard.components.model_text import in_html
from dashboard.components.stored import number_at, reward_names
from dashboard.format import count, number, reading
from dashboard.report.pictures import svg

STYLES = (Path(__file__).parents[1] / "group.css", Path(__file__).with_name("report.css"))
SMOOTHING = 0.6


@dataclass(frozen=True)
class Contents:
    """What a report is made of."""

    run: Run
    metrics: Metrics
    hints: Sequence[Hint]
    groups: Sequence[Group]
    made_at: datetime


def report(contents: Contents) -> str:
    """The whole page."""
    run = contents.run
    title = f"{in_html(run.name)} · run {run.id}"
    parts = (
        f"<h1>{in_html(run.name)}</h1>",
        _head(run, contents.made_at),
        _section("Charts", _charts(run, contents.metrics)),
        _section("Hints", _hints(contents.hints)),
        _section("Groups", "".join(_group(group, run.config) for group in contents.groups)),
        _section("Configuration", f'<pre class="model-text">{in_html(_yaml(run.config))}</pre>'),
    )
    style = "\n".join(path.read_text() for path in STYLES)
    # no script may run and nothing may be fetched, whatever the texts say
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{style}</style></head>'
        f"<body><main>{''.join(parts)}</main></body></html>"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>" if body else ""


def _head(run: Run, made_at: datetime) -> str:
    facts: Iterable[tuple[str, str]] = (
        ("state", run.status),
        ("steps", f"{count(run.progress.step)} of {count(run.progress.total_steps)}"),
        ("reward", reading(run.summary, "reward")),
        ("device", run.device or "–"),
        ("created", f"{run.created_at:%Y-%m-%d %H:%M} UTC"),
        ("report made", f"{made_at:%Y-%m-%d %H:%M} UTC"),
    )
    cells = "".join(f"<div><dt>{name}</dt><dd>{in_html(value)}</dd></div>" for name, value in facts)
    notes = f'<p class="model-text">{in_html(run.notes)}</p>' if run.notes else ""
    return f"<dl>{cells}</dl>{notes}"


def _charts(run: Run, metrics: Metrics) -> str:
    names = list(metrics.series)
    every = panels(names, reward_names(run.config)) if run.kind == "grpo" else pair_panels(run.kind, names)
    shown = [panel for panel in every if any(name in metrics.series for name in panel.labels)]
    figures = "".join(_figure(panel, run, metrics) for panel in shown)
    return f'<div class="charts">{figures}</div>' if figures else ""


def _figure(panel: Panel, run: Run, metrics: Metrics) -> str:
    steps = int(number_at(run.config, "budget.steps", run.progress.total_steps))
    picture = svg(training_figure(panel, metrics.series, steps=steps, weight=SMOOTHING))
    unit = f" <small>{escape(panel.unit)}</small>" if panel.unit else ""
    return (
        f'<figure><figcaption title="{escape(panel.help)}">{in_html(panel.title)}{unit}</figcaption>{picture}</figure>'
    )


def _hints(hints: Sequence[Hint]) -> str:
    if not hints:
        return "<p>No rule fired.</p>"
    return "".join(
        f'<article class="hint"><h3>{in_html(hint.title)}</h3><p>{in_html(hint.measured)}</p>'
        f"<p><b>Rule</b> {in_html(hint.rule)}</p><p><b>Advice</b> {in_html(hint.advice)}</p></article>"
        for hint in hints
    )


def _group(group: Group, config: Mapping[str, Json]) -> str:
    look = look_at(group, config)
    cards = "".join(
        f'<div class="card" style="border-left:4px solid {look.colour(completion)}">'
        f"{card_html(completion, look, TextLook(full=True))}</div>"
        for completion in order_of(group.completions, by_advantage=True)
    )
    note = group.bookmark.note if group.bookmark is not None else ""
    return (
        f"<article><h3>Step {count(group.step)} · group {count(group.index + 1)} · {escape(group.state)}</h3>"
        + (f'<p class="model-text">{in_html(note)}</p>' if note else "")
        + f'<div class="model-text prompt">{in_html(group.prompt or group.prompt_text)}</div>'
        + (f"<p>answer <b>{in_html(group.answer)}</b></p>" if group.answer is not None else "")
        + f"<p>mean {number(group.reward_mean)} · std {number(group.reward_std)} · "
        f"{in_html(formula(group, estimator(config)))}</p>" + f'<div class="cards">{cards}</div></article>'
    )


def _yaml(config: Mapping[str, Json]) -> str:
    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
