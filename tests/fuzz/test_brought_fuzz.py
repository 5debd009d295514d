"""Tables, chats and answers as people write them, made at random: nothing is read as something else."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.contract.cells import Cells
from backend.contract.turns import turns_in
from backend.contract.verdicts import numeric_verdict
from backend.uploads.roles import of_task

pytestmark = pytest.mark.hypothesis
WORDS = st.lists(
    st.sampled_from("how many apples are left when she eats two of them ?".split()), min_size=4, max_size=9
).map(" ".join)
NUMBERS = st.decimals(Decimal("-99999.99"), Decimal("99999.99"), places=2).map(lambda one: one.normalize() + 0)


def plain(number: Decimal) -> str:
    return f"{number:f}"


def thousands(number: Decimal) -> str:
    return f"{number:,f}"


WAYS = [
    plain, lambda n: f"**{plain(n)}**", lambda n: f"{plain(n)}." if n == int(n) else plain(n), lambda n: f"The answer is {plain(n)}",
    lambda n: f"\\boxed{{{plain(n)}}}", lambda n: f"${plain(n)}$", lambda n: plain(n).replace("-", "−"), lambda n: f"= {plain(n)}",
    lambda n: f"{plain(n)} dollars", lambda n: f"{plain(abs(n))} €" if n >= 0 else plain(n), lambda n: f"{n:.2f}",
    lambda n: "".join(chr(0xFF10 + int(sign)) if sign.isdigit() else sign for sign in plain(n)), thousands,
]  # fmt: skip


@given(NUMBERS, st.sampled_from(WAYS))
def test_no_right_answer_is_wrong_however_it_is_written(number: Decimal, way: Any) -> None:
    assert numeric_verdict(way(number), plain(number)) is not False


@given(NUMBERS, st.sampled_from(WAYS), st.sampled_from([Decimal(1), Decimal("0.01"), Decimal(-10), Decimal(1000)]))
def test_no_wrong_answer_is_right_however_near_it_is(number: Decimal, way: Any, off: Decimal) -> None:
    for other in (number + off, number * 10, -number, number / 100):
        if other != number:
            assert numeric_verdict(way(number), plain(other)) is not True


NAMES = {"role": ("role", "content"), "from": ("from", "value")}
SPEAKERS = {"user": ("user", "human"), "assistant": ("assistant", "gpt"), "system": ("system", "developer")}


@given(
    st.lists(WORDS, min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from(sorted(NAMES)),
    st.sampled_from((0, 1)),
    st.sampled_from(("list", "json", "python", "parts")),
)
def test_a_chat_is_read_in_any_form(texts: list[str], system: bool, names: str, speaker: int, form: str) -> None:
    roles = [*(["system"] if system else []), *(["user", "assistant"] * len(texts))][: len(texts)]
    role, content = NAMES[names]
    chat = [
        {role: SPEAKERS[who][speaker], content: [{"type": "text", "text": text}] if form == "parts" else text}
        for who, text in zip(roles, texts, strict=True)
    ]
    cell: Any = json.dumps(chat) if form == "json" else str(chat) if form == "python" else chat
    assert turns_in(cell) == [{"role": who, "content": text} for who, text in zip(roles, texts, strict=True)]


PROMPTS, ANSWERS = (
    ["question", "Question", "PROBLEM", "prompt", "Frage", "问题"],
    ["answer", "Answer", "SOLUTION", "label", "Antwort", "答案"],
)
BESIDE: dict[str, Any] = {
    "id": lambda n: f"row-{n}", "Unnamed: 0": lambda n: n, "split": lambda n: "train", "level": lambda n: n % 5, "uuid": lambda n: f"{n:032x}", "meta": lambda n: {"n": n},
}  # fmt: skip


@given(
    st.lists(WORDS, min_size=12, max_size=20, unique=True),
    st.sampled_from(PROMPTS),
    st.sampled_from(ANSWERS),
    st.permutations(sorted(BESIDE)),
    st.integers(0, 6),
    st.randoms(),
)
def test_columns_are_found_among_others(
    texts: list[str], prompt: str, answer: str, beside: list[str], count: int, random: Any
) -> None:
    order = [prompt, answer, *beside[:count]]
    random.shuffle(order)
    cells = {prompt: lambda n: texts[n], answer: lambda n: 3 * n + 1, **BESIDE}
    roles = of_task([Cells({name: cells[name](n) for name in order}) for n in range(len(texts))])
    assert (roles.fields["prompt_column"], roles.fields["answer_column"], roles.question) == (prompt, answer, None)
