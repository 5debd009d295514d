"""What each list can be asked for: the client sends these models, the routes read them, the stores answer them.

A filter is a field here and a condition in the list's store; nothing else names it.
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from backend.contract.base import CleanText, Frozen
from backend.contract.config import Kind
from backend.contract.groups import FinishReason, GroupState
from backend.contract.records import Status
from backend.contract.task import Column, HeldOut, Name

LAST_STEP = 2**53  # far beyond every run, and steps near it can be added to
MOST_RUNS = 20
MOST_COMPARED = 200  # runs whose prompts are compared: as many as a sweep has


def _cursor(text: str) -> str:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ValueError("is not one that a page answered; leave it out to start anew")
    return text


def _parts(value: object) -> object:
    """The parts of what a request joins with commas; a program's own tuple is whole already."""
    if not isinstance(value, list):
        return value
    text = ",".join(map(str, value))
    # with the headers it fits into the 64 KiB of a head, also if each character takes twelve bytes
    if len(text) > 4_000:
        raise ValueError(f"must have at most 4,000 characters (got {len(text):,})")
    return tuple(dict.fromkeys(part for part in text.split(",") if part))


def _run_ids(value: object, most: int = MOST_RUNS) -> object:
    parts = _parts(value)
    if not isinstance(parts, tuple):
        return value
    if not parts or not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in map(str, parts)):
        raise ValueError("must be run numbers, separated by commas")
    if len(parts) > most:
        raise ValueError(f"must name at most {most} runs (got {len(parts)})")
    return tuple(map(int, parts))


def _even(width: int) -> int:
    """Raises ValueError for a width whose stretches are not made of whole narrower ones."""
    if width & (width - 1):
        raise ValueError(f"must be a power of two (got {width})")
    return width


_joined = PlainSerializer(lambda parts: ",".join(map(str, parts)), return_type=str)
Names = Annotated[tuple[str, ...], BeforeValidator(_parts), _joined]
RunIds = Annotated[tuple[int, ...], BeforeValidator(_run_ids), _joined]
ManyRunIds = Annotated[tuple[int, ...], BeforeValidator(partial(_run_ids, most=MOST_COMPARED)), _joined]
Word = Annotated[CleanText, Field(max_length=200)]
Search = Annotated[CleanText, Field(max_length=1000, description="A part of a text, literally.")]
Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
Step = Annotated[int, Field(ge=-1, le=LAST_STEP)]


class PageQuery(Frozen):
    """A page of a list: its size, and where it begins."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str, AfterValidator(_cursor)] | None = None

    @property
    def start(self) -> int | None:
        """The number in the cursor: an offset, or the last row that the page before showed."""
        return None if self.cursor is None else int(self.cursor)


class DeleteQuery(Frozen):
    """The query of DELETE /runs/{id}: whether what its forks need stays until they are deleted, too."""

    keep_trunk: bool = False


class RetryQuery(Frozen):
    """How a run is queued again."""

    with_changed_rewards: bool = Field(
        False, description="Files of rewards may differ from those that scored the run so far."
    )


class RunQuery(PageQuery):
    """Runs, newest first. `recipe` and `model` (its source) are the configuration's; `training` is every kind but samples and replays, and
    without `kind` those are in the list too."""

    status: Status | None = None
    kind: Kind | Literal["training", "recorded"] | None = None
    recipe: Word | None = None
    model: Word | None = None
    tag: Word | None = None
    search: Word | None = None
    sweep: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    forked_from: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None  # has steps of this run in its history


class StepQuery(Frozen):
    """The steps of a run that have groups."""

    after_step: Step | None = None


class StepScoresQuery(PageQuery):
    """The groups of one step in numbers."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 500


class DistributionQuery(Frozen):
    """Histograms of a number of completions, at `steps` steps spread over the range."""

    value: Literal["reward", "advantage"]
    from_step: Step | None = None
    to_step: Step | None = None
    steps: Annotated[int, Field(ge=1, le=100)] = 40
    bins: Annotated[int, Field(ge=1, le=100)] = 30


