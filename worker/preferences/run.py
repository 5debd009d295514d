"""A run on preference pairs, put together: its pairs, its model, and the loop over them."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from peft import PeftModel

from backend.contract.grpo import GrpoConfig
from backend.contract.model import Model
from backend.contract.preference import DpoConfig, RewardModelConfig, SampledPairs
from backend.contract.records import Progress
from backend.contract.reward import Rewards
from backend.contract.training import Budget, Sampling
from worker.errors import Interrupted, RunFailure
from worker.evaluation import evaluate
from worker.groups import GroupSampler
from worker.policy.classifier import RewardModel, load_reward_model, new_reward_model
from worker.policy.loading import load_policy, load_reader
from worker.policy.policy import Policy
from worker.policy.sources import Pretrained, commit_of, pinned
from worker.preferences.objective import BradleyTerry, DirectPreference, Objective
from worker.preferences.pairs import Pairs, load_pairs, sample_pairs, save_pairs, stored_pairs
from worker.preferences.trainer import PairTrainer
from worker.reporter import Channels, Ending, Place
from worker.rewards.scoring import RewardScorer
from worker.rollout.sampler import NativeEngine
from worker.tasks.fitting import Reader, fit
from worker.tasks.items import Items
from worker.tasks.loading import load_items

log = logging.getLogger(__name__)

PAIRS_FILE = "pairs.jsonl"


@dataclass(frozen=True)
class Means:
    """What a worker gives such a run."""

    source: Pretrained  # the weights at step 0
    device: torch.device
    fetch_upload: Callable[[int], bytes]
    scorer: Callable[[Rewards], AbstractContextManager[RewardScorer]]


def train_on_pairs(config: RewardModelConfig | DpoConfig, means: Means, place: Place, channels: Channels) -> Ending:
    """Make or find the pairs, load the model, train."""
    channels.load("model", config.budget.steps)
    means = replace(means, source=pinned(means.source, place.model_commit))
    place = replace(place, model_commit=commit_of(means.source))
    if isinstance(config, DpoConfig) and isinstance(config.pairs, SampledPairs) and config.budget.eval_every:
        channels.load("rewards", config.budget.steps)
        # One for the choice of the pairs and for the evaluations: a file of a person's own that is edited meanwhile is read once.
        with means.scorer(config.pairs.rewards) as scorer:
            pairs = _pairs(config, means, place, channels, scorer)
            return _train_evaluated(config, config.pairs, pairs, scorer, means, place, channels)
    pairs = _pairs(config, means, place, channels)
    place = replace(place, reward_texts=pairs.reward_texts)
    channels.load("model", config.budget.steps)
    objective: Objective
    if isinstance(config, RewardModelConfig):
        objective = BradleyTerry(_reward_model(config, means, place))
    else:
        objective = DirectPreference(_policy(config, means, place), beta=config.beta)
    return PairTrainer(config, objective, pairs, place, channels).run()


def _train_evaluated(
    config: DpoConfig,
    wanted: SampledPairs,
    pairs: Pairs,
    scorer: RewardScorer,
    means: Means,
    place: Place,
    channels: Channels,
) -> Ending:
    """Train a policy that is evaluated as in the GRPO run on the same task: what the two reach is compared, draw for draw."""
    place = replace(place, reward_texts=pairs.reward_texts)
    channels.load("model", config.budget.steps)
    policy, budget = _policy(config, means, place), config.budget
    examined = GrpoConfig(
        model=config.model,
        task=wanted.task,
        rewards=wanted.rewards,
        sampling=Sampling(**wanted.decoding.model_dump()),
        optimizer=config.optimizer,
        budget=Budget(
            steps=budget.steps, eval_items=budget.eval_items, eval_samples=budget.eval_samples, seed=budget.seed
        ),
    )
    items = _items(config, wanted, means, channels).held_out[: budget.eval_items]
    total = len(items) * (budget.eval_samples + 1)
    engine = NativeEngine(policy)
    return PairTrainer(
        config,
        DirectPreference(policy, beta=config.beta),
        pairs,
        place,
        channels,
        lambda show: evaluate(GroupSampler(policy, engine, scorer), items, examined, lambda done: show(done, total)),
        engine.make_room,
    ).run()


def _pairs(
    config: RewardModelConfig | DpoConfig,
    means: Means,
    place: Place,
    channels: Channels,
    scorer: RewardScorer | None = None,
) -> Pairs:
    """The pairs. Raises RunFailure if there are too few."""
    if isinstance(config.pairs, SampledPairs):
        pairs = _sampled(config, config.pairs, means, place, channels, scorer)
    else:
        channels.load("pairs", config.budget.steps)
        pairs = load_pairs(config.pairs, fetch_upload=means.fetch_upload)
    if not pairs.train or (config.budget.eval_every and not pairs.held_out):
        raise RunFailure(
            "too_few_pairs",
            f"There are {len(pairs.train)} pairs to train on and {len(pairs.held_out)} held out, and both are needed; "
            f"{pairs.undecided:,} gave none, since nothing in them was better than anything else. Use more or other prompts, "
            "larger groups, or rewards that tell completions apart.",
        )
    return pairs


def _sampled(
    config: RewardModelConfig | DpoConfig,
    wanted: SampledPairs,
    means: Means,
    place: Place,
    channels: Channels,
    scorer: RewardScorer | None,
) -> Pairs:
    """Sampled once, by the weights at step 0: a later attempt finds them in the run's folder.

    They are sampled again if `scorer`, which evaluates, has other files of a person's own than those that chose them: what scores
    a run is one text. (What an attempt may score with is the caller's to check.)
    """
    path, origin = place.folder / PAIRS_FILE, config.model_dump_json(include={"model", "pairs", "budget"})
    if place.attempt > 1:
        place.store.find(path, channels.fetching(config.budget.steps))
    stored = stored_pairs(path, origin=origin) if place.attempt > 1 else None
    if stored is not None and (scorer is None or stored.reward_texts == scorer.load_own()):
        return stored
    channels.load("task", config.budget.steps)
    items = _items(config, wanted, means, channels)
    channels.load("model", config.budget.steps)
    policy = load_policy(Model(source=config.model.source, dtype=config.model.dtype), means.source, means.device)
    channels.load("rewards", config.budget.steps)

    def show(done: int, total: int) -> None:
        if channels.shutting_down():
            raise Interrupted
        channels.show(Progress(total_steps=config.budget.steps, phase="pairs", done=done, total=total))

    with means.scorer(wanted.rewards) if scorer is None else nullcontext(scorer) as chooser:
        texts = chooser.load_own()
        sampler = GroupSampler(policy, NativeEngine(policy), chooser)
        pairs = sample_pairs(wanted, sampler, items, seed=config.budget.seed, on_progress=show)
        pairs = replace(pairs, reward_texts=texts)
        chooser.take_metrics()  # what judges cost here would be counted with the first evaluation
    for remark in policy.remarks:
        log.warning("run %s: %s", place.run_id, remark)
    save_pairs(path, pairs, origin=origin)
    place.store.share(path, channels.fetching(config.budget.steps))
    return pairs


def _items(config: RewardModelConfig | DpoConfig, wanted: SampledPairs, means: Means, channels: Channels) -> Items:
    """The prompts that the model can be asked."""
    items, reader = load_items(wanted.task, fetch_upload=means.fetch_upload), Reader.of(*load_reader(means.source))
    return fit(items, wanted.task, reader, wanted.decoding.max_new_tokens, channels.fetching(config.budget.steps))[0]


def _policy(config: DpoConfig, means: Means, place: Place) -> Policy:
    resume = None if place.resume is None else place.resume / "model"
    return load_policy(config.model, means.source, means.device, resume=resume, reference=True, seed=config.budget.seed)


def _reward_model(config: RewardModelConfig, means: Means, place: Place) -> RewardModel:
    device, dtype, lora = means.device, config.model.dtype, config.model.lora
    if place.resume is None:
        model = new_reward_model(means.source, device, dtype, seed=config.budget.seed, lora=lora)
    else:
        saved = Pretrained(str(place.resume / "model"), base=None if lora is None else means.source)
        model = load_reward_model(saved, device, dtype, trainable=True)
    if config.model.gradient_checkpointing:
        if isinstance(model.model, PeftModel):
            model.model.enable_input_require_grads()
        model.model.gradient_checkpointing_enable({"use_reentrant": False})
    return model
