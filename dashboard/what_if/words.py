"""What the numbers of the what-if mean, in sentences; and what the KL penalty adds to a step's loss."""

import numpy as np

from dashboard.algorithm.recomputation import Own, Settings, StepArrays
from dashboard.format import number, scientific
from dashboard.wording import in_words
from worker.algorithms.objective import token_weights

# another trainer has rewards in float32, and divides by what may be a small std
ROUNDING, OF_SINGLE_PRECISION = 1e-9, 1e-4
CRITIC = (
    "The run's advantages come from a critic, token by token (GAE). Without its values they cannot be computed again, and other "
    "weights or another β leave them as they are: they are shown as stored, each the mean over a completion's tokens. Choose "
    "another estimator to see what the rewards alone would give."
)
NOTES = {
    "penalty": "normalize then sum compares reward functions, and the KL penalty in the reward is not one of them: it is left out here.",
    "gates": "normalize then sum takes each reward function by itself: the gates only decide which completions are scored.",
    "masked": "Completions cut at the token limit have an advantage, but this run left them out of the loss.",
    "critic": "The run itself had a critic: the stored advantages are GAE's, each the mean over a completion's tokens.",
}


def agreement(own: Own, chosen: Settings, difference: float | None) -> str:
    """Whether the run's own settings give the stored advantages; or that these are not the run's own."""
    if difference is None:
        return "The run stored no advantages for this step."
    if chosen.advantage.reads == "tokens":
        return CRITIC
    if chosen != own.settings:
        moved = (chosen.advantage, chosen.rewards) != (own.settings.advantage, own.settings.rewards)
        moved |= own.penalised and chosen.beta != own.settings.beta
        unmoved = "" if moved else ", and the advantages do not depend on what was changed"
        return (
            f"**What if:** these are not the run's own settings{unmoved}. Nothing is trained, and nothing that is stored "
            "changes."
        )
    if difference == 0:
        return "**The run's own settings.** Computed again, every advantage of the step equals the stored one, digit for digit."
    if difference <= (OF_SINGLE_PRECISION if own.recorded else ROUNDING):
        why = "their trainer has fewer digits" if own.recorded else "another version or kind of machine recorded them"
        return (
            f"**The run's own settings.** Computed again, the advantages equal the stored ones except for rounding "
            f"(at most {scientific(difference)}), because {why}."
        )
    return (
        f"**The run's own settings**, yet the stored advantages differ by up to {number(difference)}: they were not computed "
        "from the stored rewards by these settings."
    )


def notes(own: Own, chosen: Settings) -> list[str]:
    """What has to be known to read the numbers rightly."""
    summed = chosen.advantage.reads == "components"
    holds = {
        "penalty": summed and own.penalised,
        "gates": summed and chosen.rewards is not None and bool(chosen.rewards.gates),
        "masked": own.algorithm.truncated_completions == "mask",
        "critic": own.from_critic and chosen.advantage.reads != "tokens",
    }
    return [NOTES[name] for name, holding in holds.items() if holding]


def kl_in_loss(step: StepArrays, own: Own) -> float | None:
    """The KL that the loss takes β times: the sum over tokens of the token's weight in the loss times its KL, in nats.

    None where no KL was measured, or where it is in the reward. As of the last pass over the batch; a completion that passed
    through no model adds nothing.
    """
    kl_mean_P_G = step.of_completions(lambda one: one.kl_mean)
    if own.algorithm.kl.placement != "loss" or np.isnan(kl_mean_P_G).all():
        return None
    known_P_G = np.where(np.isnan(kl_mean_P_G), 0.0, kl_mean_P_G)
    trained_P_G = ~np.isnan(step.rewards_P_G)
    if own.algorithm.truncated_completions == "mask":
        trained_P_G &= step.of_completions(lambda one: one.finish_reason == "stop") == 1
    lengths_P_G = np.where(trained_P_G, step.of_completions(lambda one: one.token_count), 0.0)
    # Every aggregation is linear in a row's mask: one column with the row's length gives the sum over its tokens.
    weights_R_1 = token_weights(
        lengths_P_G.reshape(-1, 1),
        aggregation=own.algorithm.aggregation,
        max_new_tokens=own.max_new_tokens,
        group_size=lengths_P_G.shape[1],
    )
    return float((weights_R_1.reshape(lengths_P_G.shape) * known_P_G).sum())


def kl_per_token(step: StepArrays) -> float | None:
    """The mean KL over all tokens of the step that were measured: with one update per batch, the metric `kl`."""
    kl_mean_P_G = step.of_completions(lambda one: one.kl_mean)
    known_P_G = ~np.isnan(kl_mean_P_G)
    lengths_P_G = step.of_completions(lambda one: one.token_count)
    if not known_P_G.any():
        return None
    return float(np.average(kl_mean_P_G[known_P_G], weights=lengths_P_G[known_P_G]))


def kl_in_words(own: Own, chosen: Settings, kl: float | None, per_token: float | None = None) -> str:
    """What the KL penalty costs, at the run's β and at the chosen one: `kl` is aggregated as the loss is, not `per_token`."""
    before = own.settings.beta
    if own.recorded:
        return "**KL:** how this trainer's loss takes it was not recorded, and no other β can be tried."
    if not own.measured:
        return "**KL:** β was 0, so no KL was measured, and no other β can be tried."
    if own.penalised:
        return (
            f"**KL:** in the reward. From each completion's reward, β × the sum of its KL is subtracted, β = {number(chosen.beta)}"
            + ("." if chosen.beta == before else f" instead of {number(before)}.")
        )
    if kl is None:
        return "**KL:** not measured for this step."
    sentence = f"**KL:** the penalty's part of the step's loss is β × KL = {number(before)} × {number(kl)} = {number(before * kl)}"
    if chosen.beta != before:
        sentence += f"; with β = {number(chosen.beta)} it would be {number(chosen.beta * kl)}"
    if per_token is not None and number(per_token) != number(kl):
        mean = "its mean over all tokens"
        if own.algorithm.updates_per_batch == 1:  # of several updates the metric is the mean, and this is the last
            mean = f"the metric kl, {mean},"
        sentence += f". This KL is aggregated like the loss ({in_words(own.algorithm.aggregation)}); {mean} is {number(per_token)}"
    return f"{sentence}. The advantages do not depend on β."
