"""The reward functions: what scores, and that nothing which a model can write makes one of them raise."""

from fractions import Fraction

import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.contract.answers import find_answer
from backend.contract.reading import NEWEST
from backend.contract.verdicts import Unclear
from worker.rewards.answers import number, reaches, same_number
from worker.rewards.functions import Completion, Verifier, correctness_score, format_score, length_score, pattern_score
from worker.rewards.gym import gym_score
from worker.rewards.symbolic import same_value

RIGHT = "<think>2 x 6 = 12; 2 + 12 = 14</think><answer>14</answer>"
NUMERIC: Verifier = {"kind": "numeric"}
EXTRACTS = ("answer_tag", "last_number", "boxed", "whole")


def completion(text: str, *, answer: str | None = "14", tokens: int = 10, verifier: Verifier = NUMERIC) -> Completion:
    return Completion(text, tokens, answer, verifier)


# ---- extraction


# The last closed tag, the last number with its sign and separators, the last balanced box, all without white space around it.
ANSWERS: dict[str, list[tuple[str, str | None]]] = {
    "answer_tag": [
        (RIGHT, "14"),
        ("<answer>24</answer> no, <answer> 14\n</answer>", "14"),
        ("<answer>14</answer><answer>24", "14"),
        ("<answer>so <answer>14</answer></answer>", "14"),
        ("<answer></answer>", ""),
        ("</answer>14<answer>", None),
        ("<Answer>14</Answer>", None),
        ("", None),
    ],
    "last_number": [
        ("2 + 2 x 6 = 14", "14"),
        ("The answer is 14.", "14"),
        ("it is -14", "-14"),
        ("5-3", "3"),
        ("= +1,400.50 dollars", "+1,400.50"),
        ("1, 2, 3", "3"),
        ("12,34", "34"),
        ("probability .25", ".25"),
        ("x = \u22123", "\u22123"),
        ("1/2", "2"),
        ("fourteen", None),
    ],
    "boxed": [
        (r"so \boxed{14}", "14"),
        (r"\boxed{1} and \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{14} and \boxed{15", "14"),
        (r"} \boxed{14}", "14"),
        (r"\boxed{\boxed{14}}", r"\boxed{14}"),
        (r"\boxed14", None),
    ],
    "whole": [(" 5\n", "5")],
}


@pytest.mark.parametrize(("extract", "text", "answer"), [(how, *row) for how, rows in ANSWERS.items() for row in rows])
def test_the_answer_is_found_where_it_is_marked(extract: str, text: str, answer: str | None) -> None:
    assert find_answer(text, extract) == answer


# ---- correctness


@pytest.mark.parametrize(
    ("text", "reference", "same"),
    [
        *((text, "14", True) for text in ("14", "14.0", "+14", " 14 ", "14.", "1.4e1", "28/2", "014")),
        ("9007199254740993", "9007199254740992", False),  # floats would not differ
        ("1400", "She earns 14 x 100 = 1400 dollars.\n#### 1,400", True),  # as GSM8K writes it
    ],
)
def test_one_number_has_many_spellings(text: str, reference: str, same: bool) -> None:
    assert same_number(text, reference) == same


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,400", 1400),
        ("-1,234,567.5", Fraction(-2469135, 2)),
        ("-.5", Fraction(-1, 2)),
        ("\u22123", -3),
        ("3/4", Fraction(3, 4)),
        ("1e-3", Fraction(1, 1000)),
        ("0.1", Fraction(1, 10)),
    ],
)
def test_numbers_are_read_exactly(text: str, value: Fraction) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    "text", ["", "1 2", "14 apples", "9" * 5000, *"- . abc 14,00 1,4000 0x10 1e99999 nan inf 1/0 1_000 ٣".split()]
)
def test_what_is_no_number_is_simply_not_right(text: str) -> None:
    assert number(text) is None
    assert not same_number(text, "14")


