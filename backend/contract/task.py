"""What the model is asked: tasks, each a source of items (prompt, reference answer, stable id) with a held-out split."""

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from backend.contract.base import CleanText, Frozen, Json, Misfit, clean
from backend.contract.cells import base_of
from backend.contract.turns import written

Prompt = Annotated[CleanText, Field(min_length=1, max_length=20_000)]
Operand = Annotated[int, Field(ge=-1000, le=1000)]
LONGEST_NAME = 200
Name = Annotated[CleanText, Field(min_length=1, max_length=LONGEST_NAME)]
"""Of a column, a source or an upload."""
Column = Name
_HUB_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_DATA = re.compile(rf"upload:[1-9][0-9]{{0,17}}|hub:{_HUB_NAME}/{_HUB_NAME}")
MOST_SOURCES = 20
Share = Annotated[float, Field(gt=0, le=1000)]
HeldOut = Annotated[float, Field(ge=0, le=0.5)]
HubWord = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]


def _known_data(source: str) -> str:
    if _DATA.fullmatch(source) and ".." not in source:
        return source
    raise ValueError("choose the data: upload a file (upload:<id>), or name a data set of the Hub (hub:<owner>/<name>)")


DataSource = Annotated[str, AfterValidator(_known_data)]


class Prompted(Frozen):
    """How an item becomes a prompt."""

    system_prompt: Annotated[CleanText, Field(max_length=20_000)] | None = Field(
        None, description="Put before every prompt, as the system message of the chat."
    )
    prompt_format: Literal["chat", "raw"] = Field(
        "chat", description="chat: through the tokenizer's chat template if it has one. raw: the text as it stands."
    )

    @model_validator(mode="after")
    def _has_a_chat(self) -> "Prompted":
        if self.system_prompt and self.prompt_format == "raw":
            raise ValueError("a raw prompt has no system message; clear system_prompt or choose the format chat")
        return self


class Arithmetic(Prompted):
    """Sums, differences and products of whole numbers, where precedence matters: 2 + 2 x 6 is 14, not 24."""

    kind: Literal["arithmetic"] = "arithmetic"
    operands: Annotated[int, Field(ge=2, le=4)] = Field(3, description="How many numbers an expression has.")
    low: Operand = Field(1, description="The smallest number.")
    high: Operand = Field(9, description="The largest number.")
    operators: Annotated[list[Literal["+", "-", "x"]], Field(min_length=1, max_length=3)] = Field(
        ["+", "-", "x"], description="The operators to draw from."
    )
    precedence: bool = Field(
        True, description="Only expressions that come out wrong if computed from left to right, without precedence."
    )
    template: Prompt = Field("Calculate {expression}", description="The prompt; {expression} is replaced.")

    @model_validator(mode="after")
    def _solvable(self) -> "Arithmetic":
        if self.low > self.high:
            text = f"low ({self.low}) is above high ({self.high}); swap them"
            raise Misfit(text, "low", {"low": self.high, "high": self.low})
        if len(set(self.operators)) != len(self.operators):
            text = f"operators {self.operators} name one twice; name each once"
            raise Misfit(text, "operators", {"operators": list(dict.fromkeys(self.operators))})
        if self.precedence and (self.operands < 3 or "x" not in self.operators or len(self.operators) < 2):
            text = (
                f"precedence needs 3 operands or more, x, and + or -; here are {self.operands} operands and "
                f"{self.operators}: turn precedence off or add what is missing"
            )
            raise Misfit(text, "precedence", {"precedence": False})
        if "{expression}" not in self.template:
            raise Misfit("template has no {expression}; say where the expression goes", "template")
        return self


class Countdown(Prompted):
    """Reach a target with given numbers, each used at most once, and + - * /."""

    kind: Literal["countdown"] = "countdown"
    numbers: Annotated[int, Field(ge=2, le=6)] = Field(4, description="How many numbers are given.")
    high: Annotated[int, Field(ge=5, le=100)] = Field(20, description="The largest number given.")
    template: Prompt = Field(
        "Using the numbers {numbers}, each at most once, and + - * /, write an expression that equals {target}. "
        "Put it between <answer> and </answer>.",
        description="The prompt; {numbers} and {target} are replaced.",
    )

    @model_validator(mode="after")
    def _complete(self) -> "Countdown":
        if "{numbers}" not in self.template or "{target}" not in self.template:
            text = "template must hold {numbers} and {target}; the model cannot solve a problem that it does not see"
            raise Misfit(text, "template")
        return self


