"""What each metric means: its title, the format of its numbers, which direction is better, and what healthy looks like."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from backend.contract.records import PHASES

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Meaning:
    """A metric for people. `axis` is the number format of its axis (d3); `unit` is empty if the numbers have none."""

    title: str
    help: str
    better: Better | None = None
    axis: str = "~g"
    unit: str = ""


_SHARE = "~%"
_MEANINGS: dict[str, Meaning] = {
    "reward": Meaning(
        "Reward",
        "Mean total reward of the step's completions. Healthy: it rises, then levels off. It jumps up and down because each "
        "step draws other prompts; follow the smooth line.",
        "higher",
    ),
    "reward_std": Meaning(
        "Reward std over the batch", "Standard deviation of the reward over all completions of the step."
    ),
    "group_reward_std": Meaning(
        "Spread inside groups",
        "Mean of the groups' reward standard deviations: how much a group's completions differ in reward, which is all that "
        "GRPO learns from. Healthy: clearly above 0 while the reward still rises; it falls when most prompts are solved.",
    ),
    "frac_reward_zero_std": Meaning(
        "Dead groups",
        "Share of groups in which every completion got the same reward, so that all advantages are 0 and the rewards teach "
        "nothing. Healthy: below half. If it is higher, the prompts are too easy or too hard, or the groups too small.",
        "lower",
        _SHARE,
    ),
    "frac_filtered": Meaning(
        "Filtered groups",
        "Share of all sampled groups that were dead, and so replaced by groups of further prompts. It rises as the task is "
        "solved; near 1, nearly all sampling is wasted: harder prompts would teach more.",
        "lower",
        _SHARE,
    ),
    "curriculum/seen": Meaning(
        "Prompts seen by the curriculum",
        "Share of the prompts to train on that were sampled and scored at least once. It rises fast at first; a curriculum looks at a "
        "prompt before it can prefer it.",
        None,
        _SHARE,
    ),
    "curriculum/success": Meaning(
        "Success of the seen prompts",
        "Mean of the success rates that the curriculum believes of the prompts that it has seen: of each prompt's groups the newer ones count more.",
        None,
        _SHARE,
    ),
    "frac_unscored": Meaning(
        "Unscored completions",
        "Share of completions that a reward function could not score. Healthy: 0.",
        "lower",
        _SHARE,
    ),
    "kl": Meaning(
        "KL to the reference",
        "How far the policy has moved from the reference, estimated from the sampled tokens: the mean over all of "
        "them. The penalty in the loss is β times the KL aggregated like the loss, which may differ from this mean. Healthy: a slow rise. A "
        "sudden jump often comes before the texts break down: lower the learning rate or raise beta.",
        unit="nats per token",
    ),
    "entropy": Meaning(
        "Entropy",
        "How uncertain the policy is at each token: the mean over all tokens, at the temperature that Algorithm › Log-probs uses; the sampler's own entropy is lower if "
        "top-k, top-p or a lower sampling temperature narrows its choice. Healthy: a slow fall. Near 0, all completions of a group are "
        "alike and the groups die; a rise to large values means noise.",
        unit="nats per token",
    ),
    "completions/mean_length": Meaning(
        "Completion length",
        "Mean number of tokens in a completion. Healthy: it settles. A steady drift to the limit without a better reward means "
        "that length itself is being rewarded.",
        axis="~s",
        unit="tokens",
    ),
    "completions/min_length": Meaning(
        "Shortest completion", "Tokens in the step's shortest completion.", axis="~s", unit="tokens"
    ),
    "completions/max_length": Meaning(
        "Longest completion", "Tokens in the step's longest completion.", axis="~s", unit="tokens"
    ),
    "completions/clipped_ratio": Meaning(
        "Truncated completions",
        "Share of completions that were cut at the token limit before they ended. Healthy: near 0; above a quarter, raise max "
        "new tokens.",
        "lower",
        _SHARE,
    ),
    "clip_ratio/low_mean": Meaning(
        "Clipped below",
        "Share of tokens whose ratio fell below 1 − ε with a negative advantage. Exactly 0 with one update per batch.",
        axis=_SHARE,
    ),
    "clip_ratio/high_mean": Meaning(
        "Clipped above",
        "Share of tokens whose ratio rose above 1 + ε with a positive advantage. Exactly 0 with one update per batch.",
        axis=_SHARE,
    ),
    "ratio_mean": Meaning(
        "Probability ratio", "Mean of new over old token probability. Exactly 1 with one update per batch."
    ),
    "loss": Meaning(
        "Loss", "The objective that the optimizer minimises. Its value says little: judge a run by its reward."
    ),
    "loss/value_avg": Meaning(
        "Critic's error",
        "Mean squared difference between the returns that the critic expects and the actual ones. Healthy: it falls, then follows the reward.",
        "lower",
    ),
    "explained_variance": Meaning(
        "Critic's explained variance",
        "How much of the differences between returns the critic foresaw: 1 is all, 0 none, below 0 worse than a constant. "
        "Healthy: it rises from 0; when nearly every answer is right there is little left to foresee.",
        "higher",
    ),
    "rewards/margins": Meaning(
        "Preference margin",
        "How much further the policy moved from the reference towards the chosen completions than towards the rejected ones, "
        "times β. Healthy: above 0 and growing.",
        "higher",
    ),
    "rewards/accuracies": Meaning(
        "Pairs in the right order", "Share of pairs with a margin above 0. Healthy: above a half.", "higher", _SHARE
    ),
    "rewards/chosen": Meaning(
        "Chosen, moved from the reference",
        "β × (log-prob − the reference's) of whole completions. Healthy: the chosen ones above the rejected ones; both may fall.",
        "higher",
    ),
    "rewards/rejected": Meaning(
        "Rejected, moved from the reference", "β × (log-prob − the reference's) of the rejected completions.", "lower"
    ),
    "logps/chosen": Meaning(
        "Log-prob of the chosen",
        "Sum over the completion's tokens. DPO trains the difference alone: both falling is common. Far down, the "
        "policy forgets how to answer.",
        unit="nats",
    ),
    "logps/rejected": Meaning("Log-prob of the rejected", "Sum over the completion's tokens.", unit="nats"),
    "accuracy": Meaning(
        "Pairs scored in the right order",
        "Share of the step's pairs whose chosen completion scores higher. Healthy: from a half towards 1.",
        "higher",
        _SHARE,
    ),
    "margin": Meaning(
        "Margin",
        "How much higher the chosen completions score. Healthy: it grows, also after the order is right.",
        "higher",
    ),
    "mean_reward": Meaning(
        "Mean score",
        "Mean score of all completions. Only differences are trained: its level means nothing, and it may drift.",
    ),
    "eval/accuracy": Meaning(
        "Held-out pairs in the right order",
        "Share of held-out pairs in the right order; a tie counts half. Healthy: close to that of training.",
        "higher",
        _SHARE,
    ),
    "eval/margin": Meaning("Held-out margin", "Mean margin of the held-out pairs.", "higher"),
    "eval/loss": Meaning(
        "Held-out loss",
        "Loss of the held-out pairs. Healthy: it falls; if it rises again, the pairs are being memorised.",
        "lower",
    ),
    "grad_norm": Meaning(
        "Gradient norm",
        "Length of the gradient before it is clipped. Healthy: the same order of magnitude throughout. 0 means that nothing "
        "was learned in that step, for example because every group was dead.",
    ),
    "learning_rate": Meaning("Learning rate", "As warm-up and schedule set it at each step.", axis="~e"),
    "num_tokens": Meaning("Tokens so far", "Prompt and completion tokens processed since the start.", axis="~s"),
    "num_samples": Meaning(
        "Completions so far",
        "Completions sampled since the start, including those that dynamic sampling filtered.",
        axis="~s",
    ),
    "step_time": Meaning("Time per step", "Seconds of wall time.", "lower", unit="seconds"),
    "tokens_per_second": Meaning(
        "Tokens per second",
        "Sampled tokens for each second of sampling. Healthy: steady; it falls as completions grow longer.",
        "higher",
        "~s",
    ),
    "peak_memory": Meaning(
        "Peak memory",
        "The most memory that the worker's process has held so far, including earlier runs. Healthy: level after the first steps, "
        "and well below what the worker's device has.",
        "lower",
        unit="GiB",
    ),
    "sampling_logprob_diff": Meaning(
        "Sampling mismatch",
        "Mean difference between the log-probs of sampling and of training. Healthy: tiny (rounding); more means that the two "
        "compute different distributions.",
        "lower",
    ),
    "eval/pass@1": Meaning(
        "Held-out pass@1",
        "Share of right answers on held-out prompts, completions sampled as in training. Healthy: it rises with the reward; if "
        "only the reward rises, the run learns something other than being right.",
        "higher",
        _SHARE,
    ),
    "eval/greedy_pass@1": Meaning(
        "Held-out pass@1, greedy", "Share of right answers when the likeliest token is always taken.", "higher", _SHARE
    ),
    "eval/scored_items": Meaning(
        "Held-out prompts, all samples scored",
        "With several samples per prompt, pass@k is computed over these prompts only.",
        axis="~s",
    ),
    "eval/reward": Meaning("Held-out reward", "Mean reward on held-out prompts.", "higher"),
    "eval/mean_length": Meaning(
        "Held-out length", "Mean number of tokens on held-out prompts.", axis="~s", unit="tokens"
    ),
}


def meaning(name: str) -> Meaning:
    """The meaning of a metric; for rewards, pass@k and phases it follows from the form of the name."""
    if name in _MEANINGS:
        return _MEANINGS[name]
    first, _, rest = name.partition("/")
    if first == "rewards" and rest.endswith(("/mean", "/std")):
        reward, _, statistic = rest.rpartition("/")
        better: Better | None = "higher" if statistic == "mean" else None
        return Meaning(f"Reward {reward}, {statistic}", "This reward function alone, before its weight.", better)
    if first == "eval" and "pass@" in rest:
        return Meaning(
            f"Held-out {rest}",
            "Share of held-out prompts with a right answer among their samples; only prompts whose samples were all scored are counted.",
            "higher",
            _SHARE,
        )
    if first == "time":
        title = f"Time for {PHASES.get(rest, rest)}"
        return Meaning(title, "Seconds of this phase in each step.", "lower", unit="seconds")
    if first == "rank":
        rank, _, figure = rest.partition("/")
        return Meaning(f"Process {rank}, {figure} a step", "What this process alone did in each step.", unit=figure)
    return Meaning(name, "A metric of the trainer.")


def in_order(names: Iterable[str]) -> list[str]:
    """Metric names, the most important first."""
    known = list(_MEANINGS)
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else len(known), name))
