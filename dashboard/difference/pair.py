"""Which two completions are compared, as the address says it: `diff=1,6` by their numbers, `diff=best,worst` by their marks."""

from backend.contract.groups import Group
from dashboard.algorithm.rewards import extremes

BEST, WORST = "best", "worst"
DEFAULT = f"{BEST},{WORST}"


def pair_in(written: str, group: Group) -> tuple[int, int]:
    """The indices of the two; what names no completion stands for the best and the worst, or for the first and the last."""
    sides = written.split(",")
    best, worst = _ends(group)
    left, right = sides if len(sides) == 2 else (BEST, WORST)
    return _index(left, group, best, best, worst), _index(right, group, worst, best, worst)


def written_as(left: int, right: int) -> str:
    """The two as the address has them, counted from 1 like the cards."""
    return f"{left + 1},{right + 1}"


def opposite(index: int, group: Group) -> int:
    """What a completion is compared with first: the best one, or the worst if it is the best itself."""
    best, worst = _ends(group)
    return worst if index == best else best


def _ends(group: Group) -> tuple[int, int]:
    marks = {mark: index for index, mark in extremes(group).items()}
    indices = [completion.index for completion in group.completions]
    return marks.get(BEST, indices[0]), marks.get(WORST, indices[-1])


def _index(written: str, group: Group, default: int, best: int, worst: int) -> int:
    written = written.strip()
    if written in (BEST, WORST):
        return best if written == BEST else worst
    known = {str(completion.index + 1): completion.index for completion in group.completions}
    return known.get(written, default)