class SinglePrompt(Prompted):
    """One prompt, asked again and again: the purest view of a group."""

    kind: Literal["single_prompt"] = "single_prompt"
    prompt: Prompt = Field("Solve y = 2x + 1 for x = 2, y = ", description="The prompt.")
    answer: CleanText = Field("5", max_length=20_000, description="The reference answer.")


class Rows(Prompted):
    """Where a person's own rows lie, and the column that every one of them has."""

    kind: str
    source: DataSource = Field(
        description="upload:<id> for uploaded rows, hub:<owner>/<name> for a data set of the Hub."
    )
    subset: HubWord | None = Field(None, description="The configuration of a Hub data set that has several.")
    split: HubWord = Field("train", description="The split of a Hub data set.")
    prompt_column: Column = Field(
        "prompt", description="The column with the prompt: a text, or a list of chat messages."
    )
    leave_out_unfit: bool = Field(
        False,
        description="Leave out the rows that the model cannot be asked: too long for it, or refused by its chat template. "
        "Otherwise the run ends before its first step and names them.",
        exclude_if=lambda leave: not leave,  # so what was stored before it is what it was
    )


PLACES = re.compile(r"\{([^{}\n]{1,200})\}")
"""In a template, the places that columns fill."""
_NAMED_PLACE = re.compile(r"(?<![\w\\^{}])\{([^\W\d]\w*)\}(?!\})")
"""A word alone in braces: not JSON, a set, `{{word}}`, or LaTeX's `\\boxed{x}`, `x^{n}` and `\\frac{a}{b}`."""


class Dataset(Rows):
    """Your own prompts: uploaded rows (CSV, TSV, JSON, JSON lines, Parquet), or a data set of the Hub (the datasets library loads it)."""

    kind: Literal["dataset"] = "dataset"
    answer_column: Column | None = Field(
        "answer", description="The column with the reference answer; none if no reward needs one."
    )
    numbers_column: Column | None = Field(
        None,
        description="Of Countdown's rows, the numbers: right is an expression of them whose value is the reference answer.",
        exclude_if=lambda column: column is None,  # so what was stored before it is what it was
    )
    template: Prompt = Field(
        "{prompt}",
        description="The text around each prompt, which replaces {prompt}; {topic} is replaced by the row's column topic.",
    )
    source_column: Column | None = Field(
        None, description="The column that says where a row is from: metrics are kept for each source."
    )
    shares: Annotated[dict[Column, Share], Field(max_length=MOST_SOURCES)] = Field(
        default_factory=dict,
        description="The share of each source in a run's prompts; a source that is not named is only evaluated. If none is named, prompts are drawn as the rows are.",
    )
    held_out: HeldOut = Field(0.1, description="Share of the items kept for evaluation.")

    @model_validator(mode="after")
    def _fits_together(self) -> "Dataset":
        if not PLACES.search(self.template):
            raise Misfit("template has no {prompt} and no other column; say where the prompt goes", "template")
        if self.shares and self.source_column is None:
            raise Misfit("shares are of sources, and source_column does not say where a row is from", "source_column")
        return self


def template_columns(template: str, columns: Container[str]) -> list[str]:
    """Those of the columns that stand in the template; `{prompt}` is the prompt, whatever a column of this name holds."""
    return [name for name in PLACES.findall(template) if name != "prompt" and is_column(name, columns)]


_FIELD = re.compile(r"[^\s.]+(\.\w+)+")


def is_column(name: str, columns: Container[str]) -> bool:
    """Whether a place in a template is a column's, or a struct's field."""
    return name in columns or (_FIELD.fullmatch(name) is not None and base_of(name, columns) is not None)


def unknown_places(template: str, columns: Container[str]) -> list[str]:
    """What stands in braces, seems to mean a column, and is none; anything if no column is named at all: all prompts would be alike."""
    known = template_columns(template, columns) or "{prompt}" in template
    names = dict.fromkeys((_NAMED_PLACE if known else PLACES).findall(template))
    return [name for name in names if not is_column(name, columns) and name != "prompt"]


def filled(template: str, prompt: str, row: Mapping[str, Json]) -> str:
    """The template with its places filled, in one pass: what is filled in is text, whatever it holds. Other braces stay."""

    def value(place: re.Match[str]) -> str:
        if place[1] == "prompt":
            return prompt
        return as_text(row[place[1]]) if place[1] in row else place[0]

    return PLACES.sub(value, template)


