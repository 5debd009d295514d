"""What a sample says about the run that was not started yet, in words. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

from backend.contract.base import Json
from backend.contract.groups import CompletionData, Group, GroupState
from dashboard.algorithm.estimators import stored_estimator
from dashboard.charts.dead_forecast import LITTLE, in_percent
from dashboard.forecast import TOLD_APART, Forecast, is_right
from dashboard.format import counted, percent
from dashboard.stored import number_at

LARGEST = 16


def summary(groups: Sequence[Group], config: Mapping[str, Json], threshold: float | None = None) -> str:
    """41 of 64 completions right (64 %) · 3 groups live, 1 dead."""
    completions = [one for group in groups for one in group.completions]
    judged = [right for one in completions if (right := is_right(one, config, threshold)) is not None]
    parts = (
        [f"{sum(judged)} of {counted(len(judged), 'completion')} right ({percent(sum(judged) / len(judged))})"]
        if judged
        else []
    )
    states = Counter(group.state for group in groups)
    dead = "dead" if stored_estimator(config).centred else "with equal rewards"
    words: dict[GroupState, str] = {"live": "live", "zero_variance": dead, "unscored": "unscored"}
    found = [f"{states[state]} {word}" for state, word in words.items() if states[state]]
    cut = sum(one.finish_reason == "length" for one in completions)
    parts.append(f"{counted(len(groups), 'group')}: {', '.join(found)}")
    parts += [f"{cut} of {len(completions)} cut at the token limit"] if cut else []
    return " · ".join(parts)


def conclusion(found: Forecast, config: Mapping[str, Json], own_size: int) -> str:
    """What to expect at the form's group size, and what another would bring."""
    if found.rate in (0.0, 1.0):
        return _all_alike(found)
    own = found.at(own_size)
    if own is None:
        return (
            f"Groups of {own_size} are larger than what was sampled: sample at least {own_size} completions a prompt to forecast them."
            if own_size >= 2
            else f"A group of {own_size} has no siblings to compare with."
        )
    larger = found.at(min(LARGEST, 2 * own_size))
    more = (
        f"; {larger.group_size} would bring {_share(larger.right_or_wrong)}"
        if larger is not None and larger.group_size > own_size
        else ""
    )
    dead = "dead (all right or all wrong)" if stored_estimator(config).centred else "all right or all wrong"
    about = "about " if own.right_or_wrong >= LITTLE else ""
    sentence = f"At group size {own_size} {about}{_share(own.right_or_wrong)} of the groups will be {dead}{more}."
    if own.right_or_wrong - own.equal > TOLD_APART:
        sentence += f" Other rewards tell completions of some of them apart: {_share(own.equal)} will have one reward throughout."
    elif own.equal - own.right_or_wrong > TOLD_APART:
        sentence += f" Some that are partly right have equal rewards all the same: {_share(own.equal)} will have one reward throughout."
    return sentence


def _share(share: float) -> str:
    return in_percent(share).replace("<", "less than")


def _all_alike(found: Forecast) -> str:
    if found.rate == 1.0:
        return "Every completion was right: these prompts have nothing to teach this model. Harder ones would."
    return (
        "No completion was right: there is nothing to reinforce. Easier prompts, another model to start from, or a reward for a part "
        "of the way would give a signal."
    )


def underestimate(found: Forecast, own_size: int) -> str:
    """Why the well-known formula is not used, with this sample's numbers."""
    share = found.at(own_size)
    numbers = (
        f" Here, at G = {own_size}: the line says {in_percent(share.at_mean_rate)}, the bar {in_percent(share.right_or_wrong)}."
        if share
        else ""
    )
    return (
        "The bars are the mean over prompts of (C(c, G) + C(n − c, G)) / C(n, G), with c of a prompt's n completions right: the share "
        "of dead ones among all groups of G that the sample holds, which is right on average. The dashed line is p^G + (1 − p)^G at "
        f"the mean success rate. Where prompts differ it is too low, since easy and hard ones are dead more often.{numbers}"
    )


def unscored(completions: Sequence[CompletionData], config: Mapping[str, Json]) -> tuple[str, str] | None:
    """Which rewards failed on how many completions, and what a run would do; and the first traceback. None where all are scored."""
    failed = [score for one in completions for score in one.rewards if score.error]
    if not failed:
        return None
    count = Counter(score.name for score in failed)
    share = sum(one.reward is None for one in completions) / len(completions)
    allowed = number_at(config, "rewards.max_unscored", 0.2)
    names = ", ".join(f"{name} on {times}" for name, times in count.most_common())
    trace = failed[0].error or ""
    fate = "and this one would" if share > allowed else "which this one would not"
    return (
        f"Of {counted(len(completions), 'completion')} these rewards failed: {names}. The first: {_last_line(trace)}. "
        f"A run fails where more than {percent(allowed)} stay unscored, {fate}."
    ), trace


def _last_line(trace: str) -> str:
    """What a traceback ends with: the error itself."""
    return next((line.strip().rstrip(".") for line in reversed(trace.splitlines()) if line.strip()), "no reason")
