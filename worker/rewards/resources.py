"""What a worker has for rewards: functions that its operator allowed, judges that it named, and loaded reward models."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from backend.contract.reward import Judge, LearnedReward, Python, Ranking, Rewards
from worker.errors import RunFailure
from worker.policy.classifier import RewardModel, load_reward_model
from worker.policy.sources import resolve
from worker.rewards.judge_endpoint import JudgeEndpoint
from worker.settings import Settings


class RewardUnavailable(RunFailure):
    """This worker does not have what a reward names."""


@dataclass(frozen=True)
class RewardResources:
    """Nothing by default: the built-in rewards need none of it.

    `functions` are the allowed names, `path` the folder that their modules lie in, `own` the folder of a person's own rewards;
    `models` are by the reward's name.
    """

    functions: frozenset[str] = frozenset()
    path: Path | None = None
    own: Path | None = None
    judges: Mapping[str, JudgeEndpoint] = field(default_factory=dict)
    judge_cache: Path | None = None
    models: Mapping[str, RewardModel] = field(default_factory=dict)

    def require(self, rewards: Rewards) -> None:
        """Raises RewardUnavailable for the first reward that names what is not here."""
        for reason in self._lacking(rewards):
            raise RewardUnavailable("reward_unavailable", reason)

    def _lacking(self, rewards: Rewards) -> Iterator[str]:
        for function in rewards.functions:
            match function:
                case Python() if function.file is not None and self.own is None:
                    yield f"The reward {function.name!r} names {function.file}, and this worker has no folder of rewards."
                case Python() if function.file is None and function.function not in self.functions:
                    yield (
                        f"The reward {function.name!r} names the function {function.function}, which this worker's operator has "
                        f"not allowed; add it to GROUPSCOPE_REWARD_FUNCTIONS (it has {_listed(self.functions)})."
                    )
                case Judge() | Ranking() if function.endpoint not in self.judges:
                    yield (
                        f"The reward {function.name!r} names the judge {function.endpoint!r}, which this worker's operator has "
                        f"not named; add it to GROUPSCOPE_JUDGES (it has {_listed(self.judges)})."
                    )
                case LearnedReward() if function.name not in self.models:
                    yield f"The reward model of the reward {function.name!r} was not loaded."


@contextmanager
def reward_resources(
    rewards: Rewards, settings: Settings, device: torch.device, dtype: str, checkpoints: Mapping[str, Path]
) -> Iterator[RewardResources]:
    """What the rewards name and this worker has, with reward models loaded on `device`; judges are closed at the end.

    `checkpoints` are the directories that sources `run:<id>@<step>` mean. Raises RunFailure if a model cannot be loaded.
    """

    def load(learned: LearnedReward) -> RewardModel:
        checkpoint, store = checkpoints.get(learned.source), settings.store
        source = resolve(
            learned.source, converted=settings.models, root=settings.model_root, checkpoint=checkpoint, store=store
        )
        return load_reward_model(source, device, dtype, label=learned.label)

    named = {judge.endpoint for judge in rewards.functions if isinstance(judge, Judge | Ranking)}
    with ExitStack() as stack:
        yield RewardResources(
            functions=frozenset(settings.reward_functions),
            path=settings.reward_path,
            own=settings.own_rewards,
            judges={
                name: stack.enter_context(closing(JudgeEndpoint(name, settings.judges[name])))
                for name in named & settings.judges.keys()
            },
            judge_cache=settings.judge_cache,
            models={learned.name: load(learned) for learned in rewards.functions if isinstance(learned, LearnedReward)},
        )


def _listed(names: Mapping[str, object] | frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"