@pytest.mark.parametrize(
    ("answer", "match", "says"),
    [("north", "numeric", "the reference answer 'north' is not a number"), (None, "exact", "no reference answer")],
)
def test_a_reference_that_is_missing_or_no_number_is_the_datas_fault(answer: str | None, match: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        correctness_score(completion(RIGHT, answer=answer), extract="answer_tag", match=match)


@pytest.mark.parametrize(
    ("extract", "match", "text", "answer", "score"),
    [
        ("answer_tag", "task", RIGHT.replace(">14<", ">14.0<"), "14", 1.0),
        ("answer_tag", "exact", RIGHT.replace(">14<", ">14.0<"), "14", 0.0),
        ("answer_tag", "exact", "<answer> north </answer>", "north ", 1.0),
        ("answer_tag", "task", RIGHT.replace(">14<", ">24<"), "14", 0.0),
        ("answer_tag", "numeric", "14", "14", 0.0),
        ("last_number", "numeric", "So 7 + 8 = 15", "15", 1.0),
        ("boxed", "symbolic", r"\boxed{\frac{1}{2}}", "0.5", 1.0),
        ("whole", "symbolic", "x^2 + x", "x(x+1)", 1.0),
    ],
)
def test_correctness_extracts_and_compares(extract: str, match: str, text: str, answer: str, score: float) -> None:
    assert correctness_score(completion(text, answer=answer), extract=extract, match=match) == score


@pytest.mark.parametrize(
    ("match", "text", "answer", "score"),
    [
        ("symbolic", r"\boxed{foorp}", "proof", 0.0),
        ("numeric", r"\boxed{**Proof**}", "proof", 1.0),
        ("task", r"\boxed{x(x+1)}", "x^2 + x", 1.0),
        ("task", r"\boxed{$\frac{1}{2}$}", r"Half of it: $\boxed{0.5}$", 1.0),
        ("symbolic", r"\boxed{1\,234.}", "1234", 1.0),
        ("symbolic", r"\boxed{1,5}", "15", 0.0),
        ("symbolic", r"\boxed{−\sqrt{4}}", "-2", 1.0),
        ("exact", r"\boxed{b.}", "(B)", 1.0),
        ("task", "none", "x^2", 0.0),
        ("task", r"\boxed{\begin{pmatrix}1&2\\3&4\end{pmatrix}}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", 1.0),
        ("task", r"\boxed{ax^2+bx+c}", "ax^2 + bx + c", 1.0),
        *[
            ("task", rf"\boxed{{{text}}}", "1, 2", score)
            for text, score in (("1,2", 1.0), ("2, 1", None), ("x=1, y=2", None))
        ],
        *[("task", rf"\boxed{{{text}}}", "a + b", score) for text, score in (("b+a", 1.0), ("a*b", 0.0))],
        ("task", r"\boxed{\{1, 2\}}", "(1, 2)", None),
        *[
            ("task", rf"\boxed{{{text}}}", r"2\sqrt{3}", 1.0)
            for text in (r"2√3", "2 sqrt(3)", "**2√3**", "The answer is 2√(3)")
        ],
        *[
            ("task", rf"\boxed{{{text}}}", "x^2+1", 1.0)
            for text in (r"\[x^2+1\]", "```\nx^2+1\n```", r"\(1+x^2\)", "$$x^2+1$$")
        ],
        *[
            ("task", rf"\boxed{{{text}}}", "x^2+1", None)
            for text in (
                "$x^2+2$ $x^2+1$",
                "not $x^2+1$",
                "so x^2+1",
                "$x^2+3$ or maybe $x^2+1$",
                "x^2+1 or x",
                "x or y",
                "x^2 +",
                "",
            )
        ],
        *[("symbolic", rf"\boxed{{{text}}}", r"\frac{\pi}{2}", 1.0) for text in ("pi/2", "π/2", "0.5 pi")],
        *[("task", r"\boxed{(-∞;2]}", r"(-\infty, 2]", 1.0), ("task", r"\boxed{\varnothing}", r"\emptyset", 1.0)],
        *[("symbolic", rf"\boxed{{{text}}}", "4", None) for text in ("x^2=4", "±4", "4+", "not 4", "n-1=4")],
        *[("symbolic", r"\boxed{\sqrt{16}}", "4", 1.0), ("symbolic", r"\boxed{3}", "x+y=3", None)],
    ],
)
def test_a_reference_that_is_a_word_is_compared_as_text_and_others_as_what_they_are(
    match: str, text: str, answer: str, score: float | None
) -> None:
    asked = completion(text, answer=answer, verifier={"kind": "exact"})
    said = correctness_score(asked, extract="boxed", match=match, reading=NEWEST)
    assert (None if isinstance(said, Unclear) else said) == score


def test_a_reference_is_looked_at_before_the_answer() -> None:
    asked = completion("no answer at all", answer="between 3 and 5")
    with pytest.raises(ValueError, match="is not a number"):
        correctness_score(asked, extract="answer_tag", match="numeric", reading=NEWEST)


@pytest.mark.parametrize(
    ("answer", "reference", "same"),
    [
        ("0.5", "1/2", True),
        ("x(x+2)", "x^2 + 2x", True),
        ("x**2 + 2*x", "x^2 + 2x", True),
        (r"$\frac{1}{2}$", "1/2", True),
        ("1.41421356", r"\sqrt{2}", True),
        ("1,400", "1400", True),
        ("2*x + x**2", "2", False),
        ("(2,1)", "(1,2)", False),
        ("", "14", False),
        (")(", "14", False),
        ("9" * 5000, "14", False),
    ],
)
def test_mathematical_equality_is_of_values(answer: str, reference: str, same: bool) -> None:
    assert same_value(answer, reference) is same


@pytest.mark.parametrize(
    "wrong",
    [
        *("24", "3 * 8 = 24", "8 * 3 * 1", "8 + 8 + 8", "8 / (4 - 4)", "-8 + 32", "8 ** 3", "95**77**21", "3.0 * 8"),
        *("True * 3 * 8", "__import__('os')", "'a'", "(" * 150 + "8" + ")" * 150, "\x00", ""),
    ],
)
def test_countdown_takes_only_the_given_numbers_and_four_operations(wrong: str) -> None:
    assert not reaches(wrong, [3, 4, 5, 8], 24)
    assert all(reaches(right, [3, 4, 5, 8], 24) for right in ("(3 + 5) * 4 - 8", "4*(3+5)-8", "3 * 8"))
    assert reaches("1 / 3 * 6", [1, 3, 6], 2), "division is exact"


@pytest.mark.parametrize("answer", ["", "abc", "[[", "1/0", "nan"])
def test_an_answer_that_a_gym_verifier_cannot_read_scores_next_to_nothing(answer: str) -> None:
    entry = {"question": "q", "answer": "2 × 7", "metadata": {"number": 14, "factors": [2, 7]}}
    assert gym_score("2 × 7", "prime_factorization", repr(entry)) == 1.0
    assert gym_score(answer, "prime_factorization", repr(entry)) < 0.1


# ---- format


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (RIGHT, 1.0),
        ("  <think>a</think>\n\n<answer>b</answer>\n", 1.0),
        ("<think></think><answer></answer>", 1.0),
        ("<think>a < b > c</think><answer>{}</answer>", 1.0),
        ("so <think>a</think><answer>b</answer>", 0.0),
        ("<think>a</think> so <answer>b</answer>", 0.0),
        ("<think>a</think><answer>b</answer> done", 0.0),
        ("<answer>b</answer><think>a</think>", 0.0),
        ("<think>a<answer>b</think></answer>", 0.0),
        ("<think>a</think><answer>b", 0.0),
        ("<think>a</think><think>a</think><answer>b</answer>", 0.0),
        ("<think>a</think><answer>b</answer></answer>", 0.0),
        ("</think>a<think></answer>b<answer>", 0.0),
        ("<answer>b</answer>", 0.0),
        ("", 0.0),
    ],
)
def test_format_is_the_tags_in_order_each_once_and_nothing_outside(text: str, score: float) -> None:
    assert format_score(completion(text), tags=["think", "answer"]) == score


