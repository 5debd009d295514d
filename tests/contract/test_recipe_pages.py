"""Every recipe has a page; what a page quotes of code and configuration is what the code and the configuration say."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from backend.contract.base import Json
from backend.contract.catalog import RecipeCard
from backend.contract.config import RUN_CONFIG
from backend.contract.recipes import QUICKSTART, RECIPES

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "recipes.md"
PAGES = ROOT / "docs" / "recipes"
SECTIONS = [
    "Formula",
    "Code",
    "Configuration",
    "Source",
    "When to use it, and when not",
    "What its charts should look like",
]
EACH = pytest.mark.parametrize("card", RECIPES, ids=lambda card: card.id)


def page_of(card: RecipeCard) -> str:
    return (PAGES / f"{card.id}.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def difference(base: Json, other: Json) -> Json:
    """What has to be written over `base` to get `other`: all of a part whose kind is another one, and of a list."""
    if isinstance(base, dict) and isinstance(other, dict) and base.get("kind") == other.get("kind"):
        return {name: difference(base.get(name), value) for name, value in other.items() if base.get(name) != value}
    return other


def said(card: RecipeCard) -> Json:
    """What a page has to say of the recipe's configuration: that of the quickstart is the ground for all of its kind."""
    config: Mapping[str, Json] = {name: value for name, value in card.config.items() if name != "recipe"}
    quickstart = next(one.config for one in RECIPES if one.id == QUICKSTART)
    if card.id == QUICKSTART:
        return dict(config)
    if config["kind"] == quickstart["kind"]:
        return difference(dict(quickstart), dict(config))
    kind = {"kind": config["kind"]}
    defaults = RUN_CONFIG.validate_python(kind).model_dump(mode="json", exclude={"recipe"})
    changed = difference(defaults, dict(config))
    assert isinstance(changed, dict)
    return kind | changed


def test_the_index_lists_every_recipe_in_its_order_and_no_page_is_without_one() -> None:
    rows = re.findall(r"^\| \[`([a-z0-9-]+)`\]\(recipes/([a-z0-9-]+)\.md\) \|", INDEX.read_text(), flags=re.MULTILINE)
    ids = [card.id for card in RECIPES]
    assert rows == [(one, one) for one in ids]
    assert sorted(path.stem for path in PAGES.iterdir()) == sorted(ids)


@EACH
def test_a_page_begins_with_title_and_sentence_and_has_every_section(card: RecipeCard) -> None:
    text = page_of(card)
    assert text.startswith(f"# {card.title} (`{card.id}`)\n\n{card.sentence}\n")
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == SECTIONS
    assert text.count("\n$$\n") >= 2, "no formula"


@EACH
def test_the_code_on_a_page_stands_in_the_file_that_it_names(card: RecipeCard) -> None:
    quoted = blocks(page_of(card), "python")
    assert quoted
    for block in quoted:
        first, _, excerpt = block.partition("\n")
        assert first.startswith("# "), first
        assert excerpt.strip("\n") in (ROOT / first.removeprefix("# ")).read_text(), first


@EACH
def test_the_configuration_on_a_page_is_the_recipes(card: RecipeCard) -> None:
    (block,) = blocks(page_of(card), "yaml")
    assert yaml.safe_load(block) == said(card)
