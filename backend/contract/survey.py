"""What stands in a person's rows, and how a task or pairs would read them: asked by the form, by preflight, and by scripts."""

from typing import Annotated, Literal

from pydantic import Field

from backend.contract.base import Frozen, Json, Record
from backend.contract.task import Column, Prompt


class SurveyQuery(Frozen):
    """What the rows are for, and the columns as a person chose them; without `prompt_column` they are guessed."""

    use: Literal["task", "pairs"] = "task"
    prompt_column: Column | None = None
    answer_column: Column | None = None
    numbers_column: Column | None = None
    chosen_column: Column | None = None
    rejected_column: Column | None = None
    template: Prompt = "{prompt}"


class ReadRow(Record):
    """One row as the model will read it, and what its completions are compared with; of pairs, both answers."""

    row: int
    prompt: str
    reference: str | None = None
    compared: str | None = None  # how: as a number, as mathematics, as a text
    chosen: str | None = None
    rejected: str | None = None


class Worked(Record):
    """A reference, an answer that is right, and one that is wrong: as the worker would say."""

    reference: str
    right: str
    wrong: str


class Survey(Record):
    """What the first rows show.

    `fields` name the columns of the task or the pairs; `question` is what only a person can say, `problem` why no run can read
    the rows so, `said` what was taken and why, `remarks` what is to be known of references, `matches` how many are read as what.
    """

    rows: int
    fields: dict[str, Json] = {}
    question: str | None = None
    problem: str | None = None
    said: list[str] = []
    remarks: list[str] = []
    columns: Annotated[list[str], Field(max_length=1000)] = []
    examples: list[ReadRow] = []
    matches: dict[Literal["numeric", "symbolic", "exact"], int] = {}
    worked: list[Worked] = []
