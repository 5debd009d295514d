"""A whole training without a backend, and who hears what it tells."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from pydantic import BaseModel

from backend.contract.grpo import GrpoConfig
from backend.contract.protocol import CheckpointReport, LogLine, Report
from backend.contract.records import Progress
from worker.policy.loading import load_policy
from worker.policy.policy import Policy
from worker.policy.sources import TINY_ARITHMETIC, resolve
from worker.ranks.ranks import ALONE, Ranks
from worker.reporter import Channels, Ending, Place
from worker.rewards.scoring import RewardScorer
from worker.rollout.engine import Engine, quiet
from worker.rollout.sampler import NativeEngine
from worker.store import Store
from worker.tasks.loading import load_items
from worker.trainer import Trainer


class Killed(Exception):
    """Stands for the end of the process."""


class Witness:
    """Keeps what a trainer sends, and can end it like a kill at a given report."""

    def __init__(self, kill_at_step: int | None = None) -> None:
        self.messages: list[tuple[str, BaseModel]] = []
        self.requested = "nothing"
        self._kill_at = kill_at_step

    def send(self, kind: str, message: BaseModel) -> None:
        if isinstance(message, Report) and (message.groups or message.pairs) and message.step == self._kill_at:
            raise Killed
        self.messages.append((kind, message))

    @property
    def steps(self) -> dict[int, Report]:
        return {m.step: m for _, m in self.messages if isinstance(m, Report) and m.groups and m.step is not None}

    @property
    def said(self) -> list[LogLine]:
        return [line for _, m in self.messages if isinstance(m, Report) for line in m.logs]

    @property
    def checkpoints(self) -> list[CheckpointReport]:
        return [m for _, m in self.messages if isinstance(m, CheckpointReport)]


def configured(**changes: object) -> GrpoConfig:
    return GrpoConfig.model_validate(
        {
            "sampling": {"prompts_per_step": 3, "group_size": 4},
            "optimizer": {"learning_rate": 1e-3},
            "budget": {"steps": 6, "checkpoint_every": 3, "eval_every": 3, "eval_items": 5, "eval_samples": 2},
            "telemetry": {"probe_prompts": 0},
        }
        | changes
    )


def train(
    config: GrpoConfig,
    store: Path,
    witness: Witness,
    *,
    resume: Path | None = None,
    attempt: int = 1,
    shown: list[Progress] | None = None,
    shut_down_when: Callable[[], bool] = lambda: False,
    rows: Sequence[dict[str, str]] = (),
    fast: bool = True,
    ranks: Ranks = ALONE,
    engine: Callable[[Policy], Engine] = NativeEngine,
    remarks: Sequence[str] = (),
) -> tuple[Ending, Policy]:
    source = resolve(TINY_ARITHMETIC, converted=store, root=None, checkpoint=None)
    weights = resume / "model" if resume else None
    policy = load_policy(
        config.model, source, torch.device("cpu"), reference=True, resume=weights, fast=fast, ranks=ranks
    )
    policy.remarks += remarks
    place = Place(1, attempt, Store(store), "store", resume, "CPU", {})
    show, requested = (shown if shown is not None else []).append, lambda: witness.requested
    channels = Channels(witness.send, show, requested, quiet, shut_down_when)  # type: ignore[arg-type]
    with RewardScorer(config.rewards) as scorer:
        upload = "\n".join(map(json.dumps, rows)).encode()
        items = load_items(config.task, fetch_upload=lambda _: upload)
        trainer = Trainer(config, policy, engine(policy), items, scorer, place, channels)
        return trainer.run(), policy
