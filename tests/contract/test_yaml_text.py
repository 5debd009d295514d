"""YAML that people paste becomes plain values, or is refused in words: within bounds of size and time, and never by a traceback."""

import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as s

from backend.contract.yaml_text import MOST_LETTERS, Unreadable, read

ROOT = Path(__file__).parents[2]
BOMB = "a: &a [x,x]\n" + "".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [*{chr(97 + level)},*{chr(97 + level)}]\n" for level in range(8)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, r"line 2, column 8: \*a repeats another part; write that part out"),
        ("a: &a [*a]", "write that part out"),
        ("a: {<<: *b}", "write that part out"),
        ("day: 2001-02-03", "line 1, column 6: put the date 2001-02-03 in quotes"),
        ("day: 2001-02-30", "put the date 2001-02-30 in quotes"),
        ("a: .inf", "leave it out|correct it"),
        ("a: .nan", "correct it"),
        ('a: "\\ud800"', "remove it"),
        ('\\U0000d800: "\\ud800"', "remove it"),
        ("a: " + "9" * 5000, "at most 100 digits"),
        ("a: " + "1:" * 5000 + "1", "at most 100 digits"),
        ("a: " + "1:" * 5000 + "1.5", "at most 100 digits"),
        ("a: " + "9" * 20, "beyond 64 bits"),
        ("a: " + "[" * 3000 + "]" * 3000, "nested too deeply; flatten it"),
        ("[" * 500_000, "nested too deeply"),
        ("a: " + "[" * 70 + "]" * 70, "deeper than 64 levels; flatten it"),
        ("a: !!binary aGVsbG8=", "leave out the tag"),
        ("a: !!bool no-such", "leave out the tag"),
        ("a: !!set {a}", "leave out the tag"),
        ("a: !!python/object:os.system x", "leave out the tag"),
        ("<<: 3", "merging"),
        ("[1]: 2", "unhashable"),
        ("a: [", "line 1, column"),
        ("a: \x00", "special characters"),
        ("[" + "1," * 20_000 + "]", "more than 20,000 values; shorten it"),
        ("a" * (MOST_LETTERS + 1), "shorten it"),
    ],
)
def test_what_is_no_plain_value_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        read(text)


def test_plain_values_are_read_as_they_stand() -> None:
    text = 'a: [1, 2e-4, 1.5, true, null, "2001-02-30", "\\0"]\nb: &unused {1: x}\n'
    assert read(text) == {"a": [1, "2e-4", 1.5, True, None, "2001-02-30", "\0"], "b": {"1": "x"}}
    assert read("") is None


def test_a_short_text_never_becomes_a_large_value() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable):
            read(BOMB)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@given(s.text(s.sampled_from("ab:-[]{}&*!<>|'\"\\ud8#%@.,0123456789\n\t e+_TZ\x00\ud800"), max_size=60))
def test_no_text_ends_in_a_traceback(text: str) -> None:
    with suppress(Unreadable):
        read(text)


def test_no_other_part_reads_yaml() -> None:
    reading = [
        str(path.relative_to(ROOT))
        for room in ("backend", "worker", "dashboard", "groupscope")
        for path in (ROOT / room).rglob("*.py")
        if any(call in path.read_text() for call in ("safe_load", "yaml.load", "full_load", "unsafe_load"))
    ]
    assert reading == ["backend/contract/yaml_text.py"]
