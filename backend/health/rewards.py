"""Rules about rewards and completions: groups that teach nothing, completions that are cut, left out, not scored, or ramble."""

from itertools import takewhile

from backend.contract.reward import reward_bound
from backend.health.component import component_at_zero
from backend.health.facts import HIGHEST, HISTORY, NOTHING, RECENT, SOLVED, ZEROS, Facts, Stretch, weights
from backend.health.rule import Finding, evidence, figure, one_of, percent, rate, rule, span

NEVER_RIGHT = (
    "Open a group and read what the model answers. If it is right, the reward function does not recognise it, or a gate is closed: "
    "check its format, the reference answer and the gates. If it is wrong, start with easier prompts."
)
DEAD = 0.5
WELL = 0.8  # of the highest reward: then groups are dead because all answers are right, which is fine
RIGHT = 0.95  # of the highest reward: a KL penalty in the reward takes a little off
LARGE_GROUP = 32  # completions: if half of such groups are dead, larger ones are, too
CUT = 0.25
ALL_CUT = 0.9
TRUNCATED = "algorithm.truncated_completions"
MASK = f"{TRUNCATED}: mask"
UNSCORED, LONGEST_TIME = 0.01, 600  # seconds that a run can give a reward function, at most
EACH_TOKEN = ("token_mean", "constant", "sequence_sum", "group_sum")
"""The aggregations in which each token of a long completion counts as much as one of a short one."""
LENGTH_FACTOR, BETTER = 2.0, 0.25  # and of the rewards' std at the start


def nothing_is_rewarded(facts: Facts) -> bool:
    """Whether each reward of the last steps was 0."""
    last = [facts.recent(name).last(ZEROS) for name in ("reward", "reward_std")]
    return all(len(one) == ZEROS and not any(one.values.values()) and not one.missing for one in last)


@rule(
    "Every reward is 0",
    f"reward and its std are exactly 0 in each of the last {ZEROS} steps. It is called a collapse if the reward was above 0 before, that is, "
    f"if the median reward of the first {RECENT} and the last {HISTORY} steps, without the zeros at the end, is above 0",
    "reward",
    "reward_std",
    steps=ZEROS,
)
def all_rewards_zero(facts: Facts) -> Finding | None:
    """Rewards that are all 0 teach nothing, and nothing will change by itself. If they fell to 0, something broke."""
    if not nothing_is_rewarded(facts):
        return None
    reward = facts.history["reward"]
    zeros = _steps_at_zero(reward)
    known = Stretch({**facts.start.get("reward", NOTHING).values, **reward.values})
    before = Stretch({step: known.values[step] for step in sorted({*known.values} - {*_steps_at_zero(known)})})
    fell = before.peak if (before.median or 0.0) > 0 else None
    if fell is None and component_at_zero.hint(facts):
        return None  # which says why
    learning_rate, beta = facts.number("optimizer.learning_rate", 0.0), facts.number("algorithm.kl.beta", 0.0)
    collapsed = (
        "The model could do it, so the prompts are not too hard. Look at KL and gradient norm where the reward fell, and read "
        "completions of those steps. If they have broken down, start again from an earlier checkpoint with a lower learning rate "
        f"(now {rate(learning_rate)}) or a larger algorithm.kl.beta (now {beta:g}). If they are as good as before, look at what "
        "scores them."
    )
    was = "" if fell is None else f" At step {fell} it was {figure(before.finite[fell])}."
    kl = () if fell is None or "kl" not in facts.history else ("kl",)
    return Finding(
        title=None if fell is None else "The reward has collapsed to 0",
        measured=f"The reward was 0 for every scored completion of {span(zeros)}.{was}",
        advice=NEVER_RIGHT if fell is None else collapsed,
        numbers={"steps_at_zero": len(zeros)},
        evidence=evidence(zeros, "reward", *kl, "reward_std", step=max(zeros), state="zero_variance"),
    )


def _steps_at_zero(reward: Stretch) -> list[int]:
    """The latest steps, back to the last one at which it was not 0."""
    return list(takewhile(lambda step: reward.values[step] == 0, sorted(reward.values, reverse=True)))


