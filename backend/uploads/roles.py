"""Which column is what: guessed from the names of columns and from what stands in them; what is not sure is asked."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend.contract.base import Json
from backend.contract.cells import ANSWER, CHAT, LETTER, LETTER_FROM_1, LETTERED, Cells
from backend.contract.task import as_text, is_missing
from backend.contract.turns import turns_in
from backend.uploads import seen
from backend.uploads.seen import NEARLY_ALL, SeenColumn, columns_of, named, plain, rank, tokens


@dataclass(frozen=True)
class Roles:
    """What each field of a task or of pairs should be, why, and what only a person can say."""

    seen: Sequence[SeenColumn]
    fields: Mapping[str, Json] = field(default_factory=dict)
    question: str | None = None
    said: Sequence[str] = ()
    made: Sequence[str] = ()

    @property
    def columns(self) -> list[str]:
        """The names that a field may have: those of the fields, others that are made, and the columns themselves."""
        taken = [str(name) for role, name in self.fields.items() if role.endswith("_column") and name]
        return list(dict.fromkeys([*taken, *self.made, *(column.name for column in self.seen)]))


def of_task(rows: Sequence[Cells]) -> Roles:
    """The columns of a task: prompts, reference answers, and what they need beside them."""
    columns = columns_of(rows)
    if (unclear := _unclear(columns)) is not None:
        return Roles(columns, question=unclear)
    numbers = next(
        (one for one in named(columns, seen.NUMBERS) if one.there and all(map(_NUMBERS.fullmatch, one.texts))), None
    )
    prompts = [
        one
        for one in named(columns, seen.PROMPTS)
        if one != numbers
        and (plain(one.name) in seen.PROMPTS or rank(one.name, seen.ANSWERS) is None)
        and (one.unasked is None or (one.unasked == seen.NAMELESS and plain(one.name) in seen.PROMPTS))
    ]
    targets = (one for one in named(columns, seen.TARGETS) if one.there and all(map(_WHOLE.fullmatch, one.texts)))
    if numbers is not None and (target := next(targets, None)):
        return _countdown(columns, numbers, target, prompts)
    if not prompts:
        others = [one for one in columns if one.unasked is None and rank(one.name, seen.ANSWERS) is None]
        if not others:
            return Roles(columns, question=no_prompts(columns))
        if len(others) > 1 and len(columns) > 2:
            return Roles(columns, question=f"Which column holds the prompts? It may be {listed(others)}: choose one.")
        prompts = [max(others, key=lambda one: one.words)]
    prompt = prompts[0]
    name, why = _asked(prompt, columns)
    said = [f"{name} is asked: {why}"] if why else []
    options = {
        (match[1] or match[2]).upper(): one
        for one in columns
        if one != prompt and (match := _OPTION.fullmatch(one.name))
    }
    options = options if len(options) > 1 else {}
    fields: dict[str, Json] = {"prompt_column": name, "answer_column": _answer(columns, prompt, list(options.values()))}
    choices = _choices(columns, prompt, name, options)
    if isinstance(choices, str):
        return Roles(columns, question=choices)
    if choices:
        fields |= choices
        said.append("the choices stand below the question, each with its letter")
    taken = (prompt.name, fields["answer_column"])
    if source := next((one.name for one in columns if plain(one.name) == "source" and one.name not in taken), None):
        fields["source_column"] = source
    if tests := [one for one in named(columns, seen.TESTS) if "." not in one.name]:
        said.append(f"{tests[0].name} looks like tests of code: a Python reward of your own runs them")
    if system := [one for one in named(columns, seen.SYSTEM) if one.there and "." not in one.name]:
        said.append(f"{system[0].name} is not asked: put {{{system[0].name}}} into the template if it should be")
    return Roles(columns, fields, said=said, made=[name])


def _unclear(columns: Sequence[SeenColumn]) -> str | None:
    """What a person must decide before any row can be asked."""
    for one in named(columns, seen.SPEAKERS):
        if "." not in one.name and set(one.texts) & _TURNS:
            return f"Each row is one message of a conversation ({one.name}): write all its turns into one row, as messages."
    judges = any(tokens(one.name) & {"completion", "response", "output"} for one in columns)
    for one in columns:
        if judges and one.there and set(one.texts) <= _FLAGS and rank(one.name, _LABELS) is not None:
            return f"{one.name} says which completions are good: keep those rows alone, or write chosen and rejected."
    return None


_LABELS, _FLAGS = ("label", "labels", "good", "desirable", "correct"), {"true", "false", "True", "False", "0", "1"}
_TURNS = {"user", "assistant", "prompter", "human", "gpt"}
_NUMBERS = re.compile(r"[\[(]?\s*-?\d+(?:[\s,;]+-?\d+)+\s*[\])]?")
_WHOLE = re.compile(r"-?\d+(\.0)?")


def _countdown(
    columns: Sequence[SeenColumn], numbers: SeenColumn, target: SeenColumn, prompts: Sequence[SeenColumn]
) -> Roles:
    """Rows of Countdown: numbers, and a target that an expression of them should reach."""
    fields: dict[str, Json] = {"answer_column": target.name, "numbers_column": numbers.name}
    if prompts:
        fields["prompt_column"] = _asked(prompts[0], columns)[0]
    else:
        fields["prompt_column"] = f"{numbers.name} + {target.name}"
        fields["template"] = (
            f"Using the numbers {{{numbers.name}}}, each at most once, and + - * /, write an expression that equals "
            f"{{{target.name}}}. Put it between <answer> and </answer>."
        )
    said = f"these are Countdown's rows: an answer is right if it reaches {target.name} with the {numbers.name}"
    return Roles(columns, fields, said=[said])


def _asked(prompt: SeenColumn, columns: Sequence[SeenColumn]) -> tuple[str, str | None]:
    """The name of what is asked, and why, if it is more than the column itself."""
    if prompt.chat:
        as_it_is = all((turns := turns_in(cell)) == cell and turns[-1]["role"] == "user" for cell in prompt.there)
        made = f"{prompt.name}.{CHAT}"
        asked = any(made in Cells({prompt.name: cell}) for cell in prompt.there)
        return (made, "the turns up to the user's last one") if asked and not as_it_is else (prompt.name, None)
    beside = {
        plain(one.name): one
        for one in columns
        if one.name != prompt.name and one.there and one.share((str, int, float)) == 1.0
    }
    both = ("instruction", "input")
    named_so = beside | {plain(prompt.name): prompt}
    if plain(prompt.name) in both and all(word in named_so for word in both):
        first, second = (named_so[word].name for word in both)
        return f"{first} + {second}", "the instruction, and below it the input, where there is one"
    always = [
        one
        for one in named(columns, seen.PROMPTS)
        if one in beside.values() and one.unasked == seen.CONSTANT and rank(one.name, seen.SYSTEM) is None
    ]
    if always and always[0].words >= 2:
        first = always[0].name
        return f"{first} + {prompt.name}", f"the {first}, which is one throughout, and below it the {prompt.name}"
    passage = next((one for word, one in beside.items() if word in seen.PASSAGES and one.words >= 2), None)
    if passage is not None:
        return f"{passage.name} + {prompt.name}", f"the {passage.name}, and below it the {prompt.name}"
    return prompt.name, None


def _answer(columns: Sequence[SeenColumn], prompt: SeenColumn, options: Sequence[SeenColumn]) -> str | None:
    """The column of the reference answers, if any: by its name, a chat's last turn, or the only other one."""
    usable = [
        one
        for one in columns
        if one not in (prompt, *options) and one.there and not one.share(dict) and rank(one.name, seen.TESTS) is None
    ]
    found = [one for one in named(usable, seen.ANSWERS) if one.unasked != seen.CONSTANT or len(columns) == 2]
    if found:
        return _answers_of(found[0])
    if prompt.chat and all(turns_in(cell)[-1:] and turns_in(cell)[-1]["role"] == "assistant" for cell in prompt.there):
        return f"{prompt.name}.{ANSWER}"
    short = [one for one in usable if plain(one.name) == "a"]
    if short and plain(prompt.name) in ("q", "question", "f", "frage"):
        return short[0].name
    others = [one for one in usable if one.unasked in (None, "holds numbers") and not tokens(one.name) & seen.IDS]
    return others[0].name if len(columns) == 2 and others else None


