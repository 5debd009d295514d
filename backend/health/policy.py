"""Rules about the policy: its gradient, its distance from the reference, its entropy, its loss, the rate at which it learns."""

from backend.contract.protocol import EVALUATION
from backend.health.facts import HIGHEST, HISTORY, NOTHING, RECENT, SOLVED, Facts, Stretch
from backend.health.rewards import nothing_is_rewarded
from backend.health.rule import Finding, evidence, figure, one_of, percent, rate, rule, span
from backend.preflight.hints import LORA_RATE_LOW

LARGE_TIMES, LARGE_STEPS, STEPS_BEFORE = 10.0, 3, 10
KL_NATS = 1.0
ENTROPY_LEFT = 0.2
LORA_RISEN = 0.5  # of the rewards' std at the start: then it learns, whatever its rate
CLIPPED_SHARE, CLIPPED_STEPS = 0.9, 20
SMALL_LOSS = 0.01
GRADIENT_LEFT = 0.01  # of the gradient at the start: below it hardly anything trains any longer


@rule(
    "Updates were skipped",
    f"grad_norm was not finite in at least one of the last {HISTORY} steps. The rule is only for runs that are trained here",
    "grad_norm",
    steps=1,
)
def skipped_updates(facts: Facts) -> Finding | None:
    """The weights are as they were; but numbers that overflow once mostly do so again."""
    norms = facts.history["grad_norm"]
    skipped = norms.missing
    if not skipped or facts.recorded:
        return None
    ways = {"lower the learning rate": True, "train in float32 (model.dtype)": facts.text("model.dtype") != "float32"}
    return Finding(
        measured=f"In {len(skipped)} of the last {len(norms)} steps the gradient was not finite (NaN or infinite), "
        f"and the update was not applied: {_latest(skipped)}.",
        advice=f"Open the groups of such a step and look for broken or very long texts. If it comes again, {one_of(ways)}; after three in a "
        "row the run ends by itself.",
        numbers={"skipped_steps": len(skipped)},
        evidence=evidence(skipped, "grad_norm", "loss", "learning_rate", step=skipped[-1]),
    )


@rule(
    "A metric is not finite",
    f"a metric was NaN or infinite in at least one of the last {HISTORY} steps. Of a run that was trained here, steps do not count in "
    "which completions were not scored or nothing moved the weights: then there is nothing to measure, or another rule speaks of it",
)
def not_finite(facts: Facts) -> Finding | None:
    """What overflowed once mostly does so again, and whatever is computed from it."""
    found = facts.not_finite
    if not facts.recorded:
        norms, lost = facts.history.get("grad_norm", NOTHING).values, facts.history.get("frac_unscored", NOTHING).values
        known = {step for step, norm in norms.items() if not norm} | {step for step, share in lost.items() if share}
        found = {name: sorted({*steps} - known) for name, steps in found.items() if not name.startswith(EVALUATION)}
    first = {name: steps[0] for name, steps in found.items() if steps}
    if not first:
        return None
    name, *others = sorted(first, key=lambda one: (first[one], one))
    were = "were" if others[1:] else "was"
    also = f" So {were} {', '.join(others[:5])}{' and others' if others[5:] else ''}." if others else ""
    return Finding(
        title=f"{name} is not finite",
        measured=f"{name} was NaN or infinite in {len(found[name])} of the last {min(facts.step, HISTORY)} steps: "
        f"{_latest(found[name])}.{also}",
        advice="Open the groups of the first such step, and look for broken or very long texts and odd rewards. The trainer's log says "
        "what it did with that update. If later values are not finite either, go back to a checkpoint before it.",
        numbers={"metrics": len(first), "steps": len(found[name])},
        level="note"
        if all(one.startswith("rewards/") for one in first)
        else None,  # of a function that gave none in a step
        evidence=evidence(found[name], name, *others[:3], step=first[name]),
    )


def _latest(steps: list[int]) -> str:
    """The last five of them."""
    return f"{'…, ' if len(steps) > 5 else ''}{', '.join(map(str, steps[-5:]))}"