@rule(
    "Most groups are dead",
    f"on average over the last {RECENT} steps at least {percent(DEAD)} of the groups have rewards that are all equal; this is a note, not a warning, if the "
    f"mean reward of these steps is at least {percent(WELL)} {HIGHEST}",
    "frac_reward_zero_std",
)
def dead_groups(facts: Facts) -> Finding | None:
    """A warning while something is left to learn; a note if the groups are dead because the task is solved."""
    share = facts.recent("frac_reward_zero_std")
    mean, peak = share.mean, share.peak
    if facts.estimator.compares != "group" or nothing_is_rewarded(facts):
        return None
    if mean is None or peak is None or mean < DEAD:
        return None
    solved, highest = facts.solved(WELL), reward_bound(facts.config)
    dead = [group.reward_mean for group in facts.groups if group.state == "zero_variance"]
    means = [each for each in dead if each is not None]
    others = means if highest is None else [each for each in means if each < RIGHT * highest]
    got = (
        f"{percent(mean)} of the groups of {span(share.values)} were dead{_what_they_got(len(means), others, highest)}."
    )
    stop = "The model has learned most of what these prompts can teach. Stop here, or go on with harder prompts."
    return Finding(
        title="Most groups are solved" if solved else None,
        level="note" if solved else None,
        measured=got,
        advice=stop if solved else fewer_dead(facts),
        numbers={"mean_share": mean, "dead_groups": len(means)}
        | ({} if highest is None else {"dead_all_right": len(means) - len(others)}),
        evidence=evidence(share.values, "frac_reward_zero_std", "reward", step=peak, state="zero_variance"),
    )


def unpaid(facts: Facts) -> str:
    """The reward that is always 0, if such rewards have half of the weight: other advice is for later. Else empty."""
    zero, weighing = facts.always_zero(), weights(facts.config)
    return zero[0] if zero and 2 * sum(weighing[name] for name in zero) >= sum(map(abs, weighing.values())) else ""


def fewer_dead(facts: Facts) -> str:
    """What makes fewer groups dead, of what the run does not do already."""
    if name := unpaid(facts):
        return f"First see why the reward {name} is always 0: until then only the others tell completions apart."
    size, again = facts.number("sampling.group_size", 0), facts.text("algorithm.dead_groups") == "resample"
    ways = {
        f"larger groups (sampling.group_size, now {size:.0f}), which differ more often": size < LARGE_GROUP,
        "prompts of middling difficulty (sampling.curriculum draws more)": not facts.at("sampling.curriculum"),
        "replacing dead groups while sampling (algorithm.dead_groups: resample)": not again,
        "replacing dead groups more often (algorithm.resample_rounds)": again,
    }
    return f"What helps: {one_of(ways)}."


def _what_they_got(dead: int, others: list[float], highest: float | None) -> str:
    """How many dead groups were all right, and what the others got; of all what they got if no highest reward is known."""
    if not dead:
        return ""
    if not others:
        return f"; every completion was right in all {dead} of them"
    low, high = figure(min(others)), figure(max(others))
    got = f"all equal, at {low}" if min(others) == max(others) else f"all equal, at {low} to {high}"
    if highest is None:
        return f"; the rewards of each of these {dead} were {got}"
    if len(others) == dead:
        return f"; no completion got the highest reward in any of these {dead} ({got})"
    right = dead - len(others)
    return f": in {right} every completion was right, in {len(others)} none got the highest reward ({got})"


@rule(
    "Nearly all completions are cut and left out",
    f"truncated completions are left out of the loss ({MASK}), and on average over the last {RECENT} steps at "
    f"least {percent(ALL_CUT)} of the completions reach max_new_tokens",
    "completions/clipped_ratio",
    steps=ZEROS,
)
def everything_masked(facts: Facts) -> Finding | None:
    """Then hardly anything is trained on, whatever the rewards say."""
    cut, limit = facts.recent("completions/clipped_ratio"), facts.number("sampling.max_new_tokens", 0)
    if cut.mean is None or cut.mean < ALL_CUT or facts.text(TRUNCATED) != "mask":
        return None
    return Finding(
        measured=f"{percent(cut.mean)} of the completions of {span(cut.values)} were cut at max_new_tokens = {limit:.0f} and left out "
        "of the loss: next to nothing is trained.",
        advice=f"{fewer_cut(facts)} Or train on what is cut, too ({TRUNCATED}: keep).",
        numbers={"mean_share": cut.mean, "max_new_tokens": limit},
        evidence=evidence(cut.values, "completions/clipped_ratio", "grad_norm", step=cut.peak, finish_reason="length"),
    )


def fewer_cut(facts: Facts) -> str:
    """How completions come to an end, of what the run does not do already."""
    raw, share = facts.text("task.prompt_format") == "raw", facts.recent("completions/clipped_ratio").mean or 0.0
    ways = {
        f"Raise sampling.max_new_tokens (now {facts.number('sampling.max_new_tokens', 0):.0f})": True,
        "ask for shorter answers in the system prompt": not (raw or facts.text("task.system_prompt")),
        f"leave what is cut out of the loss ({MASK})": facts.text(TRUNCATED) != "mask" and share < ALL_CUT,
    }
    return f"{one_of(ways)}. If the texts run on without sense, look at entropy and KL first."