def _answers_of(column: SeenColumn) -> str:
    return f"{column.name}.{ANSWER}" if column.chat else column.name


def _choices(
    columns: Sequence[SeenColumn], prompt: SeenColumn, name: str, options: Mapping[str, SeenColumn]
) -> dict[str, Json] | str:
    """Fields of a multiple choice, whose answer is a letter, an index or a choice; a question if that is not clear."""
    lettered = f"x.{LETTERED}"
    whole = [one for one in columns if one.there and "." not in one.name]
    lists = [one for one in named(whole, seen.CHOICES) if lettered in Cells(x=one.there[0])]
    answers = named([one for one in whole if one not in (prompt, *options.values(), *lists[:1])], seen.ANSWERS)
    if not answers or not (lists or len(options) > 1):
        letters = bool(answers) and len(set(answers[0].texts)) > 1 and all(map(_CHOICE.fullmatch, answers[0].texts))
        shown = sum(bool(_SHOWN.search(text)) for text in prompt.texts) >= len(prompt.texts) / 2
        return (
            "The answers are letters, and no choices are found: put them into the prompts, or into a column of choices."
            if letters and not shown
            else {}
        )
    answer, nearly_all = answers[0], NEARLY_ALL * len(answers[0].there)
    texts = [text.strip() for text in answer.texts]
    if lists:
        fields: dict[str, Json] = {"prompt_column": f"{name} + {lists[0].name}.{LETTERED}"}
        first = str(Cells(x=lists[0].there[0]).get(lettered)).splitlines()
        labels, inside = [line.partition(". ")[0] for line in first], f"{answer.name} in {lists[0].name}"
        pairs = [Cells({answer.name: a, lists[0].name: b}) for a, b in zip(answer.cells, lists[0].cells, strict=True)]
        are_texts = sum(inside in pair for pair in pairs) >= nearly_all
    else:
        labels, inside = sorted(options), ""
        cells = zip(answer.cells, *(one.cells for one in options.values()), strict=True)
        are_texts = sum(as_text(one) in map(as_text, others) for one, *others in cells) >= nearly_all
        of_letters = all(label.upper() in labels for label in texts)
        if not are_texts and not of_letters and not set(texts) <= {str(place) for place in range(len(labels) + 1)}:
            return {}  # columns that are called a and b, and are something else
        lines = [f"{letter}. {{{options[letter].name}}}" for letter in labels]
        fields = {"template": "\n".join(["{prompt}\n", *lines])}
    are_places = all(map(_WHOLE.fullmatch, texts))
    if answer.share(list) or (are_texts and (are_places or not lists)):
        return f"Is {answer.name} the choice itself or its place? Write the letter of the right choice into a column."
    fields["answer_column"] = inside if are_texts else answer.name
    if are_places and not labels[0].isdigit():
        places = {int(float(text)) for text in texts}
        from_1 = 0 not in places and len(labels) in places
        fields["answer_column"] = f"{answer.name}.{LETTER_FROM_1 if from_1 else LETTER}"
    return fields


