"""The report of a run: one HTML file without scripts, with charts, hints, chosen groups and the configuration.

`python -m dashboard.downloads.report RUN` writes it to the standard output; `groupscope export --what report` calls that.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.config import LOOKS
from backend.contract.groups import Group, GroupSummary
from backend.contract.health import Hint
from backend.contract.home import load
from backend.contract.records import Metrics, Run
from dashboard.algorithm.estimators import stored_estimator
from dashboard.charts.group import strip_figure
from dashboard.charts.training import panels_of, training_figure
from dashboard.completion_text import TextLook
from dashboard.components.pictures import svg
from dashboard.format import REWARD, count, counted, duration, improvement, model_name, reading, recent_reward
from dashboard.group.cards import card_html, equal_ones, look_at, order_of
from dashboard.group.numbers import figures_html, state_in_words
from dashboard.settings import Settings
from dashboard.stored import number_at, text_at
from dashboard.text import in_html, unturned

POINTS = 600  # of each series
BOOKMARKED = 30  # groups, at most
MOST = 16  # completions of a group; of a larger one, the most reinforced and the most discouraged
COLUMNS = 48  # letters in a line of a card
SMOOTHING = 0.6
HERE = Path(__file__).parent
STYLES = (HERE.parent / "group" / "group.css", HERE / "report.css")

Choice = Literal["bookmarked", "examples"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
ENDS = ("step", "-step")  # the first step that has live groups, and the newest one
OF_AN_END = {
    "widest spread": "-reward_std",
    "highest mean of the live ones": "-reward_mean",
    "lowest mean of the live ones": "reward_mean",
}
NEWEST = {"newest dead one": "zero_variance", "newest unscored one": "unscored"}
JUDGED = (("Margin", "margin"), ("Loss", "eval/loss"))


@dataclass(frozen=True)
class Chosen:
    """A group of the report, and why it was chosen."""

    group: Group
    why: str


@dataclass(frozen=True)
class Contents:
    """What a report is made of."""

    run: Run
    metrics: Metrics
    hints: Sequence[Hint]
    groups: Sequence[Chosen]
    made_at: datetime


def gather(client: Client, run_id: int, choices: Iterable[str] = CHOICES) -> Contents:
    """Fetch the run, with its bookmarked groups, with examples, with both, or without groups."""
    run = client.run(run_id)
    wanted: dict[int, dict[str, None]] = {}  # group -> why, each reason once
    if run.by_groups or run.kind in LOOKS:
        for group, why in _chosen(client, run_id, set(choices)):
            wanted.setdefault(group.id, {})[why] = None
    return Contents(
        run,
        client.metrics(run_id, max_points=POINTS),
        client.health(run_id).items if run.kind not in LOOKS else [],
        [Chosen(client.group(group_id), ", ".join(why)) for group_id, why in wanted.items()],
        datetime.now(UTC),
    )


def _chosen(client: Client, run_id: int, choices: set[str]) -> Iterator[tuple[GroupSummary, str]]:
    """The groups and the reasons for them.

    The examples are of the first and of the newest step that has live groups: at the end of a good run every group is dead, and its
    newest step says nothing.
    """
    if "bookmarked" in choices:
        for group in client.groups(run_id, bookmarked=True, limit=BOOKMARKED).items:
            yield group, "bookmarked, of a step done again after a resume" if group.superseded else "bookmarked"
    if "examples" not in choices:
        return
    for end in ENDS:
        for live in client.groups(run_id, state="live", sort=end, limit=1).items:
            for why, sort in OF_AN_END.items():
                for group in client.groups(run_id, step=live.step, state="live", sort=sort, limit=1).items:
                    yield group, why
    for why, state in NEWEST.items():
        for group in client.groups(run_id, state=state, sort="-step", limit=1).items:
            yield group, why


def report(contents: Contents) -> str:
    """The whole page."""
    run, series = contents.run, contents.metrics.series
    steps = int(number_at(run.config, "budget.steps", run.progress.total_steps))
    charts = [
        (panel, svg(training_figure(panel, series, steps=steps, weight=SMOOTHING)))
        for panel in panels_of(run, list(series))
        if any(name in series for name in panel.labels)
    ]
    template = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else unturned(str(value)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template.filters |= {"count": count, "counted": counted}
    return template.get_template("report.html").render(
        run=run,
        facts=_facts(run),
        charts=charts,
        hints=contents.hints,
        groups=[_group(chosen, run.config) for chosen in contents.groups],
        parts=_parts(run.config),
        made_at=contents.made_at,
        style="\n".join(path.read_text(encoding="utf-8") for path in STYLES),
    )


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    """The numbers that a run is judged by."""
    yield "Model", model_name(text_at(run.config, "model.source", "model"))
    yield "Steps", f"{count(run.progress.step)} of {count(run.progress.total_steps)}"
    if "reward" in run.summary:
        yield f"{REWARD} steps", recent_reward(run)
    yield from ((title, reading(run.summary, name)) for title, name in JUDGED if name in run.summary)
    if "eval/pass@1" in run.summary:
        yield "Held-out pass@1", improvement(run.summary, "eval/pass@1")
    if run.trained_seconds is not None:
        yield "Trained for", duration(run.trained_seconds)
    yield "Device", run.device or "–"
    yield "Created", f"{run.created_at:%Y-%m-%d %H:%M} UTC"


def _group(chosen: Chosen, config: Mapping[str, Json]) -> dict[str, object]:
    """A group as the template shows it: `words`, `figures`, `strip` and `cards` are HTML, in which every text is escaped already."""
    group = chosen.group
    look = look_at(group, config)
    ordered = order_of(group.completions, by_advantage=True)
    shown = ordered if len(ordered) <= MOST else [*ordered[: MOST // 2], *ordered[-MOST // 2 :]]
    return {
        "group": group,
        "why": chosen.why,
        "words": re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", in_html(state_in_words(group, config))),  # our own emphasis
        "figures": figures_html(group, stored_estimator(config)),
        "strip": ""
        if group.reward_mean is None
        else svg(strip_figure(group.completions, group.reward_mean, group.reward_std)),
        "cards": [
            (look.colour(one), card_html(one, look, TextLook(columns=COLUMNS), [each.index for each in (one, *others)]))
            for one, *others in equal_ones(shown)
        ],
        "left_out": len(ordered) - len(shown),
    }


def _parts(config: Mapping[str, Json]) -> list[str]:
    """The stored configuration in its parts; all of them together are the YAML that `groupscope submit` takes."""
    parts = {name: value for name, value in config.items() if isinstance(value, dict)}
    rest = {name: value for name, value in config.items() if name not in parts}
    each = [rest, *({name: value} for name, value in parts.items())]
    return [yaml.safe_dump(part, sort_keys=False, allow_unicode=True, width=72).rstrip() for part in each if part]


def main() -> None:
    """Raises ApiError and Unreachable as they come; the command line has them in plain words already."""
    settings = load(Settings)
    with Client(settings.backend_url, settings.secret()) as client:
        page = report(gather(client, int(sys.argv[1])))
    sys.stdout.buffer.write(page.encode())


if __name__ == "__main__":
    main()
