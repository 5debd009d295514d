"""Correctness: whether the answer in a completion is right."""

from worker.rewards.completion import Completion
from worker.rewards.countdown import reaches
from worker.rewards.extraction import find_answer
from worker.rewards.numeric import same_number


def correctness_score(completion: Completion, *, extract: str, match: str) -> float:
    """1 if the extracted answer matches, else 0; a task with a verifier of its own may give a part of 1.

    Raises ValueError where there is nothing to compare with: that is the data's fault, not the completion's.
    """
    answer = find_answer(completion.text, extract)
    how = completion.verifier["kind"] if match == "task" else match
    if answer is None:
        return 0.0
    match how:
        case "countdown":
            return float(reaches(answer, completion.verifier["numbers"], completion.verifier["target"]))
        case "reasoning_gym":
            from worker.rewards.gym import gym_score  # seconds to import, and few runs need it

            return gym_score(answer, completion.verifier["dataset"], completion.verifier["entry"])
        case "exact":
            return float(answer == _reference(completion).strip())
        case "numeric":
            return float(same_number(answer, _reference(completion)))
        case "symbolic":
            from worker.rewards.symbolic import same_value  # the same

            return float(same_value(answer, _reference(completion)))
        case _:
            raise ValueError(f"there is no way {how!r} to compare answers")


def _reference(completion: Completion) -> str:
    if completion.answer is None:
        raise ValueError("the item has no reference answer to compare with")
    return completion.answer
