"""What a recipe is set to on purpose is no warning: the recipe as it stands would be told the same."""

from collections.abc import Sequence
from functools import lru_cache

from backend.contract.config import RUN_CONFIG
from backend.contract.grpo import GrpoConfig
from backend.contract.preflight import Message
from backend.contract.recipes import RECIPES
from backend.preflight.facts import Facts
from backend.preflight.hints import grpo_hints


def of_the_recipe(messages: Sequence[Message], config: GrpoConfig) -> list[Message]:
    """The messages; a warning, or a fix, that the unchanged recipe gets too is only noted."""
    own = _of_recipe(config.recipe)
    return [
        one.model_copy(update={"level": "info", "fix": None, "intended": True}) if one in own else one
        for one in messages
    ]


@lru_cache(maxsize=len(RECIPES))
def _of_recipe(recipe: str | None) -> tuple[Message, ...]:
    """What would be mended in the recipe itself, whatever workers and earlier runs there are."""
    card = next((card for card in RECIPES if card.id == recipe), None)
    config = RUN_CONFIG.validate_python(card.config) if card else None
    if not isinstance(config, GrpoConfig):
        return ()
    return tuple(one for one in grpo_hints(config, Facts()) if one.level == "warning" or one.fix)
