"""Rules about what the reward measures: whether it still says what is right, whether it still rises, and near ties that are blown up."""

import math
from statistics import fmean, median, quantiles, variance

from backend.contract.reward import reward_bound
from backend.health.facts import HIGHEST, HISTORY, RECENT, SOLVED, Facts, Stretch, correctness
from backend.health.rewards import CUT, DEAD, UNSCORED, fewer_cut, fewer_dead, nothing_is_rewarded, unpaid
from backend.health.rule import Finding, evidence, figure, percent, rate, rule, span

APART = 4.0  # standard errors: a difference that no run of thousands shows by chance
FELL = 0.02  # of a share of right answers: a smaller fall is not worth a warning
NEAR, TYPICAL_GROUPS, NEAR_SHARE = 0.05, 20, 0.1
FLAT_STEPS, FLAT = 30, 0.25  # and of the rewards' std
LAG = 4  # steps over which neighbouring rewards may go together
NORMAL = 1.96  # of the central 95 % of the normal distribution
ROUNDING = 1e-9  # a reward that never changes by more is not measured, but set
STILL = 1e-4  # nats per token: a policy as near as that to its reference has hardly moved


@rule(
    "The reward rises while fewer answers are right",
    f"a share of right answers, in training or on held-out prompts, fell by at least {percent(FELL)} and {APART:g} standard errors, while the "
    f"reward rose by at least {APART:g}. In training the last {RECENT} steps are compared with the first {RECENT} of the last {HISTORY}, and with "
    "the first of the run; on held-out prompts the latest evaluation with the best one before it, and the reward with that of the first steps",
    "reward",
    steps=2 * RECENT,
)
def truth_falls(facts: Facts) -> Finding | None:
    """The policy has found what the reward pays for beside the answer."""
    reward = facts.recent("reward")
    if (held_out := _fell_on_held_out(facts)) is not None and _moved(facts.began("reward"), reward) >= APART:
        before, now, step = held_out
        return _falls("pass@1 on held-out prompts", before, now, step, facts.began("reward"), reward, "eval/pass@1")
    for name in correctness(facts.config):
        metric = f"rewards/{name}/mean"
        for earlier in (_earlier, Facts.began):
            was, is_now, paid = earlier(facts, metric), facts.recent(metric), earlier(facts, "reward")
            if _moved(was, is_now) > -APART or _moved(paid, reward) < APART:
                continue
            before, now = was.mean or 0.0, is_now.mean or 0.0
            if before - now >= FELL:
                return _falls(f"the mean score of {name}", before, now, max(was.values), paid, reward, metric)
    return None


def _falls(what: str, before: float, now: float, step: int, paid: Stretch, reward: Stretch, metric: str) -> Finding:
    return Finding(
        measured=f"The mean reward went from {figure(paid.mean or 0.0)} ({span(paid.values)}) to {figure(reward.mean or 0.0)} "
        f"({span(reward.values)}), while {what} fell from {figure(before)} (step {step}) to {figure(now)}.",
        advice="The reward pays for something beside the right answer. Open the tab Paid for: it says which properties of completions go "
        "with the reward. Mend the reward, or start again from a checkpoint before the fall with a smaller weight for it.",
        numbers={
            "reward_before": paid.mean or 0.0,
            "reward_now": reward.mean or 0.0,
            "right_before": before,
            "right_now": now,
        },
        evidence=evidence((step, *reward.values), "reward", metric, step=max(reward.values)),
    )


def _earlier(facts: Facts, name: str) -> Stretch:
    """The first RECENT of the steps that are read, unless one of them is recent."""
    history = facts.history.get(name, Stretch({}))
    return Stretch(dict(list(history.values.items())[:RECENT])) if len(history) >= 2 * RECENT else Stretch({})


def _moved(before: Stretch, now: Stretch) -> float:
    """By how many standard errors a mean rose between two stretches (Welch's t); 0 if too little is known."""
    samples = [list(each.finite.values()) for each in (before, now)]
    if min(map(len, samples)) < RECENT // 2:
        return 0.0
    unit = max((abs(value) for sample in samples for value in sample), default=0.0) or 1.0
    samples = [[value / unit for value in sample] for sample in samples]  # the squares of large floats are infinite
    error = math.sqrt(sum(variance(sample) / len(sample) for sample in samples))
    rise = fmean(samples[1]) - fmean(samples[0])
    return rise / error if error > 0 else 0.0


def _fell_on_held_out(facts: Facts) -> tuple[float, float, int] | None:
    """The best share of right answers on held-out prompts, the latest, and the step of the best, if that is beyond chance.

    Prompts count, not the completions of each: the error is larger than it may be.
    """
    known = facts.evaluations.finite
    items = facts.number("budget.eval_items", 0.0)
    if len(known) < 2 or items < 1:
        return None
    last = max(known)
    best = max((step for step in known if step != last), key=lambda step: known[step])
    before, now = known[best], known[last]
    middle = min(1.0, max(0.0, (before + now) / 2))
    error = math.sqrt(2 * max(middle * (1 - middle), 1 / items) / items)
    return (before, now, best) if before - now >= max(FELL, APART * error) else None


