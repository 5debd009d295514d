"""The list of mutants names lines that stand in the code, each once, and tests that exist."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MUTANTS = tomllib.loads((ROOT / "tests/mutants.toml").read_text())["mutant"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["name"])
def test_the_line_of_a_mutant_stands_once_in_its_file_and_its_tests_exist(mutant: dict[str, str]) -> None:
    assert (ROOT / mutant["file"]).read_text().count(mutant["line"]) == 1
    assert all((ROOT / place.partition("::")[0]).exists() for place in mutant["test"].split())
    assert mutant["line"] not in mutant["instead"]


def test_each_protection_is_listed_once() -> None:
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS)
