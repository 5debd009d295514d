"""Answers as a person reads them: no right one is wrong, no wrong one is right, and what nobody can know is unclear."""

from fractions import Fraction

import pytest

from backend.contract.numerals import last_numeral, numerals
from backend.contract.verdicts import Unclear, match_of, numeric_verdict, reference_in, text_verdict

GSM8K = "She sold 48/2 = <<48/2=24>>24 clips in May.\nTotal 48+24 = 72\n#### 72"
RIGHT = r"""
**73** 73|$73 73|73. 73|`73` 73|*73* 73|18_dollars 18|\$18 18|€18 18|18 18_dollars|18_apples 18|18.0 18|(18) 18|The_answer_is_18. 18
1_234 1234|1\,234 1234|1,234 1234|1{,}234 1234|1'234 1234|1.234,50_€ 1234.5|$1,234.00 1234|12,34,567 1234567|1,5 1.5|0,123 0.123
１８ 18|٤٢ 42|−5 -5|–5 -5|-_5 -5|$-5 -5|-$5 -5|minus_5 -5|+5 5|1½ 1.5|\frac{3}{4} 0.75|3/4 0.75|1_1/2 1.5|1e3 1000|1.8_×_10^1 18
x_=_18 18|20_-_2_=_18 18|\boxed{18} 18|18% 0.18|0.18 18%|18_% 18_percent|1.2_million 1200000|5k 5000|eighteen 18|twenty-one 21
\frac34 3/4|\frac12 0.5|\tfrac34 75%|\frac{12}5 2.4|\frac1{2} 1/2|\cfrac{3}{4} 3/4|3⁄4 3/4|1\frac12 3/2|42° 42^\circ|42^{\circ} 42
12,\!345 12345|zero 0|about_5 5|Rs._5 5|US$_5 5|#5 5|y_=_5 y_=_5|The_total_cost_is_$5 5|2*3+1=7 7|48/2-4*1.5=18 18|she_has_5_apples 5|5 answer_is_5
\boxed{\frac{1}{2}} \frac{1}{2}|So_it_is_$\boxed{\frac{1}{2}}$. \frac{1}{2}|\boxed{1\frac{1}{2}} 1.5
The_answer_is_-\frac{3}{4}. -0.75|<b>42</b> 42
It_takes_4_hours. 4|He_saved_$42. 42|Tom_ran_42_miles. 42
James_has_42_apples_left. 42|She_can_buy_42_pens. 42|60_km/h 60|1,_2 1,2|-(42) -42
So_50_-_8_=_42_apples 42|84_÷_2_=_42 42
x_=_3_*_14_=_42 42|5^2_=_25 25|48_cm^2 48|48_\text{_cm}^2 48|42_cm² 42|42_m^3 42|48 48_cm^2
"""
WRONG = """
1,5 15|−5 5|5 -5|180 18|18.5 18|3_4_5 18|18k 18|1.2.3 1.2|-18 18|0.18 18|18 0.18|none 18|1/2 2|18_% 0.018|answer:_-_5 5|=_-_5 5
"""
UNCLEAR = r"""
1.234 1234|1,234 1.234|18_% 18|18 18_%|18_or_20 18|2x 2|18_cm 18_m|1800_cm 18_m|not_18 18|<_18 18|at_least_18 18|5-3 5|10^2 10|2_or_2 2
the_answer_is_-_5 5|the_answer_is_-_5 -5|1.2_(or_so) 1.2|18,000 18|half 0.5|5-3 2
2+3 5|5=2+3 5|10^3 1000|2^{10} 1024|\sqrt{16} 4|❘-5❘ 5|5M 5000000|2B 2000000000|2_Mio. 2000000|2_Millionen 2000000|2万 20000|2_lakh 200000
three_quarters 0.75|a_hundred 100|one_hundred_and_five 105|two_dozen 24|two_and_a_half 2.5|nicht_2 2|mehr_als_2 2|mindestens_2 2|más_de_2 2
moins_de_2 2|не_2 2|больше_2 2|不是2 2|2以上 2|2_is_wrong 2|cannot_be_2 2|no_2 2|except_2 2|half_of_5 5|twice_5 5|square_root_of_5 5|5_squared 5
log_5 5|5_pi 5|5_dozen 5|almost_5 5|5+ 5|±5 5|5! 120|2_Millionen 2|2_milliards 2|2_mil 2|2_lakh 2|2_миллиона 2|2_thirds 2|2‰ 2|10_=_2 2|2_cents $2
two_and_a_half 2|x_=_5 y_=_5|x^2=4 4|n-1=4 4|1066_BC 1066|2+2=5 5|nearly_7 7|5_or_so 5|5_x 5|5-ish 5|5ish 5|5? 5|a_couple 2
July_4 4|Maroon_5 5|B12 12|x_+_12 12|y_=_x_+_12 12|f(x)_=_x_+_12 12|\boxed{x_+_5} 5|x/5 5|5/x 5
x*5 5|5_*_x 5|5_-_x 5|x_÷_5 5|x5 5|A5 5|(x,_5) 5
5_i 5|5_factorial 5|5th 5|5_out_of_x 5|the_sum_of_x_and_5 5|x_=_y_*_42 42|I_need_42_-_x 42
5_cents 5|a*5 5|ab_+_5 5|sin_5 5|floor(5) 5|1.2 1,2|1_and_2 1,2|2,_1 1,2|48_cm^3 48_cm^2
"""
NO_NUMBERS = """
July_4|Maroon_5|World_War_2|Apollo_11|Boeing_747|B12|e4|COVID-19|vitamin_B3|O2|NH3|MP3|21_Jump_Street|May_2024|at_most_5|5_or_more
not_5|±5|5!|return_3|One_Direction|5_dozen|1066_BC
"""


