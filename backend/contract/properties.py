"""What the reward pays for: properties of completions, and how each goes with the reward within groups."""

from typing import Literal

from backend.contract.base import CleanText, Count, Record, ShortText
from backend.contract.health import Hint

PropertyKind = Literal[
    "tokens",
    "characters",
    "cut",
    "empty",
    "digits",
    "digit_share",
    "repetition",
    "prompt_repeated",
    "prompt_share",
    "script",
    "other_script",
    "answer_marked",
    "answer_place",
    "tag",
    "markup",
    "tool_calls",
    "tool",
    "tool_failed",
    "turns",
    "phrase",
]


class TrendPoint(Record):
    """A property over a part of the window. The interval is this point's own, with 95 %; None where too little was seen."""

    from_step: Count
    to_step: Count
    mean: float | None
    effect: float | None = None
    low: float | None = None
    high: float | None = None


class ExampleSide(Record):
    """One of two completions of a group."""

    completion_id: int
    index: Count
    value: float  # of the property
    reward: float
    excerpt: CleanText


class Example(Record):
    """Two completions of a group, with more and with less of a property."""

    group_id: int
    step: Count
    group_index: Count
    prompt: CleanText
    more: ExampleSide
    less: ExampleSide


class PropertyEffect(Record):
    """A property and the reward, within groups.

    `effect` is the difference in reward between completions of a group with and without it (`binary`), else with `spread` more of it,
    which is its std within groups. All intervals of an answer hold together with 95 %, and `p` is corrected for the number of properties.
    `beside` is the correlation that remains once the first property of the list has been accounted for.
    """

    kind: PropertyKind
    of: CleanText | None = None  # the phrase, tag, tool or script
    title: CleanText
    binary: bool
    mean: float
    spread: float
    clusters: float  # in which it differs, as it were in equal parts
    effect: float
    low: float | None
    high: float | None
    correlation: float
    p: float
    clear: bool  # whether it goes with the reward beyond chance: p is at most 5 %
    beside: float | None = None
    beside_clear: bool = False
    same: list[CleanText] = []  # titles of properties that cannot be separated from it
    trend: list[TrendPoint] = []
    examples: list[Example] = []


class PhraseSpread(Record):
    """How a phrase, or a tag, came or went: its share of completions in the first and in the last quarter of the window's steps.

    The interval of the rise is corrected for the number of phrases. `rewarded` is its share of the last quarter's completions whose
    reward is above their group's mean; None if there are none.
    """

    phrase: CleanText
    first: float
    last: float
    low: float
    high: float
    rewarded: float | None = None


class PaidFor(Record):
    """What a reward pays for in a window of steps. Of a large window, groups spread evenly over it are read: `groups` of `all_groups`."""

    run_id: int
    reward: ShortText | None  # None: the total
    rewards: list[ShortText]  # the components that the window has
    from_step: Count | None
    to_step: Count | None
    all_groups: Count
    groups: Count
    differing: Count  # groups in which the reward differs: the others say nothing
    completions: Count
    unscored: Count  # of the completions
    shortened: Count  # completions of which only both ends were read
    cluster: Literal["prompt", "group"]  # what is resampled
    clusters: Count
    needed: Count  # clusters in which a property must differ
    looked_at: Count  # properties that differ in enough of them, for which intervals and p are corrected
    properties: list[PropertyEffect]
    phrases: list[PhraseSpread]
    hints: list[Hint] = []
