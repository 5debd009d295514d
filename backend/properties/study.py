"""What the reward pays for, of a window that was read: every number of the answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from backend.contract.properties import Example, ExampleSide, PhraseSpread, PropertyEffect, TrendPoint
from backend.properties.association import (
    LEAST,
    LEVEL,
    TOGETHER,
    Association,
    Bools,
    Floats,
    Ints,
    associate,
    bounded,
    centred,
    correlations,
    differing,
    pointwise,
    size_of,
)
from backend.properties.measures import Property
from backend.properties.table import PARTS, Table, varying
from backend.properties.window import Seen, Window
from backend.telemetry.groups import excerpt

SHOWN = 12  # properties with a trend and examples
EXAMPLES = 3
SPREADING = 20
_SEED = 20


@dataclass(frozen=True)
class Studied:
    """The completions whose group tells rewards apart, with all properties that are looked at, and what was found."""

    window: Window
    table: Table
    properties: list[Property]
    rewards_N: Floats  # of all completions; NaN where unknown
    values_N_K: Floats
    kept_N: Bools  # in groups whose rewards differ
    cluster: Literal["prompt", "group"]
    clusters_N: Ints  # of those that are kept
    association: Association
    together_K_K: Floats
    beside: Association | None
    order: list[int]  # of the columns: what is clear first, then the strongest

    @property
    def lead(self) -> int | None:
        """The column that goes with the reward most; None if none does beyond chance."""
        return self.order[0] if self.order and self.association.clear_K[self.order[0]] else None


def rewards_of(completions: Sequence[Seen], reward: str | None) -> Floats:
    """The raw score of a component, or the total; NaN where a completion has none. (N,)."""
    known = (one.total if reward is None else one.rewards.get(reward) for one in completions)
    return np.array([np.nan if each is None else each for each in known], dtype=np.float64)


def study(window: Window, seen: Table, reward: str | None) -> Studied:
    """The association of a reward with each property."""
    rewards_N = rewards_of(window.completions, reward)
    kept_N = differing(rewards_N, seen.groups_N)
    groups_N = numbered(seen.groups_N[kept_N])
    phrases = varying(seen.uses_N_W[kept_N], groups_N)
    properties = [*seen.properties, *(seen.phrases[each] for each in phrases)]
    values_N_K = np.hstack([seen.values_N_K, seen.uses_N_W[:, phrases].astype(np.float64)])
    prompts_N = numbered(seen.prompts_N[kept_N])
    by_prompt = len(prompts_N) > 0 and prompts_N.max() + 1 >= 2 * LEAST
    clusters_N = prompts_N if by_prompt else groups_N
    data = centred(rewards_N[kept_N], values_N_K[kept_N], groups_N, clusters_N, seen.texts_N[kept_N])
    random = np.random.default_rng(_SEED)
    found = associate(data, random)
    size_K = np.nan_to_num(np.abs(found.correlation_K))
    tested = [int(k) for k in np.flatnonzero(found.tested_K)]
    order = sorted(tested, key=lambda k: (not found.clear_K[k], -size_K[k], k))
    beside = associate(data.beside(order[0]), random) if order and found.clear_K[order[0]] else None
    return Studied(
        window,
        seen,
        properties,
        rewards_N,
        values_N_K,
        kept_N,
        "prompt" if by_prompt else "group",
        clusters_N,
        found,
        correlations(data),
        beside,
        order,
    )


def effects(studied: Studied) -> list[PropertyEffect]:
    """A line for each property that can be separated from those before it."""
    lines: list[PropertyEffect] = []
    named: set[int] = set()
    for k in studied.order:
        if k in named:
            continue
        same = [
            other
            for other in studied.order
            if other != k and other not in named and abs(studied.together_K_K[k, other]) > TOGETHER
        ]
        named |= {k, *same}
        lines.append(_line(studied, k, same, shown=len(lines) < SHOWN))
    return lines


def _line(studied: Studied, k: int, same: Sequence[int], *, shown: bool) -> PropertyEffect:
    found, known = studied.association, studied.properties[k]
    spread = float(found.spread_K[k])
    unit = 1.0 if known.binary else spread
    beside = studied.beside if k != studied.lead else None
    return PropertyEffect(
        kind=known.kind,
        of=known.of,
        title=known.title,
        binary=known.binary,
        mean=float(np.nanmean(studied.values_N_K[:, k])),
        spread=spread,
        clusters=float(found.clusters_K[k]),
        effect=float(bounded(found.effect_K, unit)[k]),
        low=_number(bounded(found.low_K, unit)[k]),
        high=_number(bounded(found.high_K, unit)[k]),
        correlation=float(found.correlation_K[k]),
        p=float(found.p_K[k]),
        clear=bool(found.clear_K[k]),
        beside=None if beside is None else _number(beside.correlation_K[k]),
        beside_clear=beside is not None and bool(beside.clear_K[k]),
        same=[studied.properties[other].title for other in same],
        trend=_trend(studied, k, unit) if shown else [],
        examples=_examples(studied, k) if shown else [],
    )


def _trend(studied: Studied, k: int, unit: float) -> list[TrendPoint]:
    seen, points = studied.table, []
    for part in range(PARTS):
        here_N = seen.parts_N == part
        if not here_N.any():
            continue
        values_N = studied.values_N_K[here_N, k]
        kept_N = here_N & studied.kept_N
        effect = low = high = None
        if kept_N.any():
            clusters_N = studied.clusters_N[here_N[studied.kept_N]]
            data = centred(
                studied.rewards_N[kept_N],
                studied.values_N_K[kept_N, k : k + 1],
                numbered(seen.groups_N[kept_N]),
                numbered(clusters_N),
                seen.texts_N[kept_N],
            )
            found = pointwise(data)
            effect, low, high = (
                _number(bounded(each, unit)[0]) for each in (found.effect_K, found.low_K, found.high_K)
            )
        steps_N = seen.steps_N[here_N]
        points.append(
            TrendPoint(
                from_step=int(steps_N.min()),
                to_step=int(steps_N.max()),
                mean=_number(np.nanmean(values_N)) if np.isfinite(values_N).any() else None,
                effect=effect,
                low=low,
                high=high,
            )
        )
    return points


def _examples(studied: Studied, k: int) -> list[Example]:
    """Pairs of completions of a group: where the property and the reward go together most, as in the middle, and least, or against it."""
    seen, sign = studied.table, np.sign(studied.association.effect_K[k]) or 1.0
    unit, pairs = size_of(studied.rewards_N), list[tuple[float, int, int]]()
    usable_N = studied.kept_N & np.isfinite(studied.values_N_K[:, k]) & np.isfinite(studied.rewards_N)
    for group in np.unique(seen.groups_N[usable_N]):
        members = np.flatnonzero((seen.groups_N == group) & usable_N)
        values, rewards = studied.values_N_K[members, k], studied.rewards_N[members] / unit
        if values.max() == values.min():
            continue
        # of several that have as much, those whose rewards lie in the middle
        more, less = (_middle(members[values == end], studied.rewards_N) for end in (values.max(), values.min()))
        score = float(((values - values.mean()) * (rewards - rewards.mean())).sum() * sign)
        pairs.append((score, more, less))
    pairs.sort(key=lambda pair: -pair[0])
    places = sorted({0, len(pairs) // 2, len(pairs) - 1}) if pairs else []
    return [_example(studied, k, *pairs[place][1:]) for place in places[:EXAMPLES]]


def _middle(members: Ints, rewards_N: Floats) -> int:
    return int(members[np.argsort(rewards_N[members], kind="stable")[len(members) // 2]])


def _example(studied: Studied, k: int, more: int, less: int) -> Example:
    def side(place: int) -> ExampleSide:
        one = studied.window.completions[place]
        return ExampleSide(
            completion_id=one.id,
            index=one.index,
            value=float(studied.values_N_K[place, k]),
            reward=float(studied.rewards_N[place]),
            excerpt=excerpt(one.said, studied.properties[k].of),
        )

    group = studied.window.groups[studied.window.completions[more].group]
    return Example(
        group_id=group.id,
        step=group.step,
        group_index=group.index,
        prompt=group.prompt[:200],
        more=side(more),
        less=side(less),
    )


def spreads(studied: Studied) -> list[PhraseSpread]:
    """The phrases and tags whose share of completions differs most between the first and the last quarter of the steps."""
    seen = studied.table
    tags = [k for k, known in enumerate(seen.properties) if known.kind == "tag"]
    names = [*(seen.properties[k] for k in tags), *seen.phrases]
    uses_N_W = np.hstack([seen.values_N_K[:, tags] > 0, seen.uses_N_W]).astype(np.float64)
    first_N, last_N = quarters(seen)
    if not names or min(len(np.unique(seen.groups_N[each])) for each in (first_N, last_N)) < LEAST:
        return []
    (before_W, error_before_W), (after_W, error_after_W) = (
        share(uses_N_W[each], numbered(seen.groups_N[each])) for each in (first_N, last_N)
    )
    half_W = NormalDist().inv_cdf(1 - LEVEL / 2 / len(names)) * np.sqrt(error_before_W + error_after_W)
    rise_W = after_W - before_W
    clear_W = np.abs(rise_W) > half_W
    good_N = last_N & (_above(studied.rewards_N, seen.groups_N))
    rewarded_W = uses_N_W[good_N].mean(axis=0) if good_N.any() else None
    lines: list[PhraseSpread] = []
    listed: list[int] = []
    # of phrases that stand for one another, one whose effect is known
    looked_at = {known.of for known in studied.properties}
    for w in sorted(range(len(names)), key=lambda w: (-round(abs(float(rise_W[w])), 2), names[w].of not in looked_at)):
        if not clear_W[w] or len(lines) == SPREADING:
            continue
        if any(_alike(uses_N_W[:, w], uses_N_W[:, other]) for other in listed):
            continue
        listed.append(w)
        lines.append(
            PhraseSpread(
                phrase=names[w].of or "",
                first=float(before_W[w]),
                last=float(after_W[w]),
                low=float(rise_W[w] - half_W[w]),
                high=float(rise_W[w] + half_W[w]),
                rewarded=None if rewarded_W is None else float(rewarded_W[w]),
            )
        )
    return lines


def quarters(seen: Table) -> tuple[Bools, Bools]:
    """Whether a completion lies in the first, and whether it lies in the last quarter of the window's steps; of few steps that is one."""
    last = int(seen.steps_N.max(initial=0))
    since_N = seen.steps_N - int(seen.steps_N.min(initial=last))
    length = int(since_N.max(initial=0)) + 1
    return 4 * since_N < length, 4 * (last - seen.steps_N) < length