# ---- length


@pytest.mark.parametrize(
    ("tokens", "score"), [(0, 0.0), (5, 0.5), (10, 1.0), (20, 1.0), (25, 0.5), (30, 0.0), (99, 0.0)]
)
def test_length_is_full_inside_the_bounds_and_falls_in_a_line_outside(tokens: int, score: float) -> None:
    assert length_score(completion("x", tokens=tokens), unit="tokens", minimum=10, maximum=20, ramp=10) == score


@pytest.mark.parametrize(("unit", "target"), [("tokens", 10), ("words", 3), ("characters", 13)])
def test_equal_bounds_are_a_target_in_any_unit(unit: str, target: int) -> None:
    text = completion("one two\nthree")
    assert length_score(text, unit=unit, minimum=target, maximum=target, ramp=1) == 1.0
    assert length_score(text, unit=unit, minimum=target + 1, maximum=target + 1, ramp=1) == 0.0


# ---- pattern


@pytest.mark.parametrize(
    ("syntax", "patterns", "case_sensitive", "score"),
    [
        ("keyword", ["think", "=", "because", "Think"], True, 0.5),
        ("keyword", ["THINK", "ANSWER"], False, 1.0),
        ("keyword", ["[0-9]"], True, 0.0),
        ("regex", ["[0-9]+ x [0-9]+", "^never"], True, 0.5),
        ("regex", ["ANSWER"], False, 1.0),
    ],
)
def test_pattern_is_the_share_of_patterns_found(
    syntax: str, patterns: list[str], case_sensitive: bool, score: float
) -> None:
    assert pattern_score(completion(RIGHT), syntax=syntax, patterns=patterns, case_sensitive=case_sensitive) == score


