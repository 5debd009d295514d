"""The report: one HTML file without scripts, in which every text from elsewhere is escaped."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path

import yaml

from backend.contract.base import Json
from backend.contract.health import Hint
from backend.contract.records import Metrics, Run
from dashboard.charts.preference import pair_panels
from dashboard.charts.training import Panel, panels, training_figure
from dashboard.components.model_text import in_html
from dashboard.components.stored import number_at, reward_names, text_at
from dashboard.format import count, duration, improvement, model_name, reading
from dashboard.report.groups import Chosen, group_html
from dashboard.report.pictures import svg
from dashboard.run.configuration import PARTS

STYLES = (Path(__file__).parents[1] / "group" / "group.css", Path(__file__).with_name("report.css"))
SMOOTHING = 0.6
# no script may run and nothing may be fetched, whatever the texts say
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class Contents:
    """What a report is made of."""

    run: Run
    metrics: Metrics
    hints: Sequence[Hint]
    groups: Sequence[Chosen]
    made_at: datetime


def report(contents: Contents) -> str:
    """The whole page."""
    run = contents.run
    sections = {
        "Charts": _charts(run, contents.metrics),
        "Health": _hints(run, contents.hints),
        "Groups": "".join(group_html(chosen, run.config) for chosen in contents.groups),
        "Configuration": _configuration(run.config),
    }
    shown = {title: body for title, body in sections.items() if body}
    links = "".join(f'<a href="#{title.lower()}">{title}</a>' for title in shown)
    parts = "".join(f'<section id="{title.lower()}"><h2>{title}</h2>{body}</section>' for title, body in shown.items())
    style = "\n".join(path.read_text(encoding="utf-8") for path in STYLES)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{in_html(run.name)} · run {run.id}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head><body><main>'
        f"<header><nav><b>Groupscope</b> report of run {run.id}<span></span>{links}</nav>{_head(run)}</header>{parts}"
        f"<footer>Made {contents.made_at:%Y-%m-%d %H:%M} UTC from what the run had stored"
        f"{'' if run.finished_at else '; it was not over yet'}.</footer></main></body></html>"
    )


def _head(run: Run) -> str:
    """Name, state, the numbers that a run is judged by, and what people wrote about it."""
    tags = "".join(f'<span class="tag">{in_html(tag)}</span>' for tag in run.tags)
    cells = "".join(f"<div><dt>{in_html(name)}</dt><dd>{in_html(value)}</dd></div>" for name, value in _facts(run))
    error = f'<p class="said error">{in_html(run.error.message)}</p>' if run.error is not None else ""
    notes = f'<blockquote class="said">{in_html(run.notes)}</blockquote>' if run.notes else ""
    return f'<h1>{in_html(run.name)}</h1><p class="state {run.status}">{run.status}{tags}</p><dl>{cells}</dl>{error}{notes}'


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    yield "Model", model_name(text_at(run.config, "model.source", "model"))
    yield "Steps", f"{count(run.progress.step)} of {count(run.progress.total_steps)}"
    yield from ((title, reading(run.summary, name)) for title, name in _JUDGED if name in run.summary)
    if "eval/pass@1" in run.summary:
        yield "Held-out pass@1", improvement(run.summary, "eval/pass@1")
    if run.trained_seconds is not None:
        yield "Trained for", duration(run.trained_seconds)
    yield "Device", run.device or "–"
    yield "Created", f"{run.created_at:%Y-%m-%d %H:%M} UTC"


_JUDGED = (("Reward", "reward"), ("Margin", "margin"), ("Loss", "eval/loss"))


def _charts(run: Run, metrics: Metrics) -> str:
    names = list(metrics.series)
    every = (
        pair_panels(run.kind, names) if run.kind in ("reward_model", "dpo") else panels(names, reward_names(run.config))
    )
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


def _hints(run: Run, hints: Sequence[Hint]) -> str:
    if not hints:
        return "" if run.kind == "sample" else "<p>No rule fired.</p>"
    return "".join(
        f'<article class="hint {hint.level}"><h3>{in_html(hint.title)}</h3><p>{in_html(hint.measured)}</p>'
        f"<p><b>What to do.</b> {in_html(hint.advice)}</p><p><small>Rule: {in_html(hint.rule)}.</small></p></article>"
        for hint in hints
    )


def _configuration(config: Mapping[str, Json]) -> str:
    """The stored configuration in its parts; all of them together are the YAML that `groupscope submit` takes."""
    rest = {name: value for name, value in config.items() if name not in PARTS}
    parts = [rest, *({name: config[name]} for name in PARTS if name in config)]
    return f'<div class="parts">{"".join(f"<pre>{in_html(_yaml(part))}</pre>" for part in parts if part)}</div>'


def _yaml(value: Mapping[str, Json]) -> str:
    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=72).rstrip()
