"""docs/architecture.md lists the files that another estimator, surrogate, reward or metric touches: no other file may name one."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from backend.contract.advantage import ESTIMATORS
from backend.contract.reward import Judge, Pattern
from backend.contract.surrogate import SURROGATES

ROOT = Path(__file__).parents[2]
PRODUCT = ("backend", "worker", "dashboard", "groupscope", "benchmarks", "scripts")
PAGE = ROOT / "docs/architecture.md"
RECIPES = "backend/contract/recipes.py"
QUERIES = "backend/contract/queries.py"
ABOUT_ONE_KIND = {
    "clip": {"backend/contract/algorithm.py"},  # the default
    "group_center": {
        "backend/preflight/hints.py",  # what it advises in place of a division by nearly 0
        "benchmarks/reward_model.py",
    },
    "normalize_then_sum": {"backend/health/component.py"},  # what it advises if one reward drowns another
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
TRANSLATED = {  # from another trainer's words
    "backend/contract/trl.py",
    "backend/contract/trl_conversion.py",
    "groupscope/samples.py",
    "groupscope/trl.py",
}
OLD_DATA = {"backend/storage/migrate.py"}  # it upgrades what earlier versions stored
ANOTHER_MATTER = {"gae", "dpo"}  # a critic and a kind of run: more than another formula
COMMON = {"clip", "none", "softmax"}  # words that code uses for other things, too: only their classes count


REWARDS: dict[str, tuple[type, str]] = {
    "pattern": (Pattern, "a reward that is a function of the text"),
    "judge": (Judge, "a reward that needs something of the worker, as a judge does"),
}
KINDS = [
    *((kind, model, "an estimator", 4) for kind, model in ESTIMATORS.items() if kind not in ANOTHER_MATTER),
    *((kind, model, "a surrogate", 4) for kind, model in SURROGATES.items() if kind not in ANOTHER_MATTER),
]


@cache
def listed(what: str) -> set[str]:
    """The files that docs/architecture.md lists for adding something."""
    (line,) = (line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| {what} |"))
    files = set(re.findall(r"`([\w/]+\.py)`", line))
    assert all((ROOT / file).is_file() for file in files)
    return files


@pytest.mark.parametrize(("kind", "model", "what", "most"), KINDS)
def test_an_algorithm_is_named_in_four_files(kind: str, model: type, what: str, most: int) -> None:
    names = {model.__name__} if kind in COMMON else {model.__name__, kind}
    found = {path for path, words in _words().items() if words & names and path != RECIPES}
    assert found <= listed(what) | ABOUT_ONE_KIND.get(kind, set()) | TRANSLATED
    assert len(listed(what)) <= most


@pytest.mark.parametrize(("kind", "most"), [("pattern", 3), ("judge", 6)])
def test_a_reward_is_named_in_three_files_or_in_six_if_it_needs_the_worker(kind: str, most: int) -> None:
    model, what = REWARDS[kind]
    found = {path for path, words in _words().items() if model.__name__ in words} | _with_text(kind)
    assert found - OLD_DATA == listed(what)
    assert len(listed(what)) <= most


@pytest.mark.parametrize(
    "metric", ["completions/min_length", "completions/max_length", "explained_variance", "group_reward_std"]
)
def test_a_metric_is_named_where_it_is_measured_and_where_it_is_shown(metric: str) -> None:
    shown = {path for path in _with_text(metric) if not path.startswith("benchmarks/")}  # which invent runs that log it
    # a first choice, or the same as another trainer's
    compared = {"dashboard/comparison/controls.py", "backend/contract/foreign_metrics.py"}
    assert {"worker/step_report.py", "dashboard/charts/meaning.py"} <= shown <= listed("a metric") | compared


@pytest.mark.parametrize(
    ("name", "store"),
    [
        *((name, "backend/runs/store.py") for name in ("status", "kind", "recipe", "model", "tag", "sweep")),
        *((name, "backend/telemetry/groups.py") for name in ("bookmarked", "finish_reason", "prompt_id", "state")),
    ],
)
def test_a_filter_is_a_field_of_its_list_and_a_condition_in_one_store(name: str, store: str) -> None:
    read = {path for path, nodes in _nodes().items() if any(_is_of_query(node, name) for node in nodes)}
    declared = {
        path for path, nodes in _nodes().items() if path.startswith("backend/contract/") and _declares(nodes, name)
    }
    assert (declared, read) == ({QUERIES}, {store})


def _is_of_query(node: ast.AST, name: str) -> bool:
    """`query.name`, as stores read what was asked."""
    return isinstance(node, ast.Attribute) and node.attr == name and ast.unparse(node.value) == "query"


def _declares(nodes: list[ast.AST], name: str) -> bool:
    """A class of queries in this file has the field."""
    queries = (node for node in nodes if isinstance(node, ast.ClassDef) and node.name.endswith("Query"))
    return any(
        isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name for one in queries for node in one.body
    )


@cache
def _with_text(text: str) -> set[str]:
    """The files with a string that is exactly this text."""
    return {path for path, nodes in _nodes().items() if any(_is_text(node, text) for node in nodes)}


def _is_text(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


@cache
def _nodes() -> dict[str, list[ast.AST]]:
    paths = [path for package in PRODUCT for path in (ROOT / package).rglob("*.py")]
    return {str(path.relative_to(ROOT)): list(ast.walk(ast.parse(path.read_text("utf-8")))) for path in paths}


@cache
def _words() -> dict[str, set[str]]:
    """The identifiers of each file, and the words of its texts but for docstrings."""
    return {path: set(_named(nodes)) for path, nodes in _nodes().items()}


def _named(nodes: list[ast.AST]) -> Iterator[str]:
    docstrings = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.FunctionDef(name=name):
                yield name
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield from re.findall(r"\b[a-z][a-z_]*\b", text)