def share(uses_N_W: Floats, groups_N: Ints) -> tuple[Floats, Floats]:
    """The share of completions, and its squared standard error with groups as clusters; a share of 0 or 1 has one, too."""
    share_W = uses_N_W.mean(axis=0)
    count = int(groups_N.max()) + 1
    error_W = np.empty_like(share_W)
    for w in range(uses_N_W.shape[1]):
        sums_P = np.bincount(groups_N, weights=uses_N_W[:, w] - share_W[w], minlength=count)
        error_W[w] = (sums_P**2).sum() / len(groups_N) ** 2
    return share_W, np.maximum(error_W, 1 / count**2)


def _above(rewards_N: Floats, groups_N: Ints) -> Bools:
    """Whether a completion's reward is above its group's mean."""
    return centred(rewards_N, np.zeros((len(rewards_N), 1)), groups_N, groups_N).rewards_N_K[:, 0] > 1e-9


def _alike(one_N: Floats, other_N: Floats) -> bool:
    one_N, other_N = one_N - one_N.mean(), other_N - other_N.mean()
    norm = float(np.sqrt((one_N @ one_N) * (other_N @ other_N)))
    return norm > 0 and abs(float(one_N @ other_N)) / norm > TOGETHER


def numbered(names_N: Ints) -> Ints:
    """The same classes as 0, 1, 2, …"""
    return np.unique(names_N, return_inverse=True)[1].astype(np.int64)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
