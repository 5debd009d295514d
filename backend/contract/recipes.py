"""Recipes: named starting points. Each is nothing but a choice along the axes, with its source and its formula."""

from backend.contract.catalog import RecipeCard
from backend.contract.families import clipping, group_relative, policy_gradient, preferences, start
from backend.contract.families.start import SMOLLM2

__all__ = ["QUICKSTART", "RECIPES", "SMOLLM2"]

QUICKSTART = "grpo"
FAMILIES = {
    "Start here": start.CARDS,
    "Group-relative": group_relative.CARDS,
    "Ratio and clipping": clipping.CARDS,
    "Policy gradient": policy_gradient.CARDS,
    "Preferences": preferences.CARDS,
}
RECIPES: tuple[RecipeCard, ...] = tuple(
    card.model_copy(update={"family": family}) for family, cards in FAMILIES.items() for card in cards
)
