"""Rules about one reward among several: it is always 0, or it decides alone."""

from collections.abc import Mapping, Sequence

from backend.contract.answers import find_answer, last_number
from backend.contract.base import Json
from backend.contract.reading import FIRST
from backend.contract.stored import text_at
from backend.contract.verdicts import match_of, number_in, numeric_verdict, reference_in, text_verdict
from backend.health.facts import RECENT, ZEROS, ExampleGroup, Facts, bounded, functions, weights
from backend.health.rule import Finding, evidence, figure, one_of, percent, quoted, rule, span

DOMINANT, MINOR_WEIGHT = 0.9, 0.5
DONE = 0.95  # the mean score of a component that has nothing left to say; 1 − it if the weight is a penalty
LONG = 12  # words: a longer reference is a text, which no answer repeats word for word
MARKS = {"boxed": ["\\boxed"], "answer_tag": ["<answer>", "</answer>"], "last_number": ["a number"], "whole": ["text"]}
"""The ways to find an answer, and by what; of two that find as many right ones, the first is the surer."""
OF_TASK = {"arithmetic": "numeric", "dataset": "exact", "single_prompt": "exact"}
"""How a task compares if its reward leaves that to it; exact of later readings is what each reference is. Others have verifiers."""
UNREAD = (
    "Read some completions. If they deserve more than 0, mend the function. If not, ask for it in the prompt, start with easier prompts, "
    "or let the score have steps between nothing and all. If it can only take something off, 0 is its best."
)
DIFFERENT = (
    "The answers are read, and differ from it. If one is right, mend the reference, or have answers put into tags (answer_tag). "
    "If none is, take easier prompts, or a model that is right now and then (a warm start on solutions)."
)


@rule(
    "A reward is always 0",
    f"a reward with a weight above 0 has given a 0 to every completion of the run that it could score, in at least {ZEROS} steps",
    "reward",
    steps=ZEROS,
)
def component_at_zero(facts: Facts) -> Finding | None:
    """It teaches nothing, whatever its weight; the others are learned in its place."""
    zero = facts.always_zero()
    if not zero:
        return None
    name, *others = zero
    function, shown, seen, ways = functions(facts.config)[name], facts.example, "", [UNREAD]
    kind = text_at(function, "kind") if shown is not None and shown.texts else ""
    if shown is not None and kind == "correctness" and text_at(function, "extract", "answer_tag") in MARKS:
        seen, ways = answers(facts, function, shown)
    elif shown is not None and kind == "format":
        seen, ways = tags(facts, function, shown)
    steps, also = facts.history[f"rewards/{name}/mean"].finite, f" So was {' and '.join(others)}." if others else ""
    return Finding(
        title=f"The reward {name} is always 0",
        measured=f"{name} was 0 for every completion that it scored, in all {facts.step:,} steps.{also}{seen}",
        advice=" ".join(ways),
        numbers={"steps": facts.step, "rewards_at_zero": len(zero)},
        evidence=evidence(steps, f"rewards/{name}/mean", "reward", step=shown.step if shown else None),
    )


def answers(facts: Facts, function: Mapping[str, Json], shown: ExampleGroup) -> tuple[str, list[str]]:
    """What of this group was compared with the reference, and what lets a right answer count."""
    extract, match = text_at(function, "extract", "answer_tag"), text_at(function, "match", "task")
    reference, count = (shown.answer or "").strip(), len(shown.texts)
    end, reading = reference_in(reference), int(facts.number("rewards.reading", FIRST))
    if match == "task" and (of_task := OF_TASK.get(facts.text("task.kind"))):
        match = match_of(reference) if of_task == "exact" and reading > FIRST else of_task
    found = {
        how: [one for text in shown.texts if (one := find_answer(text, how, reading))] for how in (extract, *MARKS)
    }
    compare = text_verdict if number_in(end) is None else numeric_verdict
    right = {how: [one for one in ones if compare(one, end) is True] for how, ones in found.items()}
    read, best = found[extract], max(right, key=lambda how: len(right[how]))
    such, by = quoted((right[extract] or read or shown.texts)[0]), " ".join(MARKS[extract])
    seen = f" In step {shown.step} an answer was found in {len(read)} of {count} completions ({by})"
    seen += f", such as {such}." if read else f"; one ends with {such}."
    seen += f" The reference is {quoted(reference)}." if reference else ""
    if match == "task":  # of whose verifier nothing is known here
        return seen, form(facts, shown, MARKS[extract]) if 2 * len(read) < count else [DIFFERENT]
    ways, fitting = list[str](), "numeric" if number_in(end) is not None else match
    if end != reference and reading == FIRST:  # GSM8K's rows end in #### and the answer, those of MATH have it in a box
        fitting = fitting if "####" in reference else "symbolic"
        if fitting != match:
            ways.append(f"The reference is a solution that ends in {quoted(end)}, and no answer repeats it.")
    elif len(reference.split()) > LONG:
        judges = facts.has("instruction")
        way = f"leave that to {judges[0]}, and this one at weight 0" if judges else "let a judge compare them"
        ways.append(f"The reference is a text, which no answer repeats word for word: {way}.")
    if fitting == "numeric" and reading == FIRST and any(last_number(one) != one for one in right[best]):
        best = "last_number"  # of "18 dollars"
    changes = [f"extract to {best}"] * (best != extract) + [f"match to {fitting}"] * (fitting != match)
    if changes and (right[best] or ways):
        then = f": then {len(right[best])} of these {count} completions would be right" * bool(right[best])
        ways.append(f"Set {' and '.join(changes)}{then}.")
    elif right[best]:
        ways.append(
            "Right answers differ in signs or capitals: ask for the reference's form, or change the references."
        )
    if 2 * len(read) >= count or best != extract:
        return seen, ways or [DIFFERENT]
    ways += form(facts, shown, MARKS[extract])
    if 2 * shown.cut < count:
        ways += ["Add a reward for the format."] * (extract == "answer_tag" and not facts.has("tags"))
        others = [how for how in list(MARKS)[: 3 if fitting == "numeric" else 2] if 2 * len(found[how]) >= count]
        ways += [f"Or set extract to {how}: {len(found[how])} of these completions have one." for how in others[:1]]
    return seen, ways