@pytest.mark.parametrize(("cases", "expected"), [(RIGHT, True), (WRONG, False), (UNCLEAR, None)])
def test_a_number_is_read_as_a_person_reads_it(cases: str, expected: bool | None) -> None:
    pairs = [tuple(case.rsplit(" ", 1)) for line in cases.split("\n") for case in line.split("|") if case]
    read = [(numeric_verdict(a.replace("_", " ").replace("❘", "|"), b.replace("_", " ")), a, b) for a, b in pairs]
    assert [(said, *case) for said, *case in read if (None if isinstance(said, Unclear) else said) != expected] == []
    assert len(pairs) > 12


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("Paris", "paris", True),
        (r"\boxed{\text{Paris}}", "Paris", True),
        (r"\boxed{\text{(B)}}", "B", True),
        ("The answer is H2O", "H2O", True),
        *[("F = ma", "F=ma", True), ("red, green", "red,green", True), ("['a', 'b']", "['a','b']", True)],
        *[("(a, b)", "(a,b)", True), ("USA", "U.S.A.", True), ("No solutions", "no solution", True)],
        ("**Paris**.", "Paris", True),
        ("“Paris”", "Paris", True),
        ("(B)", "B", True),
        ("b) Paris", "B", True),
        ("Answer: B", "(B)", True),
        ("72", GSM8K, True),
        ("A cat", "A", False),
        ("C", "B", False),
        ("London", "Paris", False),
        ("Paris or Rome", "Paris", None),
        ("18.0", "18", None),
        ("= 18", "18", None),
        *[
            (text, "A", None)
            for text in (
                "(A) or (B)",
                "(A) and (B)",
                "A) B) C)",
                "(A) is incorrect; B",
                "A: wrong",
                "B because A is wrong",
            )
        ],
        *[(text, "B", True) for text in ("It's B", "I choose B", "B - Paris", "Paris (B)", "Die Antwort ist B", "B) Vitamin C")],
        *[(text, "C) 22", True) for text in ("C", "22", "C) 22", "(c)", "The answer is C")],
        *[
            ("C) 21", "C) 22", None),
            ("B", "C) 22", False),
            ("Nitro", "B. Nitro", True),
            ("C) Paris", "B", False),
            ("Answer:B", "B", True),
            ("I think A is right", "A", None),
            ("not B", "B", False),
        ],
        *[
            ("AC", "A, C", True),
            ("A and C", "AC", True),
            ("C, A", "A and C", True),
            ("A, B", "A, C", False),
            ("A", "A, C", False),
        ],
        *[("The capital is Paris.", "Paris", None), ("Answer: Paris", "Paris", True), ("not Paris", "Paris", False)],
        *[("The Beatles", "Beatles", True), ("don’t", "don't", True), ("3:4", "3 : 4", True), ("yes", "true", True)],
        *[
            ("no", "False", True),
            ("yes", "false", False),
            ("Co", "CO", None),
            ("mW", "MW", None),
            ("2x", "2X", None),
            ("YES", "yes", True),
        ],
        *[("18", "eighteen", True), ("4", "July 4", None), ("June 4", "July 4", False), ("5 or more", "5 or more", True)],
        *[("5", "5 or more", None), ("2", "World War 2", None), ("Parisian", "Paris", False), ("rome", "Rome", True)],
    ],
)  # fmt: skip
def test_a_text_is_compared_without_its_dress(answer: str, reference: str, expected: bool | None) -> None:
    said = text_verdict(answer, reference)
    assert (None if isinstance(said, Unclear) else said) is expected