@rule(
    "Many completions are cut",
    f"on average over the last {RECENT} steps at least {percent(CUT)} of the completions reach max_new_tokens",
    "completions/clipped_ratio",
)
def truncation(facts: Facts) -> Finding | None:
    """What is cut is scored as it stands, and mostly as wrong."""
    cut, length = facts.recent("completions/clipped_ratio"), facts.recent("completions/mean_length").mean
    mean, limit = cut.mean, int(facts.number("sampling.max_new_tokens", 0))
    if mean is None or mean < CUT or everything_masked.hint(facts):
        return None
    at = f" at {limit} tokens" * (limit > 0)
    long = f"; their mean length was {figure(length)} tokens" if length is not None else ""
    return Finding(
        measured=f"{percent(mean)} of the completions of {span(cut.values)} were cut{at}{long}.",
        advice=fewer_cut(facts),
        numbers={"mean_share": mean, "max_new_tokens": limit},
        evidence=evidence(
            cut.values, "completions/clipped_ratio", "completions/mean_length", step=cut.peak, finish_reason="length"
        ),
    )


@rule(
    "Completions could not be scored",
    f"on average over the last {RECENT} steps at least {percent(UNSCORED)} of the completions got no score",
    "frac_unscored",
    steps=1,
)
def unscored(facts: Facts) -> Finding | None:
    """They are left out of baseline and loss: what could not be checked is not trained on."""
    share = facts.recent("frac_unscored")
    mean, peak, most = share.mean, share.peak, facts.number("rewards.max_unscored", 0.2)
    if mean is None or peak is None or mean < UNSCORED:
        return None
    limit = facts.number("rewards.time_limit", 5.0)
    fails = "" if facts.recorded else f"; above {percent(most)} in a step the run fails"
    longer = f", or raise rewards.time_limit (now {limit:g} s) if it ran out of time" if limit < LONGEST_TIME else ""
    whole = any(group.state == "unscored" and group.step == peak for group in facts.groups)
    return Finding(
        measured=f"{percent(mean)} of the completions of {span(share.values)} could not be scored, with a peak of "
        f"{percent(share.finite[peak])} at step {peak}{fails}.",
        advice="Open one of them: its card shows the error of the reward function. A function that raises, hangs or returns no number "
        f"leaves the completion out; mend the function{longer}.",
        numbers={"mean_share": mean, "max_unscored": most},
        evidence=evidence(share.values, "frac_unscored", step=peak, state="unscored" if whole else None),
    )


@rule(
    "Completions change in length but get no better",
    f"the mean length of the last {RECENT} steps is at least {LENGTH_FACTOR:g} times that of the first {RECENT}, or at most half of it. "
    f"Meanwhile the reward rose by less than {BETTER:g} of its std at the start, and it is below {percent(SOLVED)} {HIGHEST}",
    "completions/mean_length",
    "reward",
    "reward_std",
    steps=2 * RECENT,
)
def length_drift(facts: Facts) -> Finding | None:
    """If the reward rises with the length, the task may well need the length."""
    length, reward = facts.recent("completions/mean_length"), facts.recent("reward").mean
    earlier = facts.began("reward").mean
    before, now = facts.began("completions/mean_length").mean, length.mean
    if not before or not now or 1 / LENGTH_FACTOR < now / before < LENGTH_FACTOR:
        return None
    if facts.solved() or facts.risen(BETTER):
        return None
    longer, gained = now > before, ""
    if earlier is not None and reward is not None:
        gained = f", while the reward went from {figure(earlier)} to {figure(reward)}"
    uneven, lengths = facts.text("algorithm.aggregation") not in EACH_TOKEN, facts.has("ramp")
    even = "average the loss so that long wrong answers do not get off lightly (aggregation token_mean or constant)"
    more = {"add a length reward": not lengths, f"raise the weight of {' and '.join(lengths)}": bool(lengths)}
    ramble = f"If they ramble, {one_of({even: uneven, **more})}."
    leave_out = (
        "If they leave out the reasoning, a reward may be had without it: look at what the reward functions accept."
    )
    return Finding(
        title=f"Completions grow {'longer' if longer else 'shorter'}, not better",
        measured=f"Mean length went from {figure(before)} tokens in the first {RECENT} steps to {figure(now)} over "
        f"{span(length.values)} ({figure(now / before)} times){gained}.",
        advice=f"Read completions from both ends of the run. {ramble if longer else leave_out}",
        numbers={"length_at_start": before, "length_now": now},
        evidence=evidence((0, max(length.values)), "completions/mean_length", "reward", step=max(length.values)),
    )
