"""docs/algorithms.md names every choice of every axis, and only functions that there are."""

import re
from pathlib import Path

import pytest

from backend.contract.algorithm import Algorithm

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "algorithms.md").read_text()


def choices() -> set[str]:
    """Every word that a field of the algorithm may be set to, and every field of it."""
    schema = Algorithm.model_json_schema()
    models = [schema, *schema["$defs"].values()]
    fields = [field for model in models for field in model["properties"].items()]
    words = {word for _, field in fields for word in field.get("enum", [])}
    kinds = {field["const"] for _, field in fields if "const" in field}
    return words | kinds | set(schema["properties"])


@pytest.mark.parametrize("choice", sorted(choices()))
def test_every_choice_is_on_the_map(choice: str) -> None:
    assert re.search(rf"`(algorithm\.|kl\.)?{choice}`", TEXT), choice


def test_every_function_in_the_tables_is_defined() -> None:
    code = "".join(path.read_text() for path in (ROOT / "worker" / "algorithms").glob("*.py"))
    tables = re.findall(r"^\| name \|.*\| function \|.*\n\|[-|]+\n((?:\|.*\n)+)", TEXT, flags=re.MULTILINE)
    assert len(tables) == 2
    for row in "".join(tables).splitlines():
        for name in re.findall(r"`(\w+)`", row.split("|")[4]):
            assert f"def {name}(" in code, name
