"""The metrics that other trainers log under names of their own though they mean the same as one of ours (docs/metrics.md says which do not)."""

import re
from collections import defaultdict
from collections.abc import Mapping

SAME: Mapping[str, Mapping[str, str]] = {
    "verl": {
        "critic/score/mean": "reward",
        "response_length/mean": "completions/mean_length",
        "response_length/min": "completions/min_length",
        "response_length/max": "completions/max_length",
        "actor/loss": "loss",
        "actor/grad_norm": "grad_norm",
        "critic/vf_explained_var": "explained_variance",
        "perf/time_per_step": "step_time",
    },
    "SkyRL": {
        "reward/avg_raw_reward": "reward",
        "generate/avg_num_tokens": "completions/mean_length",
        "generate/min_num_tokens": "completions/min_length",
        "generate/max_num_tokens": "completions/max_length",
        "policy/grad_norm": "grad_norm",
        "policy/policy_lr": "learning_rate",
        "policy/rollout_train_logprobs_abs_diff_mean": "sampling_logprob_diff",
        "timing/step": "step_time",
        "eval/all/avg_score": "eval/reward",
    },
    "prime-rl": {
        "train/agg/effective/<agent>/reward/mean": "reward",
        "train/agg/effective/<agent>/is_truncated/mean": "completions/clipped_ratio",
        "train/agg/effective/<agent>/num_output_tokens/mean": "completions/mean_length",
        "train/agg/effective/<agent>/num_output_tokens/min": "completions/min_length",
        "train/agg/effective/<agent>/num_output_tokens/max": "completions/max_length",
        "entropy/all/mean": "entropy",
        "optim/grad_norm": "grad_norm",
        "optim/lr": "learning_rate",
        "time/step": "step_time",
    },
    "NeMo-RL": {
        "train/reward": "reward",
        "train/mean_gen_tokens_per_sample": "completions/mean_length",
        "train/max_gen_tokens_per_sample": "completions/max_length",
        "train/truncation_rate": "completions/clipped_ratio",
        "train/lr": "learning_rate",
        "timing/train/total_step_time": "step_time",
    },
    "tinker-cookbook": {"env/all/reward/total": "reward", "optim/lr": "learning_rate"},
    "OpenRLHF": {
        "train/reward": "reward",
        "train/response_length": "completions/mean_length",
        "train/actor_grad_norm": "grad_norm",
        "train/actor_lr": "learning_rate",
        "train/timing/step_total": "step_time",
    },
    "TRL, Unsloth": {"sampling/sampling_logp_difference/mean": "sampling_logprob_diff"},
}
"""By trainer, its name of a metric and ours."""
_OURS = {theirs: ours for names in SAME.values() for theirs, ours in names.items()}
_AGENT = re.compile("^(train/agg/effective)/[^/]+/((?:reward|is_truncated|num_output_tokens)/[a-z]+)$")


def in_our_names(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """What of the metrics has a name of ours, too, and is not there under it; of two that would be the same one, as of two agents, neither."""
    found: dict[str, list[float | None]] = defaultdict(list)
    for theirs, value in metrics.items():
        if ours := _OURS.get(_AGENT.sub(r"\1/<agent>/\2", theirs)):
            found[ours].append(value)
    return {ours: values[0] for ours, values in found.items() if len(values) == 1 and ours not in metrics}
