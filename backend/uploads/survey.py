"""Looks at the rows of an upload: which column is what, how the model will read them, and what answers are compared with."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

from backend.contract.base import Json
from backend.contract.cells import Cells
from backend.contract.survey import ReadRow, Survey, SurveyQuery, Worked
from backend.contract.task import accepted, as_text, digest, filled, is_missing, missing_text, object_problem
from backend.contract.turns import turns_in
from backend.contract.verdicts import match_of, number_in, numeric_verdict, reference_in, text_verdict
from backend.uploads import jsonl, roles

GUESSED_ROWS = 500
LOOKED_AT_ROWS = 10_000
LOOKED_AT_BYTES = 32 * 2**20
SHOWN = 3
SHOWN_CHARACTERS, SHOWN_COMPARED = 2000, 220
SHOWN_END, LARGEST_WORKED = 60, 10**15
FREE_WORDS = 25  # a reference of more words is a text that no completion repeats
PAIR = ("prompt_column", "chosen_column", "rejected_column")
_HOW = {"numeric": "as the number", "symbolic": "as mathematics:", "exact": "as the text"}


@lru_cache(maxsize=64)
def survey(path: Path, query: SurveyQuery) -> Survey:
    """Of the first rows; a file's number is never given again."""
    rows, size = list[Cells](), 0
    for row in islice(jsonl.rows_of(path), LOOKED_AT_ROWS):
        rows.append(row)
        size += sum(len(value) if isinstance(value, str) else 100 for value in row.values())
        if size > LOOKED_AT_BYTES:
            break
    is_pairs = query.use == "pairs"
    guessed = (roles.of_pairs if is_pairs else roles.of_task)(rows[:GUESSED_ROWS])
    if query.prompt_column is None:
        found: dict[str, object] = {"question": guessed.question, "said": list(guessed.said)}
        fields = dict(guessed.fields)
    else:
        found, fields = {}, query.model_dump(exclude={"use", "template"} if is_pairs else {"use"}, exclude_none=True)
    if (set(PAIR) if is_pairs else {"prompt_column"}) <= fields.keys():
        found |= (of_pairs if is_pairs else of_task)(rows, fields)
    return Survey.model_validate({"rows": len(rows), "columns": guessed.columns[:1000], "fields": fields, **found})


def of_task(rows: Sequence[Cells], fields: Mapping[str, Json]) -> dict[str, object]:
    """What a task with these columns asks and compares with, as fields of a survey."""
    prompt_column, answer_column = str(fields["prompt_column"]), fields.get("answer_column")
    numbers, template = fields.get("numbers_column"), str(fields.get("template") or "{prompt}")
    matches, free, examples, worked = Counter[str](), 0, list[ReadRow](), dict[str, list[Worked]]()
    answers: dict[str, set[str]] = defaultdict(set)
    problem = _unread(rows, [prompt_column, *([str(answer_column)] if answer_column else [])])
    for number, row in enumerate(rows, 1):
        cell = row.get(str(answer_column)) if answer_column else None
        reference, several = as_text(cell), accepted(cell)
        match = "exact" if several else match_of(reference)
        if number <= SHOWN:
            compared = f"any of {', '.join(several[:5])}" if several else f"{_HOW[match]} {reference_in(reference)}"
            compared = "by the expression's value" if numbers else compared[:SHOWN_COMPARED]
            reads = {} if is_missing(cell) else {"reference": reference[:SHOWN_CHARACTERS], "compared": compared}
            examples.append(ReadRow(row=number, prompt=_asked(row, prompt_column, template), **reads))
        if is_missing(cell) or numbers:
            continue
        problem = problem or object_problem(number, str(answer_column), cell)
        matches[match] += 1
        free += match == "exact" and len(reference_in(reference).split()) > FREE_WORDS
        answers[digest(as_text(row.get(prompt_column)))].add(reference)
        if match not in worked and match != "symbolic" and not several:
            worked[match] = _worked(reference, match)
    remarks, ambiguous = list[str](), sum(len(each) > 1 for each in answers.values())
    if 2 * free > matches.total():
        remarks.append(
            f"{free:,} of {matches.total():,} references are texts of more than {FREE_WORDS} words, which no completion repeats: "
            "let a judge compare them, or begin with a model that was trained on them (a warm start) and with another reward"
        )
    if ambiguous:
        remarks.append(f"{ambiguous:,} prompts occur with different references: no answer is right for all of them")
    return {
        "problem": problem,
        "matches": dict(matches),
        "examples": examples,
        "worked": [one for ones in worked.values() for one in ones],
        "remarks": remarks,
    }


def _unread(rows: Sequence[Cells], columns: Sequence[str]) -> str | None:
    """That some rows have nothing under a name."""
    for column in columns:
        if missing := [number for number, row in enumerate(rows, 1) if is_missing(row.get(column))]:
            return missing_text(column, len(missing), missing[:5])
    return None


def _asked(row: Cells, prompt_column: str, template: str = "{prompt}") -> str:
    """The prompt as the model will read it; of a chat each turn with its role."""
    prompt = row.get(prompt_column)
    turns = turns_in(prompt) if isinstance(prompt, list) else []
    asked = filled(template, turns.pop()["content"] if turns else as_text(prompt), row)
    before = "".join(f"{turn['role']}: {turn['content']}\n\n" for turn in turns)
    return f"{before}{'user: ' if before else ''}{asked}"[:SHOWN_CHARACTERS]


def _worked(reference: str, match: str) -> list[Worked]:
    """Two answers that were judged as the worker judges them; nothing if these are not one right and one wrong."""
    end = reference_in(reference)
    number = number_in(end)
    if len(end) > SHOWN_END or (number is not None and abs(number.value) > LARGEST_WORKED):
        return []
    right, wrong = (f"**{end}**", f"{float(number.value + 1):g}") if number is not None else (f"{end}.", f"not {end}")
    judge = numeric_verdict if match == "numeric" else text_verdict
    if (judge(right, reference), judge(wrong, reference)) != (True, False):
        return []
    return [Worked(reference=reference[-200:], right=right, wrong=wrong)]


def of_pairs(rows: Sequence[Cells], fields: Mapping[str, Json]) -> dict[str, object]:
    """What pairs with these columns are, as fields of a survey."""
    columns = [str(fields[name]) for name in PAIR]
    equal = sum(not is_missing(row.get(columns[1])) and row.get(columns[1]) == row.get(columns[2]) for row in rows)
    remarks = [f"{equal:,} rows have two equal answers, and are left out"] if equal else []
    examples = []
    for number, row in enumerate(rows[:SHOWN], 1):
        answers = [
            turns_in(cell)[-1]["content"] if isinstance(cell := row.get(column), list) and turns_in(cell) else cell
            for column in columns[1:]
        ]
        chosen, rejected = (as_text(answer)[:SHOWN_CHARACTERS] for answer in answers)
        examples.append(ReadRow(row=number, prompt=_asked(row, columns[0]), chosen=chosen, rejected=rejected))
    return {"problem": _unread(rows, columns), "examples": examples, "remarks": remarks}
