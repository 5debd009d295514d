"""Completions as a table of numbers: a row for each, a column for each property that at least one of them has."""

from collections import Counter
from dataclasses import dataclass
from itertools import chain

import numpy as np

from backend.properties.association import Bools, Floats, Ints
from backend.properties.measures import Property, measured, words
from backend.properties.phrases import Finder, found
from backend.properties.window import Window

PARTS = 8
"""Into which a window's steps are divided, for trends."""
MOST = {"tag": 12, "tool": 12, "script": 6}
"""Of how many of a kind, those that most completions have."""
PHRASES = 60


@dataclass(frozen=True)
class Table:
    """`values_N_K` are the properties, NaN where a completion has none of the sort; `uses_N_W` says which phrase a completion uses."""

    properties: list[Property]
    values_N_K: Floats
    phrases: list[Property]
    uses_N_W: Bools
    groups_N: Ints  # 0, 1, …, in the order of the window's steps
    texts_N: Ints  # the same number for equal texts
    steps_N: Ints
    prompts_N: Ints
    parts_N: Ints


def table(window: Window) -> Table:
    """Every property of every completion of a window."""
    spoken = [words(one.said) for one in window.completions]
    rows = [dict(measured(one.whole, one.said, its)) for one, its in zip(window.completions, spoken, strict=True)]
    properties = _kept(rows)
    place = {known: column for column, known in enumerate(properties)}
    values_N_K = np.zeros((len(rows), len(properties)))
    for number, row in enumerate(rows):
        for known, value in row.items():
            if known in place:
                values_N_K[number, place[known]] = value
    groups = {group: number for number, group in enumerate(dict.fromkeys(one.group for one in window.completions))}
    prompts: dict[str, int] = {}
    texts: dict[str, int] = {}
    of_group = [window.groups[one.group] for one in window.completions]
    steps_N = np.array([group.step for group in of_group], dtype=np.int64)
    parts_N = _parts(steps_N)
    phrases = found([[its for its, part in zip(spoken, parts_N, strict=True) if part == each] for each in range(PARTS)])
    finder, uses_N_W = Finder(phrases), np.zeros((len(rows), len(phrases)), dtype=np.bool_)
    for number, its in enumerate(spoken):
        uses_N_W[number, list(finder.used(its))] = True
    apart = _apart(uses_N_W, [len(phrase) for phrase in phrases])
    return Table(
        properties,
        values_N_K,
        [Property("phrase", " ".join(phrases[each])) for each in apart],
        uses_N_W[:, apart],
        np.array([groups[one.group] for one in window.completions], dtype=np.int64),
        np.array([texts.setdefault(one.said, len(texts)) for one in window.completions], dtype=np.int64),
        steps_N,
        np.array([prompts.setdefault(group.prompt_id, len(prompts)) for group in of_group], dtype=np.int64),
        parts_N,
    )


def _kept(rows: list[dict[Property, float]]) -> list[Property]:
    """The properties that some completion has, in their order; of tags, tools and scripts those that most have."""
    counts = Counter(chain.from_iterable(rows))
    kept = []
    for known in dict.fromkeys(chain.from_iterable(rows)):
        most = MOST.get(known.kind)
        more = sum(counts[other] > counts[known] for other in counts if other.kind == known.kind)
        if most is None or more < most:
            kept.append(known)
    return kept


def _parts(steps_N: Ints) -> Ints:
    """The part of the window in which each completion's step lies: as many steps in each, as near as can be."""
    if not len(steps_N):
        return steps_N
    first, length = int(steps_N.min()), int(steps_N.max() - steps_N.min()) + 1
    parts_N: Ints = np.minimum((steps_N - first) * min(PARTS, length) // length, PARTS - 1)
    return parts_N


def _apart(uses_N_W: Bools, lengths: list[int]) -> list[int]:
    """The phrases without those that are used by the very same completions as a longer one, or an earlier one as long."""
    best: dict[bytes, int] = {}
    for place, length in enumerate(lengths):
        used = np.packbits(uses_N_W[:, place]).tobytes()
        if used not in best or length > lengths[best[used]]:
            best[used] = place
    return sorted(best.values())


def varying(uses_N_W: Bools, groups_N: Ints) -> list[int]:
    """The phrases whose use differs most within groups, at most PHRASES of them."""
    count_P = np.maximum(np.bincount(groups_N), 1)
    within_W = []
    for place in range(uses_N_W.shape[1]):
        used_P = np.bincount(groups_N, weights=uses_N_W[:, place], minlength=len(count_P))
        within_W.append(float((used_P * (1 - used_P / count_P)).sum()))
    order = sorted(range(len(within_W)), key=lambda place: -within_W[place])
    return [place for place in order[:PHRASES] if within_W[place] > 0]
