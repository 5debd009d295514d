"""The reward functions by kind; each takes a Completion and its configuration's fields."""

from collections.abc import Callable, Mapping

from worker.rewards.correctness import correctness_score
from worker.rewards.format import format_score
from worker.rewards.length import length_score
from worker.rewards.pattern import pattern_score
from worker.rewards.python_function import python_score

FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "correctness": correctness_score,
    "format": format_score,
    "length": length_score,
    "pattern": pattern_score,
    "python": python_score,
}