# ---- whatever a model writes


PIECES = st.sampled_from(
    ["<think>", "</think>", "<answer>", "</answer>", "\\boxed{", "14", "1,400", *"{}-./()", "\x00", "\ud800"]
)
TEXTS = st.one_of(
    st.text(st.characters(), max_size=200), st.lists(PIECES | st.text(max_size=5), max_size=30).map("".join)
)
VERIFIERS: list[Verifier] = [NUMERIC, {"kind": "exact"}, {"kind": "countdown", "numbers": [3, 4, 5], "target": 7}]


@settings(max_examples=examples(200))
@given(TEXTS, st.sampled_from(EXTRACTS), st.sampled_from(VERIFIERS))
def test_no_completion_makes_a_reward_raise_or_leave_its_range(text: str, extract: str, verifier: Verifier) -> None:
    written = completion(text, verifier=verifier)
    assert 0 <= correctness_score(written, extract=extract, match="task") <= 1
    assert 0 <= format_score(written, tags=["think", "answer"]) <= 1
    assert 0 <= length_score(written, unit="words", minimum=3, maximum=5, ramp=4) <= 1
    assert 0 <= pattern_score(written, syntax="keyword", patterns=["14", "é"], case_sensitive=False) <= 1


OTHER_PIECES = "</answer> } 1 - 123, . <think> ( \\boxed{}".split()


@pytest.mark.parametrize(
    "piece", ["<answer>", "\\boxed{", "1,", *(pytest.param(one, marks=pytest.mark.thorough) for one in OTHER_PIECES)]
)
@pytest.mark.slow
@pytest.mark.timeout(60)  # one look at each character takes a second, a look from each at all the others hours
def test_no_long_completion_takes_long(piece: str) -> None:
    written = completion(piece * (4_000_000 // len(piece)))
    for extract in EXTRACTS:
        correctness_score(written, extract=extract, match="task")
    format_score(written, tags=["think", "answer"])
