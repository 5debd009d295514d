"""People's judgements of groups and completions: bookmarks with notes, thumbs, and which of two completions is better."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from backend.contract.base import CleanText, Count, Frozen, Record
from backend.contract.records import Page, Upload
from backend.contract.transport import Transport

Thumb = Literal["up", "down"]


class Bookmark(Record):
    """A group that somebody wants to find again, and why."""

    note: CleanText
    updated_at: datetime


class BookmarkWrite(Frozen):
    """The body of PUT /groups/{id}/bookmark."""

    note: Annotated[CleanText, Field(max_length=20_000)] = ""


class ThumbWrite(Frozen):
    """The body of PUT /completions/{id}/thumb; None takes it back."""

    thumb: Thumb | None


class ChoiceWrite(Frozen):
    """The body of PUT /groups/{id}/choices: one completion of the group is better than another, by their ids."""

    better: Annotated[int, Field(ge=1, le=2**63 - 1)]
    worse: Annotated[int, Field(ge=1, le=2**63 - 1)]


class Choice(Record):
    """Somebody found one completion better than another of its group. Indices are those within the group."""

    id: int
    group_id: int
    better_id: int
    worse_id: int
    better_index: Count
    worse_index: Count
    created_at: datetime


class Disagreement(Record):
    """A pair that people and the reward order in opposite ways. Indices are those within the group."""

    group_id: int
    step: Count
    group_index: Count
    prompt: CleanText
    better_index: Count  # as people see it
    worse_index: Count
    better_reward: float
    worse_reward: float


class Agreement(Record):
    """How often the reward agrees with people.

    A pair is a choice, or a thumbs up and a thumbs down in one group that no choice speaks of. The reward agrees if it is
    higher for the better one; equal rewards are `undecided` and count for neither, as does a pair with an unscored completion.
    """

    thumbs_up: Count
    thumbs_down: Count
    choices: Count
    pairs: Count
    trainable: Count = 0  # pairs that the preference data set has: none of probes; of texts, none with an empty side
    agreed: Count
    disagreed: Count
    undecided: Count
    disagreements: list[Disagreement] = []  # those of the newest groups, at most 50


class PeopleClient:
    """The routes of bookmarks and judgements; `Client.people`."""

    def __init__(self, transport: Transport) -> None:
        self._to = transport

    def bookmark(self, group_id: int, note: str = "") -> Bookmark:
        """Bookmark a group, or write another note on it."""
        return self._to.put(Bookmark, f"/api/v1/groups/{group_id}/bookmark", BookmarkWrite(note=note))

    def remove_bookmark(self, group_id: int) -> None:
        """Forget the bookmark and its note."""
        self._to.send("DELETE", f"/api/v1/groups/{group_id}/bookmark")

    def thumb(self, completion_id: int, thumb: Thumb | None) -> None:
        """Thumb up, thumb down, or neither."""
        self._to.send("PUT", f"/api/v1/completions/{completion_id}/thumb", body=ThumbWrite(thumb=thumb))

    def choose(self, group_id: int, *, better: int, worse: int) -> Choice:
        """Say which of two completions is better; the other way round replaces what was said before."""
        return self._to.put(Choice, f"/api/v1/groups/{group_id}/choices", ChoiceWrite(better=better, worse=worse))

    def choices(self, group_id: int) -> list[Choice]:
        """What was chosen in a group."""
        return self._to.get(Page[Choice], f"/api/v1/groups/{group_id}/choices").items

    def remove_choice(self, choice_id: int) -> None:
        """Take a choice back."""
        self._to.send("DELETE", f"/api/v1/choices/{choice_id}")

    def agreement(self, run_id: int) -> Agreement:
        """People against the reward, over a run."""
        return self._to.get(Agreement, f"/api/v1/runs/{run_id}/agreement")

    def preferences(self, run_id: int) -> Iterator[bytes]:
        """The pairs as JSON lines {prompt, chosen, rejected, …}, the columns that a preference data set has; empty without pairs."""
        return self._to.chunks(f"/api/v1/runs/{run_id}/preferences")

    def keep_preferences(self, run_id: int) -> Upload:
        """The same as an upload, which a reward model or a DPO run takes as `upload:<id>`; once for the same pairs."""
        return self._to.post(Upload, f"/api/v1/runs/{run_id}/preferences")
