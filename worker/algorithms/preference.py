"""Losses of preference pairs: N pairs of a chosen and a rejected completion, each array of shape (N,)."""

from array_api_compat import array_namespace

from worker.algorithms.arrays import Array


def preference_margin(
    chosen_logprob_N: Array,
    rejected_logprob_N: Array,
    chosen_reference_N: Array,
    rejected_reference_N: Array,
    *,
    beta: float,
) -> Array:
    """beta [(lp_w - ref_w) - (lp_l - ref_l)], of log-probs of whole completions (DPO, arXiv:2305.18290, equation 7)."""
    return beta * ((chosen_logprob_N - chosen_reference_N) - (rejected_logprob_N - rejected_reference_N))


def dpo_loss(margin_N: Array) -> Array:
    """-log sigmoid(margin): log 2 at the reference, towards 0 as the chosen completion pulls ahead."""
    xp = array_namespace(margin_N)
    return xp.logaddexp(xp.zeros_like(margin_N), -margin_N)  # exact far out on either side


def bradley_terry_loss(chosen_reward_N: Array, rejected_reward_N: Array) -> Array:
    """-log P(chosen beats rejected) with P = sigmoid(r_w - r_l) (Bradley and Terry, 1952; InstructGPT, equation 1)."""
    return dpo_loss(chosen_reward_N - rejected_reward_N)
