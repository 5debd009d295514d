"""What a reward model gives completions."""

import math
from collections.abc import Iterator, Sequence

from backend.contract.base import Json
from worker.policy.classifier import RewardModel
from worker.tasks.items import Item


def learned_outcomes(model: RewardModel, read: Sequence[tuple[Item, str]]) -> Iterator[dict[str, Json]]:
    """The outcome for each item and completion, in order; a text beyond the model's context stays unscored."""
    sequences = [
        model.token_ids(item.question if item.messages is None else item.messages, text) for item, text in read
    ]
    limit = math.inf if model.context is None else model.context
    scores = iter(model.scores([sequence for sequence in sequences if len(sequence) <= limit]))
    for sequence in sequences:
        if len(sequence) > limit:
            yield {
                "error": f"reward_error: prompt and completion have {len(sequence)} tokens, and the reward model reads at most {limit}"
            }
        else:
            yield _outcome(next(scores))


def _outcome(score: float) -> dict[str, Json]:
    if not math.isfinite(score):
        return {"error": f"reward_value: the reward model gave {score}, which leaves the completion unscored"}
    return {"value": score}
