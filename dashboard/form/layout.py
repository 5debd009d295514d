"""Which fields of a kind of run stand at the top of its form, and which sections follow."""

from collections.abc import Mapping
from dataclasses import dataclass

from backend.contract.base import Json
from dashboard.form.paths import get

LABELS = {
    "telemetry": "What to keep",
    "pairs.task": "Task",
    "pairs.rewards": "Rewards",
    "pairs.decoding": "Decoding",
}


@dataclass(frozen=True)
class Layout:
    """Dotted paths. `kinds` are unions whose kind is chosen at the top; `numbers` are what most runs differ in."""

    kinds: tuple[str, ...]
    numbers: tuple[str, ...]
    sections: tuple[str, ...]

    @property
    def at_the_top(self) -> frozenset[str]:
        """What stands in no section."""
        return frozenset({"model.source", "optimizer.learning_rate", "budget.seed", *self.numbers})


POLICY = Layout(
    kinds=("task",),
    numbers=("sampling.prompts_per_step", "sampling.group_size", "sampling.max_new_tokens", "budget.steps"),
    sections=("model", "task", "rewards", "sampling", "algorithm", "optimizer", "budget", "telemetry"),
)


def layout_of(config: Mapping[str, Json]) -> Layout:
    """The layout for the configuration's kind, and for where its pairs come from."""
    if config.get("kind", "grpo") == "grpo":
        return POLICY
    numbers = ("budget.pairs_per_step", "budget.steps", *(("beta",) if config["kind"] == "dpo" else ()))
    if get(dict(config), "pairs.kind") == "dataset":
        return Layout(("pairs",), numbers, ("model", "pairs", "optimizer", "budget"))
    sections = ("model", "pairs", "pairs.task", "pairs.rewards", "pairs.decoding", "optimizer", "budget")
    return Layout(("pairs", "pairs.task"), ("pairs.prompts", *numbers), sections)


def label_of(path: str) -> str:
    """What a section or a choice at the top is called."""
    return LABELS.get(path, path.capitalize())