class PropertyQuery(Frozen):
    """What a reward (a component by its name; without one the total) pays for in a window of steps."""

    reward: Word | None = None
    from_step: Step | None = None
    to_step: Step | None = None


class GroupQuery(PageQuery):
    """Groups of a run; a leading minus sorts in descending order."""

    step: Step | None = None
    prompt_id: Word | None = None
    state: GroupState | None = None
    search: Search | None = None
    bookmarked: bool | None = None
    sort: Literal["index", "step", "reward_mean", "reward_std", "-index", "-step", "-reward_mean", "-reward_std"] = (
        "step"
    )


class PromptGroupQuery(PageQuery):
    """The live groups of one prompt in several runs, by run and step."""

    prompt_id: Word
    runs: RunIds


class PairQuery(PageQuery):
    """The preference pairs that a run was trained on, the newest step first."""

    step: Step | None = None


class PromptQuery(PageQuery):
    """Prompts of a run; a leading minus sorts in descending order."""

    search: Search | None = None
    sort: Literal[
        "draws", "first_step", "last_step", "reward_change", "-draws", "-first_step", "-last_step", "-reward_change"
    ] = "first_step"


class CommonPromptQuery(Frozen):
    """Prompts of the same text in two of the runs or more: probes first, then those that most of them have drawn."""

    runs: ManyRunIds
    search: Search | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 30


class CompletionQuery(PageQuery):
    """Completions of a run's live history. Ranges are inclusive; a completion without the number lies in none of them."""

    search: Search | None = None
    state: GroupState | None = None
    finish_reason: FinishReason | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    advantage_min: float | None = None
    advantage_max: float | None = None
    tokens_min: Whole | None = None
    tokens_max: Whole | None = None
    step_min: Whole | None = None
    step_max: Whole | None = None
    sort: Literal["step", "reward", "advantage", "tokens", "-step", "-reward", "-advantage", "-tokens"] = "step"


class MetricQuery(Frozen):
    """Which series of a run (all if none is named), which part of them, and how thin.

    With `width`, each stretch has that number of steps, the same in every run, and evaluations are answered one by one.
    `max_points` chooses the width for each series, and thins evaluations, too. Without either, every value is answered,
    unless there are too many.
    """

    names: Names = ()
    after_step: Step | None = None
    from_step: Step | None = None
    to_step: Step | None = None
    max_points: Annotated[int, Field(ge=4, le=100_000)] | None = None
    width: Annotated[int, Field(ge=1, le=2**20), AfterValidator(_even)] | None = None


class ComparedMetricQuery(MetricQuery):
    """The same series of several runs."""

    runs: RunIds


class LineageQuery(Frozen):
    """Runs whose histories are looked at beside each other."""

    runs: RunIds


LONGEST_SUFFIX = 20


def ending_of(name: str) -> str:
    """How a file's name ends, or would end if it were unpacked: `.txt` of `a.txt` and of `a.txt.gz`."""
    file = Path(name)
    return (Path(file.stem) if file.suffix.lower() in (".gz", ".bz2", ".xz", ".zst") else file).suffix[:LONGEST_SUFFIX]


class UploadQuery(Frozen):
    """The name under which a file is uploaded, and a key under which the number of rows read so far can be asked for.

    `suffix` is the file's own ending, if the name has another one: it helps to recognize the file's kind. The `note` is kept
    with what reading the file brings up.
    """

    name: Name
    suffix: Annotated[CleanText, Field(max_length=LONGEST_SUFFIX)] = ""
    note: Annotated[CleanText, Field(max_length=500)] = ""
    progress: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_-]*$")] = ""


class ProgressQuery(Frozen):
    """The upload that is asked about."""

    key: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]*$")]


class SplitQuery(Frozen):
    """The columns and the share to hold out, as a task names them."""

    prompt_column: Column
    held_out: HeldOut
    source_column: Column | None = None


class LogQuery(Frozen):
    """Lines of a log, oldest first, after the one with the number `after_id`."""

    after_id: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 500
