"""What pages are tested on, made in a line: a run of one step, and a group with given scores."""

from collections.abc import Mapping, Sequence

import recorded

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.groups import GroupReport
from backend.contract.inspection import GroupScores


def one_step(
    client: Client, groups: Sequence[GroupReport], metrics: Mapping[str, float] | None = None, **overrides: Json
) -> int:
    """A run under way that has reported its first step."""
    run_id = recorded.queue(client, "one step", **overrides)
    attempt = recorded.claim(client, run_id).attempt
    client.report(run_id, p.Report(attempt=attempt, seq=0, step=0, groups=list(groups), metrics=dict(metrics or {})))
    return run_id


def scores_of(rewards: Sequence[float | None], lengths: Sequence[int] | None = None) -> GroupScores:
    """A group of the prompt `a`, as it is read to be judged; its only reward is `own`."""
    known = [one for one in rewards if one is not None]
    state = "unscored" if len(known) < 2 else "live" if len(set(known)) > 1 else "zero_variance"
    mean = sum(known) / len(known) if known else 0.0
    completions = [
        {
            "id": place,
            "index": place,
            "finish_reason": "stop",
            "token_count": lengths[place] if lengths else 10,
            "rewards": [{"name": "own", "raw": reward, "weight": 1.0}],
            "reward": reward,
            "advantage": None if reward is None else reward - mean,
        }
        for place, reward in enumerate(rewards)
    ]
    of = {"id": 1, "index": 0, "prompt_id": "a", "prompt": "", "scored": len(known), "state": state}
    return GroupScores.model_validate({**of, "completions": completions})
