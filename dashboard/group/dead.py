"""Dead groups in words: how many, what all their completions got, and why they are dead."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from backend.contract.groups import GroupSummary, StepSummary
from backend.contract.preflight import dead_share_at_rate
from backend.contract.records import Run
from backend.contract.reward import BOUNDED, reward_bound
from dashboard.algorithm.estimators import UNKNOWN, stored_estimator
from dashboard.format import counted, number, percent
from dashboard.session import client, guard
from dashboard.stored import number_at, reward_functions, text_at
from dashboard.wording import in_words

MOST = 0.5  # from this share of dead groups on, the page says why
BY_CHANCE = 0.01  # below it, a step without a right answer is not an accident


def describe_states(run: Run, summary: StepSummary) -> str:
    """16 groups: 11 live · 5 dead (all correct) · and 2 probes, not trained on."""
    equal = "dead" if stored_estimator(run.config).centred else "with equal rewards, trained on all the same"
    words = {
        "live": "live",
        "zero_variance": equal,
        "unscored": "unscored",
        "filtered": "replaced by others (filtered)",
    }
    parts = [f"{summary.states[state]} {word}" for state, word in words.items() if summary.states.get(state)]
    dead = summary.states.get("zero_variance", 0)
    if dead:
        with guard():
            groups = client().groups(run.id, step=summary.step, state="zero_variance", limit=200).items
        parts = [f"{part} ({_what_they_got(run, groups)})" if part == f"{dead} {equal}" else part for part in parts]
    probes = summary.states.get("probe", 0)
    if probes:
        parts.append(f"and {counted(probes, 'probe')}, not trained on")
    return f"{counted(sum(summary.states.values()) - probes, 'group')}: {' · '.join(parts)}"


def _what_they_got(run: Run, groups: Sequence[GroupSummary]) -> str:
    """All correct, or: 3 all correct, 2 all at 0.1."""
    highest = reward_bound(run.config)
    kinds: Counter[str] = Counter()
    for group in groups:
        reward = next((reward for reward in group.rewards if reward is not None), None)
        right = reward is not None and highest is not None and abs(reward - highest) < 1e-6
        kinds["all correct" if right else f"all at {number(reward)}"] += 1
    if len(kinds) == 1:
        return next(iter(kinds))
    return ", ".join(f"{n} {kind}" for kind, n in kinds.most_common(4))


def why_dead(run: Run, summary: StepSummary) -> str | None:
    """A sentence with the formula and this step's numbers, where most groups are dead."""
    compared = sum(count for state, count in summary.states.items() if state in ("live", "zero_variance"))
    dead = summary.states.get("zero_variance", 0)
    group_size = int(number_at(run.config, "sampling.group_size", 0))
    if group_size == 1 or not compared or dead / compared < MOST:
        return None
    how = stored_estimator(run.config)
    if how.kind == UNKNOWN:
        return (
            f"In {dead} of {compared} groups all completions got the same reward, or advantages of 0. An estimator that compares completions "
            "with their group learns nothing from them."
        )
    if not how.centred:
        return (
            f"In {dead} of {compared} groups all completions got the same reward. With this estimator ({in_words(how.kind)}) they "
            "are trained on all the same, but they do not say which of their completions is better."
        )
    kl_in_reward = text_at(run.config, "algorithm.kl.placement") == "reward"
    then = ", so every advantage is 0 and their rewards teach nothing. "
    if kl_in_reward and number_at(run.config, "algorithm.kl.beta", 0.0) > 0:
        then = " from the task, and only the KL penalty in the reward tells them apart. "
    opening = f"{dead} of {compared} groups are dead: within each, all completions got the same reward{then}"
    success = _success_rates(run, summary.step, summary.step).get(summary.step)
    if success is None or not group_size:
        return f"{opening}Larger groups or prompts of middling difficulty are dead less often."
    if success == 0.0:
        return f"{opening}{_all_wrong(_success_rates(run, 0, summary.step), compared * group_size)}"
    if success == 1.0:
        return f"{opening}Every answer of this step is right; harder prompts would teach more."
    forecast = dead_share_at_rate(success, group_size)
    return (
        f"{opening}With success rate p = {number(success)} and G = {group_size} completions, a share p^G + (1 − p)^G = "
        f"{number(success)}^{group_size} + {number(1 - success)}^{group_size} = {percent(forecast)} is dead by chance alone; "
        f"more where some prompts are always solved and others never. With G = {2 * group_size} it would be "
        f"{percent(dead_share_at_rate(success, 2 * group_size))}."
    )


def _all_wrong(rates: Mapping[int, float], completions: int) -> str:
    """Whether the task is too hard, or the model could do it and has lost it. `rates` are those until the step that is all wrong."""
    last_right = max((step for step, rate in rates.items() if rate > 0), default=-1)
    before = {step: rate for step, rate in rates.items() if step <= last_right}
    usual = median(before.values()) if before else 0.0
    if (1 - usual) ** completions > BY_CHANCE:
        return "Every answer of this step is wrong; easier prompts, or a better model to start from, would teach more."
    best = max(before, key=lambda step: before[step])
    return (
        f"Every answer of this step is wrong, though {percent(before[best])} were right at step {best}: the prompts are not too "
        "hard, the model has lost what it could do. Look at KL and gradient norm (Overview) where the reward fell; a lower learning "
        "rate or a larger β keeps the model nearer to where it started."
    )


def _success_rates(run: Run, from_step: int, to_step: int) -> dict[int, float]:
    """By step, the mean of the correctness reward; where there is none, of the only reward function from 0 to 1."""
    functions = reward_functions(run.config)
    right = [function for function in functions if function.get("kind") == "correctness"] or functions
    if len(right) != 1 or right[0].get("kind") not in BOUNDED:
        return {}
    name = f"rewards/{text_at(right[0], 'name')}/mean"
    with guard():
        metrics = client().metrics(run.id, names=[name], from_step=from_step, to_step=to_step)
    series = metrics.series.get(name)
    known = zip(series.step, series.value, strict=True) if series is not None else ()
    return {step: rate for step, rate in known if rate is not None and 0 <= rate <= 1}
