"""A text as words, and two texts as what they share and what only one of them says."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from dashboard.difference.align import align

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
    unaligned: int  # pieces in stretches that were too tangled to look into


def words(text: str) -> list[str]:
    """Words, runs of white space and single signs; joined they are the text."""
    return _PIECES.findall(text)


def difference(left: Sequence[str], right: Sequence[str]) -> Difference:
    """What two texts, given as their pieces (words or tokens), share, and where they differ."""
    found = align(left, right)
    # a space that two different words happen to share is no agreement
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