@rule(
    "The gradient explodes",
    f"in at least {LARGE_STEPS} of the last {RECENT} steps grad_norm is above max_grad_norm and above {LARGE_TIMES:g} times the median "
    "of the (at most 40) steps before",
    "grad_norm",
)
def gradient_explodes(facts: Facts) -> Finding | None:
    """One spike is clipped and forgotten; several point to a run that is falling apart. Gradients of 0 do not count."""
    norms = {step: value for step, value in facts.history["grad_norm"].finite.items() if value > 0}
    recent = {step: value for step, value in norms.items() if step >= facts.step - RECENT}
    before = Stretch({step: value for step, value in norms.items() if step not in recent})
    limit, usual = facts.most_grad_norm or 0.0, before.median
    if len(before) < STEPS_BEFORE or usual is None:
        return None
    large = {step: value for step, value in recent.items() if value > max(LARGE_TIMES * usual, limit)}
    if len(large) < LARGE_STEPS:
        return None
    largest = max(large.values())
    return Finding(
        measured=f"In {len(large)} of the last {RECENT} steps the gradient norm was above {figure(LARGE_TIMES * usual)}, up to "
        f"{figure(largest)}; the median of the {len(before)} steps before is {figure(usual)}.",
        advice=f"Each of them was scaled down to max_grad_norm = {limit:g}, but still points in the direction of a broken batch. Look at the "
        "groups of the largest: long, broken texts or odd rewards are the usual cause. If it goes on, start again from an earlier "
        "checkpoint with a lower learning rate.",
        numbers={"largest": largest, "usual_median": usual, "steps": len(large)},
        evidence=evidence(recent, "grad_norm", step=max(large, key=lambda step: large[step])),
    )


@rule("KL has blown up", f"the median KL of the last {RECENT} steps is at least {KL_NATS:g} nat per token", "kl")
def kl_blow_up(facts: Facts) -> Finding | None:
    """The median, since one odd completion can make one step's estimate huge."""
    kl, beta = facts.recent("kl"), facts.number("algorithm.kl.beta", 0.0)
    now, weight = kl.median, f", with β = {beta:g}" if facts.at("algorithm.kl") else ""
    if now is None or abs(now) < KL_NATS:
        return None
    return Finding(
        measured=f"KL to the reference was {figure(now)} nats per token (median of {span(kl.values)}){weight}.",
        advice="So far from where it started, a model often loses its language. Read some completions. If they have broken down, "
        "start again from an earlier checkpoint with a lower learning rate or a larger algorithm.kl.beta.",
        numbers={"median_kl": now, "beta": beta},
        evidence=evidence(kl.values, "kl", "reward", step=kl.peak),
    )


@rule(
    "Entropy has collapsed",
    f"mean entropy of the last {RECENT} steps is at most {percent(ENTROPY_LEFT)} of that of the first {RECENT}, while the reward is "
    f"below {percent(SOLVED)} {HIGHEST}",
    "entropy",
    "reward",
    steps=2 * RECENT,
)
def entropy_collapse(facts: Facts) -> Finding | None:
    """A solved task needs no entropy; an unsolved one cannot be learned without."""
    recent, began = facts.recent("entropy"), facts.began("entropy").mean
    now, reward = recent.mean, facts.recent("reward").mean
    if now is None or not began or now > ENTROPY_LEFT * began or facts.solved():
        return None
    bonus, bound = facts.number("algorithm.entropy_bonus", 0.0), facts.at("algorithm.surrogate.epsilon_high")
    several = facts.number("algorithm.updates_per_batch", 1) > 1  # else nothing is ever clipped
    ways = {
        "a lower learning rate": True,
        "a higher clip bound (algorithm.surrogate.epsilon_high)": several and bound is not None,
        f"a larger entropy bonus (now {bonus:g})" if bonus else "an entropy bonus": True,
    }
    still = f", at a reward of {figure(reward)}" if reward is not None else ""
    return Finding(
        measured=f"Entropy fell from {figure(began)} nats per token at the start to {figure(now)} over {span(recent.values)}, "
        f"{percent(now / began)} of it{still}.",
        advice="All completions of a group become alike, and the groups die. Start again from a checkpoint before the fall with "
        f"{one_of(ways)}.",
        numbers={"entropy_at_start": began, "entropy_now": now},
        evidence=evidence((0, max(recent.values)), "entropy", "reward", step=max(recent.values)),
    )


