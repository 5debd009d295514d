"""The columns of a person's rows as they are seen: what stands in them, and what their names mean in several languages."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from backend.contract.base import Json
from backend.contract.cells import Cells, struct_in
from backend.contract.task import LONGEST_NAME, as_text, is_missing
from backend.contract.turns import turns_in

NEARLY_ALL = 0.95


def plain(name: str) -> str:
    """A name without case, accents and signs; of a struct's field its own name."""
    decomposed = unicodedata.normalize("NFKD", name.rpartition(".")[2])
    return "".join(sign for sign in decomposed if sign.isalnum()).casefold()


def _words(text: str) -> list[str]:
    return [plain(word) for word in text.split()]


# The likeliest first; the languages of most data sets.
PROMPTS = _words(
    "prompt prompts question problem query instruction input user_prompt Frage Aufgabe Eingabe Anweisung problème "
    "pregunta problema entrada instrucción domanda richiesta pergunta vraag opgave pytanie zadanie вопрос задача "
    "запрос 问题 问 题目 題目 問題 質問 질문 문제 سؤال messages conversations conversation chat dialog dialogue turns text"
)
ANSWERS = _words(
    "ground_truth gold_answer final_answer correct_answer reference_answer expected_answer answer answers "
    "answer_key gold reference expected truth correct solution target label labels result output response "
    "completion Antwort Lösung Ergebnis réponse résultat respuesta solución resultado risposta soluzione resposta "
    "antwoord oplossing odpowiedź rozwiązanie ответ решение richtig correcta corrigé cop 正解 模範解答 答案 答 回答 解答 答え 정답 답 답변 جواب إجابة"
)
CHOSEN = _words(
    "chosen preferred better winner accepted good positive pos win best bevorzugt besser gut elegido preferido choisi préféré"
)
REJECTED = _words(
    "rejected dispreferred non_preferred other worse loser declined bad negative neg lose worst "
    "abgelehnt schlecht rechazado rejeté"
)
PASSAGES = _words("context passage paragraph article document body table facts story history Kontext contexte contexto")
CHOICES = _words("choices options endings alternatives candidates Auswahl opciones")
NUMBERS, TARGETS = _words("nums numbers Zahlen"), _words("target goal Ziel cible objetivo")
TESTS = _words("test tests test_list unit_tests test_cases private_tests public_tests asserts input_output")
SYSTEM, SPEAKERS = _words("system system_prompt"), _words("role speaker")
IDS = frozenset(_words("id ids uuid guid idx index nr no num number key hash url row"))
# In a name beside one of the words above: what the column says is of that, and not that.
ASIDE = frozenset(
    _words("type kind source format by date id ids url model score rating lang language category start end offset")
)
_ID = re.compile(r"(?=.*[A-Za-z])(?=.*\d)[\w./:-]{1,160}")  # a hash, a file's name, a running number with letters
COUNTERPARTS = re.compile(r"better|preferred|chosen|winner|winning|preference|label", re.IGNORECASE)


CONSTANT, NAMELESS = "has one value throughout", "holds ids"


@dataclass(frozen=True)
class SeenColumn:
    """A column, or what is made of one under a name (`cells.py`), with its cells; None where a row has nothing."""

    name: str
    cells: Sequence[Json]

    @cached_property
    def there(self) -> list[Json]:
        """The cells that hold something."""
        return [cell for cell in self.cells if not is_missing(cell)]

    @cached_property
    def texts(self) -> list[str]:
        """As they would be written into a prompt."""
        return [as_text(cell) for cell in self.there]

    def share(self, kind: type | tuple[type, ...]) -> float:
        """Of the cells that hold something, how many are of a type."""
        fitting = sum(isinstance(cell, kind) and not isinstance(cell, bool) for cell in self.there)
        return fitting / max(1, len(self.there))

    @cached_property
    def chat(self) -> bool:
        """Whether nearly all cells are chats."""
        return sum(bool(turns_in(cell)) for cell in self.there) >= NEARLY_ALL * max(1, len(self.there))

    @cached_property
    def words(self) -> float:
        """Words in a cell, on the average."""
        return sum(len(text.split()) for text in self.texts) / max(1, len(self.texts))

    @cached_property
    def unasked(self) -> str | None:
        """Why no prompt is made of it; None if one could be."""
        if not self.there:
            return "is empty"
        if len(self.there) > 1 and len(set(self.texts)) == 1:
            return CONSTANT
        if all(re.fullmatch(r"[-+]?\d+(\.\d+)?", text) for text in self.texts):
            return "holds numbers"
        if all(isinstance(cell, dict) or (isinstance(cell, list) and not turns_in(cell)) for cell in self.there):
            return "holds lists or objects"
        one_word = not any(" " in text.strip() for text in self.texts)
        if one_word and (tokens(self.name) & IDS or all(map(_ID.fullmatch, self.texts))):
            return NAMELESS
        return None


def tokens(name: str) -> set[str]:
    """The words that a name is made of, as `plain` has them."""
    parts = re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", name.rpartition(".")[2])
    return {plain(part) for part in parts if part}


def rank(name: str, words: Sequence[str]) -> float | None:
    """How likely a name means one of the words: its place, later if the word is a part of it or the name a struct's field."""
    nested = 0.5 * name.count(".")
    for inside in (".text", ".value", ".content", ".response"):
        name = name.removesuffix(inside)
    if (whole := plain(name)) in words:
        return words.index(whole) + nested
    parts = tokens(name)
    places = [
        place
        for place, word in enumerate(words)
        if word in parts
        or (len(word) >= STEM and any(part.startswith(word) or part.endswith(word) for part in (whole, *parts)))
    ]
    return None if parts & ASIDE or not places else len(words) + min(places) + nested


STEM = 5
"""Letters of a word that also counts with an ending, or behind another word: Musterlösung, questions."""


def named(columns: Sequence[SeenColumn], words: Sequence[str]) -> list[SeenColumn]:
    """Those whose name means one of the words, the likeliest first."""
    ranked = [(place, column) for column in columns if (place := rank(column.name, words)) is not None]
    return [column for _, column in sorted(ranked, key=lambda one: one[0])]


def columns_of(rows: Sequence[Cells]) -> list[SeenColumn]:
    """The columns, each followed by the fields of its structs."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [column for name in names for column in _with_fields(name, rows)]


def _with_fields(name: str, rows: Sequence[Cells]) -> Iterator[SeenColumn]:
    yield (column := SeenColumn(name, [row.get(name) for row in rows]))
    objects = [struct_in(cell) for cell in column.there]
    if objects and all(objects) and not column.chat and name.count(".") < 2:
        for field in dict.fromkeys(field for one in objects for field in one or ()):
            if len(made := f"{name}.{field}") <= LONGEST_NAME:
                yield from _with_fields(made, rows)
