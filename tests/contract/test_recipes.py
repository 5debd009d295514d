"""Recipes are configurations: they validate, survive JSON and YAML, and have pages that quote code and configuration."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from backend.contract.base import Json
from backend.contract.catalog import RecipeCard
from backend.contract.config import MODELS, RUN_CONFIG, Kind
from backend.contract.recipes import QUICKSTART, RECIPES
from backend.contract.sample import SampleConfig

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "recipes"
SECTIONS = "Formula|Code|Configuration|Source|When to use it, and when not|What its charts should look like".split("|")
ASSUMES_A_TUTORIAL = re.compile(r"the (blog|notebook|guide|documents)\b", re.IGNORECASE)
EACH = pytest.mark.parametrize("card", RECIPES, ids=lambda card: card.id)


@EACH
def test_a_recipe_is_a_valid_configuration_that_names_it_and_survives_json_and_yaml(card: RecipeCard) -> None:
    config = RUN_CONFIG.validate_python(card.config)
    assert not isinstance(config, SampleConfig)
    assert config.recipe == card.id
    assert json.loads(json.dumps(card.config, allow_nan=False)) == card.config
    assert RUN_CONFIG.validate_python(yaml.safe_load(yaml.safe_dump(card.config))) == config


@EACH
def test_a_recipe_says_what_it_is_to_somebody_who_has_read_no_tutorial(card: RecipeCard) -> None:
    said = (card.title, card.sentence, card.when, card.source)
    assert all(said)
    assert not ASSUMES_A_TUTORIAL.search(" ".join(said))


@pytest.mark.parametrize("kind", MODELS)
def test_every_field_that_a_form_shows_explains_itself(kind: Kind) -> None:
    schema = MODELS[kind].model_json_schema()
    silent = [
        f"{owner}.{name}"
        for owner, definition in schema["$defs"].items()
        for name, field in definition.get("properties", {}).items()
        if "description" not in field and "const" not in field
    ]
    assert silent == []
    assert not ASSUMES_A_TUTORIAL.search(json.dumps(schema))


# ---- their pages


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def difference(base: Json, other: Json) -> Json:
    """What has to be written over `base` to get `other`: all of a part whose kind is another one, and of a list."""
    if isinstance(base, dict) and isinstance(other, dict) and base.get("kind") == other.get("kind"):
        return {name: difference(base.get(name), value) for name, value in other.items() if base.get(name) != value}
    return other


def changed_by(card: RecipeCard) -> Json:
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


def test_the_index_lists_every_recipe_once_in_its_order_and_no_page_is_without_one() -> None:
    index = (ROOT / "docs" / "recipes.md").read_text()
    rows = re.findall(r"^\| \[`([a-z0-9-]+)`\]\(recipes/([a-z0-9-]+)\.md\) \|", index, flags=re.MULTILINE)
    ids = [card.id for card in RECIPES]
    assert rows == [(one, one) for one in ids]
    assert sorted(path.stem for path in PAGES.iterdir()) == sorted(ids)


@EACH
def test_a_page_has_every_section_and_quotes_code_of_the_file_that_it_names_and_the_recipes_configuration(
    card: RecipeCard,
) -> None:
    text = (PAGES / f"{card.id}.md").read_text()
    assert text.startswith(f"# {card.title} (`{card.id}`)\n\n{card.sentence}\n")
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == SECTIONS
    assert text.count("\n$$\n") >= 2, "no formula"
    quoted = blocks(text, "python")
    assert quoted
    for block in quoted:
        first, _, excerpt = block.partition("\n")
        assert first.startswith("# "), first
        assert excerpt.strip("\n") in (ROOT / first.removeprefix("# ")).read_text(), first
    (block,) = blocks(text, "yaml")
    assert yaml.safe_load(block) == changed_by(card)