_OPTION = re.compile(
    r"(?:(?:option|choice|answer|opt?|antwort|réponse|reponse|respuesta|ответ|sol)[ _]?)?([A-F])"
    r"|(?:option|choice|opt|sol)[ _]?([1-6])",
    re.IGNORECASE,
)
_CHOICE, _SHOWN = re.compile(r"\s*\(?[A-F]\)?\.?\s*"), re.compile(r"(?:^|\s)\(?A[).:]")


def of_pairs(rows: Sequence[Cells]) -> Roles:
    """The columns of preference pairs; without a column of prompts, what both answers begin with."""
    columns = columns_of(rows)
    answers = [one for one in columns if one.chat or one.share((str, int, float)) == 1.0]  # no objects or flags
    rejected = next(iter(named(answers, seen.REJECTED)), None)
    chosen = next(iter(named([one for one in answers if rank(one.name, seen.REJECTED) is None], seen.CHOSEN)), None)
    texts_beside = [one for one in columns if one not in (chosen, rejected) and one.unasked is None]
    # what names others, such as 1 and 0, a and b
    few = chosen and rejected and len({*chosen.texts, *rejected.texts}) <= 2 < len(chosen.texts)
    if chosen is None or rejected is None or (few and len(texts_beside) > 2):
        label = next((one.name for one in columns if seen.COUNTERPARTS.search(one.name)), None)
        beside = f"; {label} seems to say which of two others is better" if label else ""
        question = f"Which column holds the preferred answer, and which the other? There are {listed(columns)}{beside}."
        return Roles(columns, question=question)
    implicit: dict[str, Json] = {
        "prompt_column": f"{chosen.name} & {rejected.name}",
        "chosen_column": f"{chosen.name} - {rejected.name}",
        "rejected_column": f"{rejected.name} - {chosen.name}",
    }
    offered = [str(name) for name in implicit.values()]
    answered = [row for row in rows if not all(is_missing(row.get(one.name)) for one in (chosen, rejected))]
    shared = SeenColumn(offered[0], [row.get(offered[0]) for row in answered])
    is_shared = len(shared.there) >= NEARLY_ALL * max(1, len(answered))
    prompts = [one for one in named(columns, seen.PROMPTS) if one.unasked is None and one not in (chosen, rejected)]
    # both answers repeat the prompt
    texts = [
        [as_text(row.get(one.name)).strip() for one in (*prompts[:1], chosen, rejected)] for row in rows if prompts
    ]
    repeated = sum(a.startswith(p) and b.startswith(p) for p, a, b in texts) >= NEARLY_ALL * max(1, len(texts))
    if chosen.chat and rejected.chat and not is_shared and any(len(turns_in(cell)) > 2 for cell in chosen.there):
        question = f"{chosen.name} and {rejected.name} differ before their last turn: write two answers to one prompt."
        return Roles(columns, question=question)
    others = [one for one in columns if one not in (chosen, rejected) and one.unasked is None and one.words >= 3]
    if not prompts and len(others) == 1 and not (chosen.chat and rejected.chat):
        prompts = others
    if is_shared and ((chosen.chat and rejected.chat) or repeated or (not prompts and shared.words >= 1.5)):
        said = f"the prompt is what {chosen.name} and {rejected.name} begin with"
        return Roles(columns, implicit, said=[said])
    fields: dict[str, Json] = {"chosen_column": _answers_of(chosen), "rejected_column": _answers_of(rejected)}
    if not prompts:
        return Roles(columns, fields, no_prompts(columns))
    return Roles(columns, {"prompt_column": _asked(prompts[0], columns)[0], **fields}, made=offered)


def listed(columns: Sequence[SeenColumn]) -> str:
    """Of the columns, as far as they are short in all."""
    return f"{', '.join(one.name for one in columns):.500}"


def no_prompts(columns: Sequence[SeenColumn]) -> str:
    """That nothing can be asked, with what stands in each column."""
    said = "; ".join(f"{one.name} {one.unasked}" for one in columns if one.unasked)
    return f"No column holds prompts{': ' if said else ''}{said:.500}. Add a column of prompts, or name one of {listed(columns)}."
