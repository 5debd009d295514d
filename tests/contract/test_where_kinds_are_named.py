"""Another estimator or surrogate is added in four files. Recipes, and a few rules that are about one kind alone, may name it too."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from backend.contract.advantage import ESTIMATORS
from backend.contract.surrogate import SURROGATES

ROOT = Path(__file__).parents[2]
PRODUCT = ("backend", "worker", "dashboard", "benchmarks", "scripts")
ESTIMATOR_FILES = {
    "backend/contract/advantage.py",  # the model: settings, and what the program asks of any estimator
    "worker/algorithms/advantages.py",  # the formula
    "worker/algorithms/estimator.py",  # from the model to the formula
    "dashboard/algorithm/estimators.py",  # in words
}
SURROGATE_FILES = {
    "backend/contract/surrogate.py",
    "worker/algorithms/objective.py",
    "dashboard/algorithm/surrogates.py",
}
RECIPES = "backend/contract/recipes.py"
ABOUT_ONE_KIND = {
    "clip": {"backend/contract/algorithm.py"},  # the default
    "group_center": {
        "backend/preflight/hints.py",  # what it advises in place of a division by nearly 0
        "benchmarks/reward_model.py",
    },
    "normalize_then_sum": {"backend/health/rewards.py"},  # what it advises if one reward drowns another
    "best_worst": {"backend/contract/algorithm.py"},  # the pairs of DPO
    "cispo": {"backend/preflight/hints.py"},  # a cap that caps everything
    "group_zscore": {
        "backend/contract/algorithm.py",  # the default
        "worker/algorithms/gae.py",  # PPO z-scores the advantages of tokens
        "dashboard/playground/advantages.py",  # the readings of GRPO's formula
        "benchmarks/reward_model.py",
    },
    "softmax": {"dashboard/playground/advantages.py"},
}
ANOTHER_MATTER = {"gae", "dpo"}  # a critic and a kind of run: more than another formula
COMMON = {"clip", "none", "softmax"}  # words that code uses for other things, too: only their classes count


@pytest.mark.parametrize(
    ("kind", "model", "files"),
    [
        *((kind, model, ESTIMATOR_FILES) for kind, model in ESTIMATORS.items() if kind not in ANOTHER_MATTER),
        *((kind, model, SURROGATE_FILES) for kind, model in SURROGATES.items() if kind not in ANOTHER_MATTER),
    ],
)
def test_a_kind_is_named_in_four_files(kind: str, model: type, files: set[str]) -> None:
    names = {model.__name__} if kind in COMMON else {model.__name__, kind}
    found = {path for path, words in _words().items() if words & names and path != RECIPES}
    assert found <= files | ABOUT_ONE_KIND.get(kind, set())


@cache
def _words() -> dict[str, set[str]]:
    """The identifiers of each file, and the words of its texts but for docstrings."""
    paths = [path for package in PRODUCT for path in (ROOT / package).rglob("*.py")]
    return {str(path.relative_to(ROOT)): set(_named(ast.parse(path.read_text("utf-8")))) for path in paths}


def _named(tree: ast.Module) -> Iterator[str]:
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.FunctionDef(name=name):
                yield name
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield from re.findall(r"\b[a-z][a-z_]*\b", text)
