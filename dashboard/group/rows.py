"""Groups as the rows of a table: rewards as squares, the ends of the best and the worst text."""

from collections.abc import Sequence

from backend.contract.groups import GroupState, GroupSummary
from dashboard.charts.group import reward_squares
from dashboard.components.table import Column, pick
from dashboard.format import MISSING, number, signed
from dashboard.status import GROUP
from dashboard.text import one_line

WORDS: dict[GroupState, str] = {state: shown.word for state, shown in GROUP.items()}
STAR = "★"
ENDING = 32  # letters of a completion's end in the table


def columns(groups: Sequence[GroupSummary], highest: float) -> dict[str, Column[GroupSummary]]:
    """All that a table can say of these groups; rewards up to `highest` fill their square."""
    known = [reward for group in groups for reward in group.rewards if reward is not None]
    low, high = min([0.0, *known]), max([highest, *known])
    squares = max((len(group.rewards) for group in groups), default=0)
    return {
        "star": Column(STAR, lambda group: STAR if group.bookmarked else "", 30, "Bookmarked."),
        "run": Column("run", lambda group: f"#{group.run_id}", 50),
        "step": Column("step", lambda group: group.step, 60, kind="number"),
        "group": Column("#", lambda group: group.index + 1, 45, kind="number"),
        "prompt": Column("prompt", lambda group: one_line(group.prompt or group.prompt_text), 170),
        "state": Column(
            "state",
            lambda group: WORDS[group.state] + (", superseded" if group.superseded else ""),
            150 if any(group.superseded for group in groups) else 70,
            "Superseded: a later attempt did this step again, from a checkpoint before it.",
        ),
        "rewards": Column(
            "rewards",
            lambda group: reward_squares(group.rewards, group.advantages, low, high),
            max(70, min(360, 14 * squares + 20)),
            "One square a completion, filled as high as its reward. Blue was "
            "reinforced, orange discouraged, grey neither; a cross could not be scored.",
            "image",
        ),
        "mean": Column("mean", lambda group: number(group.reward_mean), 60, kind="figure"),
        "std": Column("std", lambda group: number(group.reward_std), 60, kind="figure"),
        "advantages": Column("advantages", _range, 110, "Lowest … highest in the group."),
        "best": Column("best ends with", lambda group: _end(group.best)),
        "worst": Column("worst ends with", lambda group: _end(group.worst)),
    }


def pick_group(
    groups: Sequence[GroupSummary], highest: float, names: Sequence[str], *, key: str
) -> GroupSummary | None:
    """The table with the columns of these names, in their order; the group in whose row a person clicked."""
    known = columns(groups, highest)
    return pick(groups, {name: known[name] for name in names}, key=key)


def _end(text: str | None) -> str:
    """As much of the end as a column shows, so that it is the beginning that is cut off."""
    line = one_line(text or "")
    return line if len(line) <= ENDING else f"…{line[-ENDING:]}"


def _range(group: GroupSummary) -> str:
    known = [advantage for advantage in group.advantages if advantage is not None]
    if not known:
        return MISSING
    return "0" if max(known) == min(known) == 0 else f"{signed(min(known))} … {signed(max(known))}"
