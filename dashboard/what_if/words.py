"""What the numbers of the what-if mean, in sentences."""

from dashboard.algorithm.recomputation import Own, Settings
from dashboard.format import number, scientific

ROUNDING = 1e-9
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
        return "**The run's own settings.** Computed again, every advantage of the step is the stored one, digit for digit."
    if difference <= ROUNDING:
        return (
            f"**The run's own settings.** Computed again, the advantages are the stored ones up to rounding "
            f"({scientific(difference)}): they were recorded by another version, or on another kind of machine."
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
