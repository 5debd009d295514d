"""Hints that a reward is paid for something else than it was meant for: each is a claim, with its numbers, and holds back where it may be wrong.

What would prove a hint wrong is a measure of what is right (a truth) that goes with the property, too: a reward function that
compares answers, or one of weight 0, which only measures.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np

from backend.contract.health import Evidence, Hint
from backend.contract.properties import PhraseSpread
from backend.health.rule import figure, percent
from backend.properties.association import TOGETHER, Floats, centred, differing, pointwise, size_of
from backend.properties.study import Studied, numbered, quarters, rewards_of, share

RARE, HALF = 0.05, 0.5
STRONG = 0.09  # r²: what goes with less of the differences in reward is not what the policy learns
TRUTH = 0.1  # of r with a truth: its upper bound must be below
GREW = 0.05  # of a share
JUDGED = 10  # groups in each half of the window
FELL, ROSE = 3.0, 4.0  # standard errors, of people's agreement and of the reward
_NORMAL = 1.96  # of the central 95 % of the normal distribution
REPEATS = ("repetition", "prompt_repeated", "prompt_share")

Verdict = Literal["agrees", "does not", "unknown"]


@dataclass(frozen=True)
class Asked:
    """What the truths say of a property, and those that were asked."""

    verdict: Verdict
    truths: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """The end of a sentence on what is measured."""
        if not self.truths:
            return "Nothing in this run measures whether answers are right."
        names = " and ".join(self.truths)
        if self.verdict == "unknown":
            return f"Whether {names} agrees cannot be said: within groups it differs too seldom."
        return f"{names} does not go with it."


@dataclass(frozen=True)
class Judged:
    """A group in which the reward and people put pairs of completions in an order: in `share` of them in the same."""

    step: int
    share: float


def hints(
    studied: Studied, spreads: Sequence[PhraseSpread], truths: Sequence[str], judged: Sequence[Judged]
) -> list[Hint]:
    """What looks as if the reward were being gamed; `truths` are the components that say what is right."""
    return [*_people(studied, judged), *_phrases(studied, spreads, truths), *_repetition(studied, truths)][:3]


def _people(studied: Studied, judged: Sequence[Judged]) -> Iterator[Hint]:
    """A reward that rises while people agree with it less, from one half of the window to the other.

    Groups count, not pairs: those of one group go together. The variance of a group's share is at most that of one pair.
    """
    if not len(studied.table.steps_N):
        return
    window = _steps(studied)
    middle = (window.from_step + window.to_step) // 2
    halves = [
        [group.share for group in judged if start <= group.step <= end]
        for start, end in ((window.from_step, middle), (middle + 1, window.to_step))
    ]
    if min(map(len, halves)) < JUDGED:
        return
    (before, now), whole = map(fmean, halves), fmean([*halves[0], *halves[1]])
    error = float(np.sqrt(whole * (1 - whole) * sum(1 / len(half) for half in halves)))
    fall = before - now
    was, is_now, errors = _rise(studied, middle)
    if fall <= 0 or fall < FELL * error or errors < ROSE:
        return
    above_chance = now - _NORMAL * float(np.sqrt(whole * (1 - whole) / len(halves[1]))) > 0.5
    yield Hint(
        code="agreement_falls",
        level="note" if above_chance else "warning",
        title="The reward rises while people agree with it less",
        rule=f"from the first to the second half of these steps the share of judged pairs that the reward orders as people do fell by at least "
        f"{FELL:g} standard errors, while the mean reward rose by at least {ROSE:g}; at least {JUDGED} groups are judged in each half, and "
        "each counts once. This is a note, not a warning, if the reward still agrees more often than chance does",
        measured=f"The mean reward went from {figure(was)} (to step {middle}) to {figure(is_now)}. Meanwhile the share of judged pairs on which "
        f"people and reward agree went from {percent(before)} in {len(halves[0])} groups to {percent(now)} in {len(halves[1])}: a fall of "
        f"{100 * fall:.0f} points (95 % {100 * (fall - _NORMAL * error):.0f} to {100 * min(1.0, fall + _NORMAL * error):.0f}).",
        advice="Open the tab Judgement: it lists pairs that the reward and people put in opposite orders. If the reward prefers what is "
        "worse, mend it, or train a reward model on the judged pairs, and start again from a checkpoint of the first half. If completions "
        "are nearly all good by now, the remaining differences may be a matter of taste.",
        numbers={"before": before, "now": now, "reward_before": was, "reward_now": is_now},
        evidence=window,
    )


def _rise(studied: Studied, middle: int) -> tuple[float, float, float]:
    """The mean reward of groups up to a step and after it, and by how many standard errors it rose (Welch's t); 0 if too little is known."""
    known_N = np.isfinite(studied.rewards_N)
    unit, groups_N = size_of(studied.rewards_N), numbered(studied.table.groups_N[known_N])
    means_P = np.bincount(groups_N, weights=studied.rewards_N[known_N] / unit) / np.bincount(groups_N)
    steps_P = np.zeros_like(means_P)
    steps_P[groups_N] = studied.table.steps_N[known_N]
    before_P, now_P = means_P[steps_P <= middle], means_P[steps_P > middle]
    if min(len(before_P), len(now_P)) < JUDGED:
        return 0.0, 0.0, 0.0
    error = float(np.sqrt(before_P.var(ddof=1) / len(before_P) + now_P.var(ddof=1) / len(now_P)))
    was, is_now = float(before_P.mean()), float(now_P.mean())
    errors = (is_now - was) / error if error > 0 else math.inf if is_now > was else 0.0
    return was * unit, is_now * unit, errors


def _phrases(studied: Studied, spreads: Sequence[PhraseSpread], truths: Sequence[str]) -> Iterator[Hint]:
    """A phrase or tag that was rare and is now in half of what is rewarded, and is paid for."""
    places = {known.of: k for k, known in enumerate(studied.properties) if known.kind in ("phrase", "tag")}
    claimed: list[int] = []
    for spread in spreads:
        k = places.get(spread.phrase)
        if k is None or spread.first > RARE or not _paid(studied, k):
            continue
        if spread.rewarded is None or spread.rewarded < HALF:
            continue
        asked = ask(studied, k, truths)
        if asked.verdict == "agrees" or any(abs(studied.together_K_K[k, other]) > TOGETHER / 2 for other in claimed):
            continue
        claimed.append(k)
        found = studied.association
        yield Hint(
            code="phrase_takes_over",
            level="note" if asked.verdict == "unknown" else "warning",
            title=f"“{spread.phrase}” takes over what is rewarded",
            rule=f"a phrase or tag was in at most {percent(RARE)} of the completions of the first quarter of these steps and is in at least "
            f"{percent(HALF)} of what is rewarded in the last; the reward pays for it beyond chance; and no measure of what is right does",
            measured=f"It was in {percent(spread.first)} of the completions of the first quarter, and is in {percent(spread.last)} of those of "
            f"the last, in {percent(spread.rewarded)} of those whose reward is above their group's mean. Within groups the reward is "
            f"{figure(found.effect_K[k])} higher with it (95 % {figure(found.low_K[k])} to {figure(found.high_K[k])}). {asked.in_words}",
            advice="Read completions with and without it below. If it says nothing about the answer, the reward function pays for a "
            "habit: mend the function, or add a reward that checks the answer, and start again from a checkpoint before it spread.",
            numbers={
                "first": spread.first,
                "last": spread.last,
                "rewarded": spread.rewarded,
                "effect": float(found.effect_K[k]),
            },
            evidence=_steps(studied),
        )


def _repetition(studied: Studied, truths: Sequence[str]) -> Iterator[Hint]:
    """Completions that repeat themselves or the prompt more and more, and are paid for it."""
    first_N, last_N = quarters(studied.table)
    for k, known in enumerate(studied.properties):
        if known.kind not in REPEATS or not _paid(studied, k):
            continue
        (before, error), (after, other) = (
            share(studied.values_N_K[each, k : k + 1], numbered(studied.table.groups_N[each]))
            for each in (first_N, last_N)
        )
        grew = float(after[0] - before[0])
        if grew < GREW or grew < 3 * float(np.sqrt(error[0] + other[0])):
            continue
        asked = ask(studied, k, truths)
        if asked.verdict == "agrees":
            continue
        found, spread = studied.association, float(studied.association.spread_K[k])
        yield Hint(
            code="repetition_paid",
            level="note" if asked.verdict == "unknown" else "warning",
            title=f"The reward pays for repetition: {known.title}",
            rule=f"completions repeat themselves or the prompt by at least {percent(GREW)} more in the last quarter of these steps than in the "
            "first; the reward pays for it beyond chance; and no measure of what is right does",
            measured=f"On average {percent(float(before[0]))} in the first quarter of these steps and {percent(float(after[0]))} in the last. Within "
            f"groups {percent(spread)} more of it comes with {figure(found.effect_K[k] * spread)} more reward "
            f"({percent(found.correlation_K[k] ** 2)} of the differences). {asked.in_words}",
            advice="Read completions with more and with less of it below. Add a penalty for repeated text, or check the answer and not "
            "what stands around it.",
            numbers={"first": float(before[0]), "last": float(after[0]), "correlation": float(found.correlation_K[k])},
            evidence=_steps(studied),
        )
        return


def _paid(studied: Studied, k: int) -> bool:
    found = studied.association
    return bool(found.clear_K[k] and found.correlation_K[k] > 0 and found.correlation_K[k] ** 2 >= STRONG)


def ask(studied: Studied, k: int, truths: Sequence[str]) -> Asked:
    """Whether a truth goes with the property, too: it agrees if one does, or may to an extent that matters."""
    verdicts = {_verdict(studied, k, rewards_of(studied.window.completions, name)) for name in truths}
    if "agrees" in verdicts:
        return Asked("agrees", tuple(truths))
    return Asked("does not" if verdicts == {"does not"} else "unknown", tuple(truths))


def _verdict(studied: Studied, k: int, truth_N: Floats) -> Verdict:
    kept_N = differing(truth_N, studied.table.groups_N)
    if not kept_N.any():
        return "unknown"
    groups_N = numbered(studied.table.groups_N[kept_N])
    clusters_N = numbered(studied.table.prompts_N[kept_N]) if studied.cluster == "prompt" else groups_N
    texts_N = studied.table.texts_N[kept_N]
    data = centred(truth_N[kept_N], studied.values_N_K[kept_N, k : k + 1], groups_N, clusters_N, texts_N)
    found = pointwise(data)
    if not found.tested_K[0] or not np.isfinite(found.high_K[0]):
        return "unknown"
    of_r = float(found.correlation_K[0] / found.effect_K[0]) if found.effect_K[0] else 0.0
    if found.low_K[0] > 0 or float(found.high_K[0]) * of_r > TRUTH:
        return "agrees" if found.low_K[0] > 0 else "unknown"
    return "does not"


def _steps(studied: Studied) -> Evidence:
    steps_N = studied.table.steps_N
    return Evidence(from_step=int(steps_N.min()), to_step=int(steps_N.max()))