@rule(
    "Near ties count as much as clear differences",
    f"of at least {TYPICAL_GROUPS} live groups of the last {RECENT} steps, at least {percent(NEAR_SHARE)} have a std below {percent(NEAR)} of the "
    "upper quartile of theirs. The rule is only for estimators that divide by the group's std, and leaves out groups below its floor",
    steps=0,
)
def near_ties(facts: Facts) -> Finding | None:
    """Divided by its own std, a group that differs by a thousandth moves the policy as far as one that differs by 1."""
    if facts.estimator.divides_by != "group":
        return None
    floor = facts.number("algorithm.advantage.std_floor", 0.0)
    stds = [group.reward_std for group in facts.groups if group.state == "live" and group.reward_std]
    if len(stds) < TYPICAL_GROUPS:
        return None
    typical = quantiles(stds, n=4)[2]
    near = [std for std in stds if std < NEAR * typical and std >= floor]
    if len(near) < NEAR_SHARE * len(stds):
        return None
    steps = sorted({group.step for group in facts.groups})
    return Finding(
        measured=f"In {len(near)} of the {len(stds)} live groups of {span(steps)} the rewards lay close together: their std was "
        f"{figure(median(near))} in the median, and {figure(typical)} is usual (upper quartile). Their advantages were as large.",
        advice=f"If such small differences say little, give the std a {'higher ' if floor else ''}floor (algorithm.advantage.std_floor, such as {figure(typical / 5)}), or take "
        "an estimator that does not divide by it. If they are what matters, leave it as it is.",
        numbers={"near_ties": len(near), "live_groups": len(stds), "typical_std": typical},
        evidence=evidence(steps, "reward_std", "reward", step=max(steps), state="live"),
    )


@rule(
    "The reward is flat",
    f"over at least {FLAT_STEPS} of the last {HISTORY} steps, the 95 % interval of the reward's rise (a straight line, errors that may go together "
    f"over {LAG} steps) holds 0 and ends below {FLAT:g} of the rewards' std within groups, while the reward is below {percent(SOLVED)} {HIGHEST}",
    "reward",
    "reward_std",
    steps=FLAT_STEPS,
    level="note",
)
def flat_reward(facts: Facts) -> Finding | None:
    """A plateau, not noise that hides a rise: its interval leaves no room for a rise worth waiting for."""
    reward, std = facts.history["reward"], facts.history["reward_std"].mean
    known = reward.finite
    if len(known) < FLAT_STEPS or not std or facts.solved() or nothing_is_rewarded(facts):
        return None
    if reward_bound(facts.config) is None and not correctness(facts.config):
        return None  # whether anything is left to learn is not known
    rise, error = _line(known)
    low, high = rise - NORMAL * error, rise + NORMAL * error
    if error < ROUNDING or low > 0 or high < 0 or high >= FLAT * std:
        return None
    cause, advice = _why_flat(facts)
    return Finding(
        measured=f"Over {span(known)} the reward changed by {rise:+.3g} (95 % {low:+.3g} to {high:+.3g}), around a mean of {figure(reward.mean or 0.0)} "
        f"and with a std of {figure(std)} within groups. Likeliest cause: {cause}.",
        advice=advice,
        numbers={"rise": rise, "low": low, "high": high, "reward_std": std},
        evidence=evidence(known, "reward", "reward_std"),
    )


def _line(known: dict[int, float]) -> tuple[float, float]:
    """The rise of a straight line from the first to the last step, and its standard error (Newey & West, 1987)."""
    unit = max(map(abs, known.values())) or 1.0
    steps, values = list(known), [value / unit for value in known.values()]
    middle, mean = fmean(steps), fmean(values)
    x = [step - middle for step in steps]
    squares = sum(each * each for each in x)
    slope = sum(each * (value - mean) for each, value in zip(x, values, strict=True)) / squares
    scores = [each * (value - mean - slope * each) for each, value in zip(x, values, strict=True)]
    total = sum(score * score for score in scores)
    for lag in range(1, LAG + 1):
        total += 2 * (1 - lag / (LAG + 1)) * sum(a * b for a, b in zip(scores, scores[lag:], strict=False))
    length = steps[-1] - steps[0]
    return slope * length * unit, math.sqrt(max(total, 0.0)) / squares * length * unit


def _why_flat(facts: Facts) -> tuple[str, str]:
    """The likeliest cause, and what to do about it: the first of those that the metrics show."""
    dead, cut = facts.recent("frac_reward_zero_std").mean, facts.recent("completions/clipped_ratio").mean
    lost, kl = facts.recent("frac_unscored").mean, facts.recent("kl").median
    learning_rate = facts.number("optimizer.learning_rate", 0.0)
    if name := unpaid(facts):
        return f"the reward {name} is always 0", fewer_dead(facts)
    if dead is not None and dead >= DEAD:
        return f"{percent(dead)} of the groups are dead", fewer_dead(facts)
    if cut is not None and cut >= CUT:
        return f"{percent(cut)} of the completions are cut", fewer_cut(facts)
    if lost is not None and lost >= UNSCORED:
        return f"{percent(lost)} of the completions were not scored", "Look at the errors of the reward functions."
    if kl is not None and kl < STILL and learning_rate:
        return (
            f"the policy has hardly moved (KL {figure(kl)} nats per token)",
            f"Raise the learning rate (now {rate(learning_rate)}), three to ten times.",
        )
    return (
        "none that the metrics show",
        "Read completions of one group, the best and the worst: if what makes the difference is luck, draw more completions in a step; if the model "
        "lacks what the task asks for, start with easier prompts.",
    )
