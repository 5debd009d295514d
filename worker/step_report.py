"""What a finished step reports: its metrics, under the names that TRL's GRPO trainer logs and our own beside them, its groups, and the tokens of some completions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backend.contract.groups import GroupReport
from backend.contract.grpo import GrpoConfig
from backend.contract.protocol import TraceTooLarge
from backend.contract.records import BY_RANK
from backend.contract.token_texts import TokenTexts
from worker.algorithms.advantages import GroupStatistics
from worker.credit import Credit, Values
from worker.group_records import filtered_reports, group_reports, known_mean
from worker.groups import Scored
from worker.learner import Update
from worker.reporter import StepContent
from worker.rewards.scoring import Scores
from worker.rollout.engine import Rollout
from worker.token_record import TokenRecord
from worker.traces import trace_file, traced_rows


def step_metrics(
    scored: Scored, filtered: Scored | None, tokens: TokenRecord, credit: Credit, update: Update
) -> dict[str, float]:
    """Metrics by name; NaN where there was nothing to measure. Of the batch that was trained on, but for `frac_filtered`.

    `reward_std` is the std over the whole batch and `group_reward_std` the mean of the groups' stds: the field uses one
    word for both. Both are population stds. `frac_reward_zero_std` counts groups with two scored completions or more, and
    looks at the task's rewards: a KL penalty in the reward differs between any two completions, and teaches no task.
    """
    rollout, rewards_P_G = scored.rollout, credit.rewards_P_G
    scored_R = rewards_P_G[~np.isnan(rewards_P_G)]
    lengths_R = np.array([len(completion.ids) for completion in rollout.completions_R])
    groups = len(rollout.items_P)
    gone = 0 if filtered is None else len(filtered.rollout.items_P)
    return {
        "reward": known_mean(rewards_P_G),
        "reward_std": float(scored_R.std()) if len(scored_R) else math.nan,
        **_spread(rewards_P_G, credit.statistics),
        **_components(scored.scores),
        **_by_source(scored, credit),
        "frac_unscored": float(np.isnan(rewards_P_G).mean()),
        "completions/mean_length": float(lengths_R.mean()),
        "completions/min_length": float(lengths_R.min()),
        "completions/max_length": float(lengths_R.max()),
        "completions/clipped_ratio": float(np.mean([one.finish_reason == "length" for one in rollout.completions_R])),
        "sampling_logprob_diff": _mismatch(rollout, tokens),
        **_looked_at(tokens, credit),
        **({"frac_filtered": gone / (gone + groups)} if gone else {}),
        **update.metrics,
    }


def by_rank(**figures: Sequence[float]) -> dict[str, float]:
    """Figures of each process, in the order of the ranks, as `rank/<n>/<name>`."""
    return {f"{BY_RANK}{rank}/{name}": value for name, values in figures.items() for rank, value in enumerate(values)}


def _looked_at(tokens: TokenRecord, credit: Credit) -> dict[str, float]:
    """What was measured before the update: the KL where it is in the reward, and how good the critic is."""
    metrics = {} if credit.penalty_R is None else {"kl": tokens.mean("kl")}
    if credit.returns_R_T is not None:
        returns_R_T = credit.returns_R_T.numpy()
        known_R_T = tokens.mask.numpy() & ~np.isnan(returns_R_T)
        returns, values = returns_R_T[known_R_T], tokens["value"].numpy()[known_R_T].astype(np.float64)
        variance = float(returns.var()) if len(returns) else 0.0
        error = float((returns - values).var()) if len(returns) else 0.0
        metrics["explained_variance"] = 1 - error / variance if variance > 0 else math.nan
    return metrics


def _spread(rewards_P_G: Values, groups: GroupStatistics) -> dict[str, float]:
    stds_P = np.nanstd(rewards_P_G[groups.scored_P >= 2], axis=-1)
    dead_P = ~groups.live_P[groups.scored_P >= 2]
    return {
        "group_reward_std": float(stds_P.mean()) if len(stds_P) else math.nan,
        "frac_reward_zero_std": float(dead_P.mean()) if len(dead_P) else math.nan,
    }


def _components(scores: Scores) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for column in zip(*scores.components, strict=True):
        values = [score.raw for score in column if score.raw is not None]
        name = column[0].name
        metrics[f"rewards/{name}/mean"] = float(np.mean(values)) if values else math.nan
        metrics[f"rewards/{name}/std"] = float(np.std(values)) if values else math.nan
    return metrics


def _by_source(scored: Scored, credit: Credit) -> dict[str, float]:
    """`source/<name>/reward` and `source/<name>/frac_reward_zero_std` of each source that items name."""
    sources = [item.source for item in scored.rollout.items_P]
    metrics: dict[str, float] = {}
    for source in sorted(set(sources) - {""}):
        of_source_P = np.array([one == source for one in sources])
        enough_P = of_source_P & (credit.statistics.scored_P >= 2)
        metrics[f"source/{source:.150}/reward"] = known_mean(credit.rewards_P_G[of_source_P])
        dead_P = ~credit.statistics.live_P[enough_P]
        metrics[f"source/{source:.150}/frac_reward_zero_std"] = float(dead_P.mean()) if len(dead_P) else math.nan
    return metrics


def _mismatch(rollout: Rollout, tokens: TokenRecord) -> float:
    """Mean |sampler's log-prob − training path's| over the tokens that went through it: cached decoding rounds differently."""
    known_R = tokens.known("old_logprob").tolist()
    sampled = [one.logprobs for one, known in zip(rollout.completions_R, known_R, strict=True) if known]
    if not sampled:
        return math.nan
    return float(np.abs(np.concatenate(sampled) - tokens.flat("old_logprob")).mean())


@dataclass(frozen=True)
class FinishedStep:
    """Everything that is reported of a step is made from this. It no longer changes, so it can be reported during the next step."""

    step: int
    scored: Scored
    filtered: Scored | None
    tokens: TokenRecord
    credit: Credit
    update: Update
    measured: Mapping[str, float]  # what the loop measured itself: times, costs
    probes: Sequence[GroupReport] = ()  # sampled before the update


def describe(finished: FinishedStep, config: GrpoConfig, texts: TokenTexts) -> StepContent:
    """The step as it is reported: the groups that were trained on, then those taken out, then the probes."""
    scored, filtered, tokens, credit = finished.scored, finished.filtered, finished.tokens, finished.credit
    groups = group_reports(scored.rollout, scored.scores, credit, tokens, beta=config.algorithm.kl.beta)
    if filtered is not None:
        groups += filtered_reports(filtered, first_index=len(groups))
    groups += [
        probe.model_copy(update={"index": index}) for index, probe in enumerate(finished.probes, start=len(groups))
    ]
    metrics = step_metrics(scored, filtered, tokens, credit, finished.update)
    content = StepContent({**metrics, **finished.measured}, groups)
    rows = traced_rows(config.telemetry, finished.step, credit.rewards_P_G)
    try:
        content.trace = trace_file(rows, texts, scored.rollout, tokens)
    except TraceTooLarge as error:
        content.warnings.append(f"step {finished.step}: {error}, and are not kept; choose extremes, or smaller batches")
    return content
