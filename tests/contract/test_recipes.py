"""Recipes are configurations: they validate, survive JSON and YAML, and carry their own name."""

import json
import re

import pytest
import yaml

from backend.contract.catalog import RecipeCard
from backend.contract.config import MODELS, RUN_CONFIG, Kind
from backend.contract.recipes import QUICKSTART, RECIPES
from backend.contract.sample import SampleConfig

EACH = pytest.mark.parametrize("card", RECIPES, ids=lambda card: card.id)


@EACH
def test_a_recipe_is_a_valid_configuration_that_names_it(card: RecipeCard) -> None:
    config = RUN_CONFIG.validate_python(card.config)
    assert not isinstance(config, SampleConfig)
    assert config.recipe == card.id
    assert all((card.title, card.sentence, card.when, card.source))


@EACH
def test_a_recipe_says_what_it_is_to_somebody_who_has_read_no_tutorial(card: RecipeCard) -> None:
    said = f"{card.title} {card.sentence} {card.when} {card.source}"
    assert not re.search(r"the (blog|notebook|guide|documents)\b", said, re.IGNORECASE)


@EACH
def test_a_recipe_survives_json_and_yaml(card: RecipeCard) -> None:
    assert json.loads(json.dumps(card.config, allow_nan=False)) == card.config
    assert RUN_CONFIG.validate_python(yaml.safe_load(yaml.safe_dump(card.config))) == RUN_CONFIG.validate_python(
        card.config
    )


def test_the_quickstart_is_a_recipe_and_ids_are_unique() -> None:
    ids = [card.id for card in RECIPES]
    assert QUICKSTART in ids
    assert len(set(ids)) == len(ids)


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
    assert not re.search(r"[Tt]he (blog|notebook|guide|documents)\b", json.dumps(schema))
