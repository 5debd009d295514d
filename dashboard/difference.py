"""Two texts side by side: which pieces they share, where they differ, and both as HTML.

Aligning takes time that grows with the texts' length and not with its square. What both begin and end with is taken off first.
A short list of edits is then found exactly (Myers, "An O(ND) difference algorithm", 1986). If that takes too many edits, pieces
that occur once on either side are the anchors (Cohen's patience diff), and the stretches between them are aligned by
themselves. The rest is called different, not guessed at.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dashboard.format import count, counted
from dashboard.text import in_html

MOST_EDITS = 256  # of one stretch; Myers takes their square
DEEPEST = 12  # anchors within stretches within stretches


class Block(NamedTuple):
    """`size` pieces from `left` on are those from `right` on."""

    left: int
    right: int
    size: int


class Alignment(NamedTuple):
    """The equal blocks in order, and how many pieces lie in stretches that were too tangled to align."""

    blocks: list[Block]
    unaligned: int


class _Stretch(NamedTuple):
    """Pieces that are not aligned yet: left[a:b] against right[c:d]."""

    a: int
    b: int
    c: int
    d: int
    depth: int


def align(left: Sequence[str], right: Sequence[str]) -> Alignment:
    """The pieces that both have, in order. Blocks never touch: two that would are one."""
    codes: dict[str, int] = {}
    x = [codes.setdefault(piece, len(codes)) for piece in left]
    y = [codes.setdefault(piece, len(codes)) for piece in right]
    blocks: list[Block] = []
    unaligned = 0
    waiting = [_Stretch(0, len(x), 0, len(y), 0)]
    while waiting:
        stretch, ends = _trimmed(x, y, waiting.pop())
        blocks += ends
        a, b, c, d, depth = stretch
        if a == b or c == d:
            continue
        edits = _few_edits(x[a:b], y[c:d])
        if edits is not None:
            blocks += [Block(a + i, c + j, size) for i, j, size in edits]
            continue
        anchors = _anchors(x, y, stretch) if depth < DEEPEST else []
        if not anchors:
            unaligned += b - a + d - c
            continue
        for i, j in anchors:
            waiting.append(_Stretch(a, i, c, j, depth + 1))
            a, c = i, j  # the anchor itself begins the next stretch, whose trimming finds it
        waiting.append(_Stretch(a, b, c, d, depth + 1))
    return Alignment(_joined(sorted(blocks)), unaligned)


def _trimmed(x: Sequence[int], y: Sequence[int], stretch: _Stretch) -> tuple[_Stretch, list[Block]]:
    """The stretch without what its two sides begin and end with, and that as blocks."""
    a, b, c, d, depth = stretch
    while a < b and c < d and x[a] == y[c]:
        a, c = a + 1, c + 1
    while a < b and c < d and x[b - 1] == y[d - 1]:
        b, d = b - 1, d - 1
    ends = (Block(stretch.a, stretch.c, a - stretch.a), Block(b, d, stretch.b - b))
    return _Stretch(a, b, c, d, depth), [block for block in ends if block.size]


def _few_edits(x: Sequence[int], y: Sequence[int]) -> list[Block] | None:
    """The longest common subsequence as blocks, if at most MOST_EDITS insertions and deletions lead from x to y."""
    if abs(len(x) - len(y)) > MOST_EDITS:
        return None
    furthest = {1: 0}  # on each diagonal k = i − j, the furthest i that this number of edits reaches
    history: list[dict[int, int]] = []
    for edits in range(min(MOST_EDITS, len(x) + len(y)) + 1):
        history.append(dict(furthest))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and furthest.get(k - 1, -1) < furthest.get(k + 1, -1))
            i = furthest[k + 1] if down else furthest[k - 1] + 1
            while i < len(x) and i - k < len(y) and x[i] == y[i - k]:
                i += 1
            furthest[k] = i
            if i >= len(x) and i - k >= len(y):
                return _way_back(history, len(x), len(y))
    return None


def _way_back(history: Sequence[dict[int, int]], i: int, j: int) -> list[Block]:
    """The blocks on the path that reached (i, j), from the furthest points before each edit."""
    blocks: list[Block] = []
    for edits in range(len(history) - 1, -1, -1):
        before, k = history[edits], i - j
        down = k == -edits or (k != edits and before.get(k - 1, -1) < before.get(k + 1, -1))
        came = k + 1 if down else k - 1
        start = before[came] if edits else 0
        first = start + (0 if down or not edits else 1)
        if i > first:
            blocks.append(Block(first, first - k, i - first))
        i, j = start, start - came
    return blocks


def _anchors(x: Sequence[int], y: Sequence[int], stretch: _Stretch) -> list[tuple[int, int]]:
    """Places of the pieces that occur once on either side, as many as keep their order on both."""
    a, b, c, d, _ = stretch
    once_left, once_right = _once(x, a, b), _once(y, c, d)
    pairs = [(i, once_right[code]) for code, i in once_left.items() if code in once_right]  # in the order of the left
    tails: list[int] = []  # the smallest end, on the right, of a chain of each length
    ends: list[int] = []  # and which pair that is
    previous: list[int] = []
    for place, (_, j) in enumerate(pairs):
        length = bisect_left(tails, j)
        tails[length : length + 1] = [j]
        ends[length : length + 1] = [place]
        previous.append(ends[length - 1] if length else -1)
    chain: list[tuple[int, int]] = []
    place = ends[-1] if ends else -1
    while place >= 0:
        chain.append(pairs[place])
        place = previous[place]
    return chain[::-1]


def _once(codes: Sequence[int], start: int, end: int) -> dict[int, int]:
    """Code -> where it stands, of those that stand in this range once."""
    times = Counter(codes[start:end])
    return {code: place for place, code in enumerate(codes[start:end], start) if times[code] == 1}


def _joined(blocks: Sequence[Block]) -> list[Block]:
    joined: list[Block] = []
    for block in blocks:
        left, right, size = joined[-1] if joined else (-1, -1, 0)
        if (left + size, right + size) == (block.left, block.right):
            joined[-1] = Block(left, right, size + block.size)
        else:
            joined.append(block)
    return joined


_PIECES = re.compile(r"\w+|\s+|[^\w\s]")


class Run(NamedTuple):
    """A stretch of one text: its pieces, and whether the other text has them too."""

    pieces: tuple[str, ...]
    shared: bool

    @property
    def text(self) -> str:
        """The stretch as it stands in its text."""
        return "".join(self.pieces)


class Difference(NamedTuple):
    """Both texts, cut where what they share begins and ends. Joined, the runs of a side are its whole text."""

    left: list[Run]
    right: list[Run]
    shared: float  # share of the pieces, spaces left aside, that stand in both
    unaligned: int  # pieces in stretches that were too tangled to align


def words(text: str) -> list[str]:
    """Words, stretches of white space and single signs. Joined, they are the text."""
    return _PIECES.findall(text)


def difference(left: Sequence[str], right: Sequence[str]) -> Difference:
    """What two texts, given as their pieces (words or tokens), share, and where they differ."""
    found = align(left, right)
    # a space between different words is not something that they share
    blocks = [block for block in found.blocks if "".join(left[block.left : block.left + block.size]).strip()]
    alike = sum(_told(left[block.left : block.left + block.size]) for block in blocks)
    whole = _told(left) + _told(right)
    return Difference(
        _runs(left, [(block.left, block.size) for block in blocks]),
        _runs(right, [(block.right, block.size) for block in blocks]),
        2 * alike / whole if whole else 1.0,
        found.unaligned,
    )


def _told(pieces: Sequence[str]) -> int:
    return sum(bool(piece.strip()) for piece in pieces)


def _runs(pieces: Sequence[str], shared: Sequence[tuple[int, int]]) -> list[Run]:
    runs: list[Run] = []
    place = 0
    for start, size in [*shared, (len(pieces), 0)]:
        runs += [Run(tuple(pieces[place:start]), shared=False)] if start > place else []
        runs += [Run(tuple(pieces[start : start + size]), shared=True)] if size else []
        place = start + size
    return runs


LONG = 80  # pieces; a longer stretch that both share is folded
KEPT = 30  # pieces that stay in sight on the side of a difference


def side_html(runs: Sequence[Run], *, colour: str, visible: bool, full: bool) -> str:
    """One side: its whole text, in a box of its own direction. White space alone gets signs, or nobody would see what is marked."""
    last = len(runs) - 1
    parts = [
        _shared(run, first=place == 0, last=place == last, visible=visible, full=full)
        if run.shared
        else f"<mark>{in_html(run.text, visible=visible or run.text.isspace())}</mark>"
        for place, run in enumerate(runs)
    ]
    return f'<div class="model-text difference" style="--tint:{colour}">{"".join(parts)}</div>'


def in_words(found: Difference, unit: str) -> str:
    """How much the two share, in a sentence; and how much could not be aligned."""
    if all(run.shared for run in (*found.left, *found.right)):
        return "Both are exactly the same."
    share = int(found.shared * 100)  # not rounded up: 100 % is said of equal texts alone
    sentence = f"They share {share} % of their {unit}s. Each {unit} that only one of them has is marked."
    if found.unaligned:
        sentence += f" {counted(found.unaligned, unit)} in stretches too unlike to align are marked as a whole."
    return sentence


def _shared(run: Run, *, first: bool, last: bool, visible: bool, full: bool) -> str:
    if full or len(run.pieces) <= LONG:
        return in_html(run.text, visible=visible)
    start, end = 0 if first else KEPT, len(run.pieces) - (0 if last else KEPT)
    begins, middle, ends = (
        in_html("".join(part), visible=visible)
        for part in (run.pieces[:start], run.pieces[start:end], run.pieces[end:])
    )
    letters = count(sum(len(piece) for piece in run.pieces[start:end]))
    summary = (
        f'<summary><span class="more">⋯ {letters} equal characters ⋯</span><span class="less">fold</span></summary>'
    )
    return f"{begins}<details>{summary}{middle}</details>{ends}"