@rule(
    "The learning rate is low for LoRA",
    f"an adapter is trained at a learning rate of {rate(LORA_RATE_LOW)} or less, and from the first {RECENT} to the last {RECENT} steps "
    f"the mean reward rose by less than {LORA_RISEN:g} of its std at the start",
)
def lora_rate(facts: Facts) -> Finding | None:
    """Adapters hardly move at the rate of full training; silent once the run has proved that it learns."""
    learning_rate = facts.number("optimizer.learning_rate", 1.0)
    if facts.at("model.lora") is None or learning_rate > LORA_RATE_LOW or facts.risen(LORA_RISEN):
        return None
    recent, earlier = facts.recent("reward"), facts.began("reward").mean
    now, went = recent.mean, ""
    if now is not None and earlier is not None:
        if facts.solved():
            return None
        went = f"; the reward went from {figure(earlier)} to {figure(now)} ({span(recent.values)})"
    return Finding(
        measured=f"LoRA of rank {facts.number('model.lora.rank', 0):g} is trained at {rate(learning_rate)}{went}.",
        advice=f"Adapters start at 0 and want about 10 times the rate of full training: clone the run with {rate(10 * learning_rate)}.",
        numbers={"learning_rate": learning_rate, "limit": LORA_RATE_LOW},
        evidence=evidence(recent.values, "reward", "learning_rate", step=max(recent.values)) if len(recent) else None,
    )


@rule(
    "The gradient is nearly always clipped",
    f"grad_norm is above max_grad_norm in at least {percent(CLIPPED_SHARE)} of the last {CLIPPED_STEPS} steps",
    "grad_norm",
    steps=CLIPPED_STEPS,
    level="note",
)
def gradient_clipped(facts: Facts) -> Finding | None:
    """Harmless with Adam, which scales by itself; but batches with a strong signal count no more than others."""
    norms = facts.history["grad_norm"].last(CLIPPED_STEPS)
    limit, usual = facts.most_grad_norm, norms.median
    clipped = sum(limit is not None and value > limit for value in norms.finite.values())
    if usual is None or limit is None or clipped < CLIPPED_SHARE * len(norms):
        return None
    return Finding(
        measured=f"In {clipped} of the {len(norms)} {span(norms.values)} the gradient was longer than max_grad_norm = {limit:g}; its "
        f"median length was {figure(usual)}.",
        advice="Not wrong in itself: each step is as long as any other, whatever its batch had to say. If the reward jumps or falls, "
        "lower the learning rate; if it rises, leave it, or raise optimizer.max_grad_norm above the median.",
        numbers={"clipped_steps": clipped, "steps": len(norms), "median_grad_norm": usual, "max_grad_norm": limit},
        evidence=evidence(norms.values, "grad_norm", "reward", step=norms.peak),
    )


@rule(
    "The loss is about 0, as it should be",
    f"each loss of the last {RECENT} steps is below {SMALL_LOSS:g} in size, while the median gradient norm of these steps is above 0 and "
    f"at least {percent(GRADIENT_LEFT)} of that of the first {RECENT}. The rule is only for runs with one update per batch, the clipped "
    "surrogate, and advantages that add up to 0 in each group. It is silent while every reward is 0, and when KL has blown up or entropy has collapsed",
    "loss",
    "grad_norm",
    steps=3,
    level="note",
)
def loss_near_zero(facts: Facts) -> Finding | None:
    """On policy the ratio is 1 and centred advantages add up to 0, so the value is 0; its gradient is not."""
    loss, gradient, began = facts.recent("loss"), facts.recent("grad_norm").median, facts.began("grad_norm").median
    updates = facts.number("algorithm.updates_per_batch", 0 if facts.recorded else 1)
    on_policy = facts.text("algorithm.surrogate.kind") == "clip" and updates == 1
    largest = max(map(abs, loss.finite.values()), default=SMALL_LOSS)
    if not (on_policy and facts.estimator.centred) or largest >= SMALL_LOSS:
        return None
    broken = nothing_is_rewarded(facts) or any(rule.hint(facts) for rule in (kl_blow_up, entropy_collapse))
    if not gradient or gradient < GRADIENT_LEFT * (began or 0.0) or broken:
        return None
    earlier = f", against {figure(began)} in the first {RECENT} steps" if began else ""
    return Finding(
        measured=f"Over {span(loss.values)} the loss stayed below {SMALL_LOSS:g} in size, while the median gradient norm was "
        f"{figure(gradient)}{earlier}. The policy is being trained.",
        advice="Nothing needs to be done. Watch the reward and the gradient norm; this loss does not measure progress.",
        numbers={"largest_loss": largest, "median_grad_norm": gradient},
        evidence=evidence(loss.values, "loss", "grad_norm"),
    )