def test_a_reference_may_stand_at_the_end_of_a_solution_and_one_that_is_no_number_is_refused() -> None:
    assert [
        reference_in(text) for text in (GSM8K, r"so $x = \boxed{\frac{1}{2}}$.", "<answer> 7 </answer>", " 7 ")
    ] == ["72", r"\frac{1}{2}", "7", "7"]
    for reference in ("proof", "2x", "(1, 2)", "3 to 5"):
        with pytest.raises(ValueError, match="is not a number"):
            numeric_verdict("1", reference)
    said = numeric_verdict("18" + " " * 1000 + "x", "18")
    assert isinstance(said, Unclear)
    assert "1,003 characters" in said.reason


@pytest.mark.parametrize(
    ("how", "references"),
    [
        ("numeric", ["42", GSM8K, r"\frac{3}{4}", "1,234", "18 dollars", r"\boxed{7}", "x = 3"]),
        ("symbolic", ["x > 5", "a + b", "x^2+1", r"\sqrt{2}", "2x + 3", "(1, 2)", "[1, 2]", "{1,2}", "sin(2) + 1", r"2\pi"]),
        (
            "exact",
            [
                *NO_NUMBERS.strip().replace("\n", "|").replace("_", " ").split("|"),
                "Paris",
                "B",
                "proof",
                "yes",
                "2023-11-05",
                "3:2",
                "and/or",
                "well-known",
                r"\text{Friday}",
                "A dog - a hound.",
            ],
        ),
    ],
)  # fmt: skip
def test_each_reference_says_how_it_is_compared(how: str, references: list[str]) -> None:
    assert {reference: match_of(reference) for reference in references} == dict.fromkeys(references, how)


def test_the_last_number_of_a_long_text_is_whole_and_no_number_takes_long() -> None:
    assert [
        last_numeral(text) for text in ("it is 1,234.", "7" * 150 + " dollars", "x " * 500 + "18 %.", "no", "1" * 5000)
    ] == ["1,234", "7" * 150, "18 %", None, None]
    assert [one.value for one in numerals("10² and 1e9999 and 5/0 and 3")] == [Fraction(10), Fraction(2), Fraction(3)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sign", [" ", "\n", "1", "A ", "\\frac{", "'", "("])
def test_a_run_of_one_sign_is_read_in_time_however_long_it_is(sign: str) -> None:
    text = f"{{{sign * 60_000}}}"
    assert text_verdict(text, "Paris") is False
    assert text_verdict("Paris", text) is False
