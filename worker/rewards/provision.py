"""From what a worker's operator set to what a run's rewards need."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import torch

from backend.contract.reward import Judge, LearnedReward, Rewards
from worker.policy.classifier import RewardModel, load_reward_model
from worker.policy.sources import resolve
from worker.rewards.judge_endpoint import JudgeEndpoint
from worker.rewards.resources import RewardResources
from worker.settings import Settings


@contextmanager
def reward_resources(
    rewards: Rewards, settings: Settings, device: torch.device, dtype: str, checkpoints: Mapping[str, Path]
) -> Iterator[RewardResources]:
    """What the rewards name of what this worker has, with reward models loaded on `device`; judges are left at the end.

    `checkpoints` are the directories that sources `run:<id>@<step>` mean. Raises RunFailure where a model cannot be loaded.
    """
    named = {judge.endpoint for judge in rewards.functions if isinstance(judge, Judge)}
    with ExitStack() as stack:
        yield RewardResources(
            functions=frozenset(settings.reward_functions),
            path=settings.reward_path,
            judges={
                name: stack.enter_context(closing(JudgeEndpoint(name, settings.judges[name])))
                for name in named & settings.judges.keys()
            },
            judge_cache=settings.judge_cache,
            models={
                learned.name: _load(learned, settings, device, dtype, checkpoints.get(learned.source))
                for learned in rewards.functions
                if isinstance(learned, LearnedReward)
            },
        )


def _load(
    learned: LearnedReward, settings: Settings, device: torch.device, dtype: str, checkpoint: Path | None
) -> RewardModel:
    source = resolve(
        learned.source,
        converted=settings.models,
        root=settings.model_root,
        checkpoint=checkpoint,
        store=settings.checkpoints,
    )
    return load_reward_model(source, device, dtype, label=learned.label)