def untrained_text(source: str, known: Iterable[str]) -> str:
    """That a source with a share has no row to train on, with those that have."""
    return f"no row to train on is from {source}; the rows are from {', '.join(known):.500}"


def is_missing(value: Json) -> bool:
    """Whether a row has no value here: null, an empty text or an empty list."""
    return value is None or value == "" or value == []


def missing_text(column: str, rows: int, first: Sequence[int]) -> str:
    """How many rows have no value in a column, with the numbers of the first."""
    more = f" and {rows - len(first)} more" if rows > len(first) else ""
    return f"column {column} is missing in {'row' if rows == 1 else 'rows'} {', '.join(map(str, first))}{more}"


def source_of(column: str | None, row: Mapping[str, Json]) -> str:
    """The name of the source that a row is from, of a long one its beginning; empty if no column says it."""
    return "" if column is None else as_text(row.get(column))[:LONGEST_NAME]


def named_sources(sources: Iterable[str], first: Iterable[str] = ()) -> list[str]:
    """The sources that have figures of their own, since a run's metrics are bounded: those that come first, then the others by name."""
    return list(dict.fromkeys([*first, *sorted(set(sources))]))[:MOST_SOURCES]


def row_id(data: Dataset, row: Mapping[str, Json]) -> str:
    """The stable id of the item that a row makes: of its prompt, its answer, and the other columns of the template."""
    others = template_columns(data.template, row)
    answer = None if data.answer_column is None else as_text(row.get(data.answer_column))
    what = [as_text(row.get(data.prompt_column)), answer, *(as_text(row[name]) for name in others)]
    return f"dataset:{digest(json.dumps(what))}"


def held_out_keys(keys: Iterable[str], share: float) -> set[str]:
    """Of the digests of prompts the lowest, at least one unless the share is 0: rows added later hardly change which are held out."""
    distinct = sorted(set(keys))
    return set(distinct[: max(1, round(share * len(distinct)))]) if share else set()


def digest(text: str) -> str:
    """128 bits of SHA-256, in hex."""
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def as_text(value: Json) -> str:
    """A value of a row as it is written into a prompt; what cannot be encoded is replaced."""
    return str(clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))


def accepted(cell: Json) -> Sequence[str]:
    """Of a list of values, each as a text: an answer is right if it is one of them. Empty for anything else."""
    values = written(cell)
    if not isinstance(values, list) or any(isinstance(one, list | dict) or one is None for one in values):
        return ()
    # [1, 2] as a text is an interval or a point
    is_text = isinstance(cell, str) and not any(isinstance(one, str) for one in values)
    return () if is_text else [as_text(one) for one in values]


def object_problem(number: int, column: str, cell: Json) -> str | None:
    """Why no answer can be compared with the cell of row `number`: it is an object, or a list of them."""
    inside = written(cell)
    inside = inside[0] if isinstance(inside, list) and inside else inside
    if not isinstance(inside, dict):
        return None
    fields = ", ".join(f"{column}.{name}" for name in inside)
    return f"the reference answer of row {number} is an object, which no answer equals; name one of its fields: {fields:.300}"


def require_held_out(share: float, field: str, every: int) -> None:
    """Raises Misfit if evaluations need held-out prompts of a data set, and it holds none out."""
    if share == 0:
        text = f"evaluation every {every} steps needs held-out prompts, and held_out is 0; raise held_out or set eval_every to 0"
        raise Misfit(text, field, {field: 0.1})


class ReasoningGym(Prompted):
    """A procedurally generated task of the reasoning-gym library, scored by its own verifier."""

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    dataset: Annotated[str, Field(max_length=100, pattern=r"^[a-z0-9_]+$")] = Field(
        "basic_arithmetic", description="The generator's name, for example basic_arithmetic, countdown, leg_counting."
    )
    params: dict[Annotated[str, Field(max_length=100)], bool | int | float | str] = Field(
        default_factory=dict, max_length=50, description="The generator's own settings."
    )
    size: Annotated[int, Field(ge=10, le=100_000)] = Field(2000, description="How many items are generated.")


Task = Annotated[Arithmetic | Countdown | SinglePrompt | Dataset | ReasoningGym, Field(discriminator="kind")]
