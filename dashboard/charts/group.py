"""One group at a glance: its rewards on a line, and as squares small enough for a table."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import altair as alt
import pandas as pd

from backend.contract.groups import ROUNDED, CompletionData
from dashboard.charts.figure import Figure, Spec, canvas, picture_address, specification, tips
from dashboard.charts.palette import NEUTRAL, UNSCORED, advantage_colour

_PLACES = 36  # dots beside each other along the line
_NUMBERED = 8  # dots above each other that are large enough for a number
_CELL, _GAP, _TALL, _MARGIN = 11, 3, 16, 6  # the margin fills the height of a row, to which pictures are scaled


def strip_figure(completions: Sequence[CompletionData], mean: float | None, std: float | None) -> Figure:
    """Each completion as a dot at its reward, those that would overlap above each other; the mean as a line, ±1 std as a band."""
    scale = scale_of(completions)
    rewards = [completion.reward for completion in completions if completion.reward is not None]
    lowest, highest = min([*rewards, 0.0]), max([*rewards, 0.0])
    if lowest == highest:
        highest = 1.0
    height: Counter[int] = Counter()
    rows = []
    for completion in completions:
        if completion.reward is None:
            continue
        share = (completion.reward / 2 - lowest / 2) / (highest / 2 - lowest / 2)  # halves do not overflow
        place = round(share * _PLACES)
        height[place] += 1
        colour = advantage_colour(completion.advantage or 0.0, scale)
        rows.append((completion.index + 1, completion.reward, completion.advantage, height[place], colour))
    columns = ["completion", "reward", "advantage", "level", "colour"]
    return Figure(_strip_spec(mean, std, highest, max(height.values(), default=1)), pd.DataFrame(rows, columns=columns))


@lru_cache(maxsize=64)
def _strip_spec(mean: float | None, std: float | None, highest: float, levels: int) -> Spec:
    scale = alt.Scale(domain=alt.DomainUnionWith(unionWith=[0, highest]), nice=True, zero=False, padding=24)
    title = "reward" if mean is None else "reward · line: mean · band: mean ± 1 std"
    x = alt.X("reward:Q", title=title, scale=scale, axis=alt.Axis(tickCount=8, format=".6~g"))
    y = alt.Y("level:Q", title=None, axis=None, scale=alt.Scale(domain=[0.3, levels + 0.7]))
    layers: list[alt.Chart] = []
    if mean is not None:
        once = canvas().transform_aggregate(rows="count()")  # one mark, not one for each completion
        band = once.mark_rect(color=NEUTRAL, opacity=0.16)
        layers.append(band.encode(x=alt.datum(mean - (std or 0)), x2=alt.datum(mean + (std or 0))))
        layers.append(once.mark_rule(color=NEUTRAL, strokeWidth=2).encode(x=alt.datum(mean)))
    dots = canvas().encode(x=x, y=y)
    said = tips(("completion:Q", "completion"), ("reward:Q", "reward", ".4~g"), ("advantage:Q", "advantage", "+.3f"))
    circles = dots.mark_circle(size=260 if levels <= _NUMBERED else 60, opacity=1)
    layers.append(circles.encode(color=alt.Color("colour:N", scale=None), tooltip=said))
    if levels <= _NUMBERED:
        layers.append(dots.mark_text(color="white", fontSize=10).encode(text="completion:Q"))
    return specification(alt.layer(*layers).properties(height=64 + 22 * min(levels, _NUMBERED)))


def advantage_scale(advantages: Sequence[float | None], rewards: Sequence[float | None] = ()) -> float:
    """The largest advantage there: it gets the full colour. If the rewards are all equal, rounding gets none."""
    least = ROUNDED if len(set(rewards)) == 1 else 0.0
    return max([least, *(abs(advantage) for advantage in advantages if advantage is not None)])


def scale_of(completions: Sequence[CompletionData]) -> float:
    """The same of a group's completions."""
    return advantage_scale([one.advantage for one in completions], [one.reward for one in completions])


def reward_squares(rewards: Sequence[float | None], advantages: Sequence[float | None], low: float, high: float) -> str:
    """A small picture, as a data address: a square for each completion, filled as high as its reward between the bounds.

    Blue was reinforced, orange discouraged, grey neither or not trained on; a cross has no reward.
    """
    scale = advantage_scale(advantages, rewards)
    cells = "".join(
        _square(place * (_CELL + _GAP) + 1, reward, advantage_colour(advantage or 0.0, scale), low, high)
        for place, (reward, advantage) in enumerate(zip(rewards, advantages, strict=True))
    )
    width = len(rewards) * (_CELL + _GAP) + 1
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_TALL + 2 * _MARGIN}">{cells}</svg>'
    return picture_address(svg)


def _square(x: int, reward: float | None, colour: str, low: float, high: float) -> str:
    if reward is None:
        return f'<path d="M{x} {_MARGIN + 2}l{_CELL} {_CELL}M{x + _CELL} {_MARGIN + 2}l-{_CELL} {_CELL}" stroke="{UNSCORED}" stroke-width="2"/>'
    share = (reward - low) / (high - low) if high > low else 0.0
    filled = round(max(0.0, min(1.0, share)) * _TALL, 1)
    return (
        f'<rect x="{x}" y="{_MARGIN}" width="{_CELL}" height="{_TALL}" fill="{colour}" fill-opacity="0.15" stroke="{colour}"/>'
        f'<rect x="{x}" y="{_MARGIN + _TALL - filled}" width="{_CELL}" height="{filled}" fill="{colour}"/>'
    )