def tags(facts: Facts, function: Mapping[str, Json], shown: ExampleGroup) -> tuple[str, list[str]]:
    """Which tags of a format this group lacks, and what makes it show them."""
    names = function.get("tags")
    marks = [mark for tag in (names if isinstance(names, list) else []) for mark in (f"<{tag}>", f"</{tag}>")]
    asked = (
        shown.prompt.rstrip() if int(facts.number("rewards.reading", FIRST)) > FIRST else ""
    )  # whose last tag counts as given
    missing = [mark for mark in marks if not (asked.endswith(mark) or any(mark in text for text in shown.texts))]
    seen = f"none of {len(shown.texts)} completions has {' or '.join(missing)}"
    if not missing:
        seen = f"each tag occurs, but not all once, in order, with nothing around them; one ends with {quoted(shown.texts[0])}"
    ways, begun = form(facts, shown, marks), [mark for mark in missing if shown.prompt.rstrip().endswith(mark)]
    if begun:
        ways = [f"The prompt ends with {begun[0]}, so no completion writes it: reward the others as keywords instead."]
    elif not facts.has("patterns"):
        ways.append("Pay for parts of the form, too: a reward for its tags as keywords scores the share that is there.")
    return f" In step {shown.step} {seen}.", ways


def form(facts: Facts, shown: ExampleGroup, marks: Sequence[str]) -> list[str]:
    """What lets completions show these marks: room to get there, and a prompt that asks for them, unless it does."""
    limit, where = facts.number("sampling.max_new_tokens", 0), " (task.system_prompt)"
    cut = f"{shown.cut} of these completions were cut at {limit:g} tokens: raise sampling.max_new_tokens."
    ask = f"Ask for {' and '.join(marks)} in the prompt{where * (facts.text('task.prompt_format') != 'raw')}."
    if all(mark in shown.prompt for mark in marks):
        ask = "The prompt asks for it: show a whole answer in it, or start from a model that has learned the form (a warm start)."
    return [cut if 2 * shown.cut >= len(shown.texts) else ask]


@rule(
    "One reward decides alone",
    f"over the last {RECENT} steps one component brings at least {percent(DOMINANT)} of the sum of (weight × std)², although it has at "
    f"most {percent(MINOR_WEIGHT)} of the weight. Another component must have room to improve: a mean score below {DONE:g} (of a "
    f"penalty: above {1 - DONE:.2g})",
    "reward",
)
def component_dominates(facts: Facts) -> Finding | None:
    """GRPO sees differences only: a component moves the policy by weight × std, not by its weight."""
    weighing = weights(facts.config)
    spread = _variances(facts, weighing)
    total = sum(spread.values())
    if len(weighing) < 2 or total == 0:
        return None
    name = max(spread, key=lambda each: spread[each])
    share, weight = spread[name] / total, abs(weighing[name]) / sum(map(abs, weighing.values()))
    known = {name, *facts.always_zero()}  # component_at_zero speaks of those
    silent = [other for other in weighing if other not in known and not _done(facts, other, weighing[other])]
    if share < DOMINANT or weight > MINOR_WEIGHT or not silent:
        return None
    steps = facts.recent(f"rewards/{name}/std").values
    scaled, dpo = facts.estimator.reads == "components", facts.text("algorithm.surrogate.kind") == "dpo"
    refused = dpo or facts.at("rewards.gates") or facts.text("algorithm.kl.placement") == "reward"
    ways = {
        f"lower the weight of {name}": True,
        "bring the scores to one scale": not scaled,
        "normalise each reward by itself (advantage normalize_then_sum)": not (scaled or refused),
    }
    means = ", ".join(f"{other} {figure(facts.recent(f'rewards/{other}/mean').mean or 0.0)}" for other in silent)
    return Finding(
        title=f"The reward {name} decides alone",
        measured=f"Over {span(steps)} {percent(share)} of the reward's variance came from {name}, which has {percent(weight)} of the "
        f"weight. Mean scores of the others: {means}.",
        advice=f"The run learns {name} and hardly anything else: {one_of(ways)}.",
        numbers={"variance_share": share, "weight_share": weight},
        evidence=evidence(steps, *(f"rewards/{each}/std" for each in (name, *silent)), step=max(steps)),
    )


def _variances(facts: Facts, weighing: Mapping[str, float]) -> dict[str, float]:
    """Mean of (weight × std)² over the recent steps, by name; in units of the largest std, since squares of large floats are infinite."""
    stds = {name: list(facts.recent(f"rewards/{name}/std").finite.values()) for name in weighing}
    unit = max((abs(std) for of_name in stds.values() for std in of_name), default=0.0) or 1.0
    return {
        name: sum((weighing[name] * (std / unit)) ** 2 for std in of_name) / len(of_name) if of_name else 0.0
        for name, of_name in stds.items()
    }


def _done(facts: Facts, name: str, weight: float) -> bool:
    """Whether its mean score is as good as it gets: near 1, or near 0 if the weight makes it a penalty."""
    mean = facts.recent(f"rewards/{name}/mean").mean
    if mean is None or not bounded(facts.config, name):
        return False
    return mean >= DONE if weight > 0 else mean <= 1 - DONE
