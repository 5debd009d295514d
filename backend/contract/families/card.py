"""What every recipe card is made with."""

from backend.contract.algorithm import Algorithm
from backend.contract.catalog import RecipeCard
from backend.contract.config import TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.training import Budget, Optimizer

# 1e-4 and 2e-4 learn faster, but are done by step 40 and leave little to watch; see docs/experiments.md.
QUICKSTART_OPTIMIZER = Optimizer(learning_rate=5e-5, warmup_steps=10)


def card(
    id: str, title: str, sentence: str, when: str, source: str, formula: str, config: TrainingConfig
) -> RecipeCard:
    """A card whose configuration carries its name; `formula` is LaTeX."""
    named = config.model_copy(update={"recipe": id})
    return RecipeCard(
        id=id,
        title=title,
        sentence=sentence,
        when=when,
        source=source,
        formula=formula,
        config=named.model_dump(mode="json"),
    )


def on_the_quickstart(
    id: str, title: str, sentence: str, when: str, source: str, formula: str, algorithm: Algorithm
) -> RecipeCard:
    """Another algorithm where everything else is the quickstart's, so that runs compare."""
    config = GrpoConfig(algorithm=algorithm, optimizer=QUICKSTART_OPTIMIZER, budget=Budget(eval_samples=4))
    return card(id, title, sentence, when, source, formula, config)
