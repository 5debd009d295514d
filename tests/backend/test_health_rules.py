"""Where each rule begins: silent just below its threshold, and where the same numbers are no fault."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.contract.base import Json
from backend.contract.grpo import GrpoConfig
from backend.contract.stored import put
from backend.health.check import RULES, WATCHED, check
from backend.health.facts import ExampleGroup, Facts, GroupFact, OpenPhase, Stretch

CONFIG: dict[str, Json] = GrpoConfig().model_dump(mode="json")
STEPS = 30
Values = float | None | Sequence[float | None]


def facts(config: Mapping[str, Json] = CONFIG, **metrics: Values) -> Facts:
    """A run of 30 steps; a number stands for all of them, a sequence for the last ones, and two underscores for a slash."""
    series = {"step_time": Stretch(dict.fromkeys(range(STEPS), 1.0))}
    for name, values in metrics.items():
        known = list(values) if isinstance(values, Sequence) else [values] * STEPS
        series[name.replace("__", "/")] = Stretch(dict(zip(range(STEPS - len(known), STEPS), known, strict=True)))
    start = {name: Stretch({s: v for s, v in stretch.values.items() if s < 10}) for name, stretch in series.items()}
    return Facts(config=config, step=STEPS, history=series, start=start, whole=series)


def fired(run: Facts) -> list[str]:
    return [hint.code for hint in check(run).items]


def with_(path: str, value: Json) -> dict[str, Json]:
    """The default configuration with one field changed."""
    return cast("dict[str, Json]", put(CONFIG, path, value))


def fell(first: float, last: float) -> list[float]:
    return [first] * 20 + [last] * 10


def noisy(first: float, last: float, noise: float = 0.002) -> list[float]:
    """From one level to another in a straight line, with noise that alternates in twos."""
    return [first + (last - first) * step / 29 + (noise if step % 4 < 2 else -noise) for step in range(STEPS)]


THRESHOLDS: list[tuple[str, dict[str, Values], dict[str, Values]]] = [
    ("dead_groups", {"frac_reward_zero_std": 0.49}, {"frac_reward_zero_std": 0.5}),
    ("truncation", {"completions__clipped_ratio": 0.24}, {"completions__clipped_ratio": 0.25}),
    ("kl_blow_up", {"kl": [0.1] * 15 + [0.99] * 15}, {"kl": 1.0}),
    ("sampling_mismatch", {"sampling_logprob_diff": 0.049}, {"sampling_logprob_diff": 0.05}),
    ("unscored", {"frac_unscored": 0.009}, {"frac_unscored": 0.01}),
    ("all_rewards_zero", {"reward": [0.0, 0.0, 0.1], "reward_std": 0.0}, {"reward": [0.0] * 3, "reward_std": 0.0}),
    ("all_rewards_zero", {"reward": 0.0, "reward_std": 0.1}, {"reward": 0.0, "reward_std": 0.0}),
    ("entropy_collapse", {"entropy": fell(0.4, 0.081), "reward": 0.5}, {"entropy": fell(0.4, 0.079), "reward": 0.5}),
    (
        "length_drift",
        {"completions__mean_length": fell(20, 39), "reward": 0.5, "reward_std": 0.4},
        {"completions__mean_length": fell(20, 40), "reward": 0.5, "reward_std": 0.4},
    ),
    (
        "length_drift",
        {"completions__mean_length": fell(20, 11), "reward": 0.5, "reward_std": 0.4},
        {"completions__mean_length": fell(20, 10), "reward": 0.5, "reward_std": 0.4},
    ),
    ("gradient_explodes", {"grad_norm": [0.4] * 28 + [4.1, 4.1]}, {"grad_norm": [0.4] * 27 + [4.1, 4.1, 4.1]}),
    ("gradient_explodes", {"grad_norm": [0.05] * 27 + [0.9] * 3}, {"grad_norm": [0.05] * 27 + [1.1] * 3}),
    ("gradient_clipped", {"grad_norm": [0.9] * 3 + [1.5] * 17}, {"grad_norm": [0.9] * 2 + [1.5] * 18}),
    ("skipped_updates", {"grad_norm": 0.0}, {"grad_norm": [0.4] * 29 + [None]}),
    ("loss_near_zero", {"loss": 0.011, "grad_norm": 0.4}, {"loss": 0.009, "grad_norm": 0.4}),
    ("loss_near_zero", {"loss": 0.0, "grad_norm": 0.0}, {"loss": 0.0, "grad_norm": 0.01}),
    ("loss_near_zero", {"loss": 0.0, "grad_norm": fell(0.4, 0.0039)}, {"loss": 0.0, "grad_norm": fell(0.4, 0.0041)}),
    (
        "component_dominates",
        {"reward": 0.5, "rewards__format__std": 0.26, "rewards__correctness__std": 0.01, "rewards__correctness__mean": 0.1},
        {"reward": 0.5, "rewards__format__std": 0.28, "rewards__correctness__std": 0.01, "rewards__correctness__mean": 0.1},
    ),
    (
        "truth_falls",
        {"reward": noisy(0.4, 0.6), "rewards__correctness__mean": noisy(0.5, 0.48)},
        {"reward": noisy(0.4, 0.6), "rewards__correctness__mean": noisy(0.5, 0.46)},
    ),
    (
        "truth_falls",
        {"reward": noisy(0.4, 0.6, 0.2), "rewards__correctness__mean": noisy(0.5, 0.2)},
        {"reward": noisy(0.4, 0.6, 0.02), "rewards__correctness__mean": noisy(0.5, 0.2)},
    ),
    ("flat_reward", {"reward": noisy(0.5, 0.6, 0.01), "reward_std": 0.3}, {"reward": noisy(0.5, 0.5, 0.01), "reward_std": 0.3}),
    ("flat_reward", {"reward": noisy(0.5, 0.5, 0.2), "reward_std": 0.3}, {"reward": noisy(0.5, 0.5, 0.05), "reward_std": 0.3}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "below", "at"), THRESHOLDS, ids=[f"{n} {row[0]}" for n, row in enumerate(THRESHOLDS)])
def test_a_rule_fires_at_its_threshold_and_not_below(
    code: str, below: dict[str, Values], at: dict[str, Values]
) -> None:
    assert code not in fired(facts(**below))
    assert code in fired(facts(**at))


def test_what_looks_the_same_and_is_no_fault_is_no_hint() -> None:
    solved = facts(entropy=fell(0.4, 0.01), reward=fell(0.5, 0.95), reward_std=0.3)
    longer_and_better = facts(completions__mean_length=fell(20, 80), reward=fell(0.3, 0.5), reward_std=0.4)
    learned_format = facts(
        reward=0.9, rewards__format__std=0.3, rewards__correctness__std=0.0, rewards__correctness__mean=1.0
    )
    one_odd_step = facts(kl=[0.1] * 29 + [40.0])
    all_kl_penalty = facts(loss=0.02, kl=0.5, grad_norm=0.4)
    compares_no_siblings = facts(with_("algorithm.advantage", {"kind": "batch_baseline"}), frac_reward_zero_std=1.0)
    for run in (solved, longer_and_better, learned_format, one_odd_step, all_kl_penalty, compares_no_siblings):
        assert fired(run) == []


def test_a_reward_that_fell_to_0_is_a_collapse_whose_cause_comes_first() -> None:
    fallen = facts(reward=[0.6, 0.63, 0.2] + [0.0] * 27, reward_std=0.0, kl=[0.0] * 10 + [8.0] * 20)
    later = replace(fallen, history={**fallen.history, "reward": Stretch(dict.fromkeys(range(20, STEPS), 0.0))})
    for run in (fallen, later):  # also once the fall is further back than the history that is read
        cause, effect = check(run).items
        assert (cause.code, effect.title) == ("kl_blow_up", "The reward has collapsed to 0")
        assert "At step 1 it was 0.63." in effect.measured
        assert "easier prompts" not in effect.advice
        assert "lower learning rate (now 5e-5) or a larger algorithm.kl.beta (now 0.04)" in effect.advice
        assert effect.evidence is not None
        assert effect.evidence.metrics[:2] == ["reward", "kl"]


def test_a_reward_that_was_hardly_ever_above_0_has_not_collapsed() -> None:
    for rewards in ([0.0] * 30, [0.0, 0.0, 0.1] + [0.0] * 27):
        (hint,) = check(facts(reward=rewards, reward_std=0.0)).items
        assert hint.title == "Every reward is 0"
        assert "easier prompts" in hint.advice


@pytest.mark.parametrize(
    ("code", "broken"),
    [
        ("all_rewards_zero", {"reward": 0.0, "reward_std": 0.0}),
        ("kl_blow_up", {"kl": 1.5}),
        ("entropy_collapse", {"entropy": fell(0.4, 0.01), "reward": 0.5}),
    ],
)
def test_a_broken_policy_is_never_told_that_its_loss_of_0_is_as_it_should_be(
    code: str, broken: dict[str, Values]
) -> None:
    assert fired(facts(loss=0.0, grad_norm=0.4)) == ["loss_near_zero"]
    assert fired(facts(loss=0.0, grad_norm=0.4, **broken)) == [code]


def test_dead_groups_are_solved_only_where_the_highest_reward_is_known_and_near() -> None:
    learned: Json = [{"name": "model", "kind": "reward_model", "weight": 1.0, "source": "run:1@2"}]
    groups = [GroupFact(29, "zero_variance", 7.0)]
    of_correctness = facts(frac_reward_zero_std=1.0, reward=0.81)
    half_right = facts(frac_reward_zero_std=1.0, reward=0.79)
    of_a_model = facts(with_("rewards.functions", learned), frac_reward_zero_std=1.0, reward=7.0)
    levels = [check(replace(run, groups=groups)).items[0].level for run in (of_correctness, half_right, of_a_model)]
    assert levels == ["note", "warning", "warning"]


OWN_BESIDE_CORRECTNESS: Json = [
    {"name": "right", "kind": "python", "weight": 1.0, "function": "right.py:reward"},
    {"name": "correctness", "kind": "correctness", "weight": 0.0},
]


@pytest.mark.parametrize(
    ("share", "levels"),
    [(0.95, {"dead_groups": "note"}), (0.5, {"entropy_collapse": "warning", "dead_groups": "warning"})],
)
def test_without_a_highest_reward_the_share_of_right_answers_says_whether_a_task_is_solved(
    share: float, levels: dict[str, str]
) -> None:
    series: dict[str, Values] = {"entropy": fell(0.4, 0.01), "reward": fell(0.5, 0.995), "reward_std": fell(0.4, 0.01)}
    series |= {"frac_reward_zero_std": 0.9, "rewards__correctness__mean": share}
    run = facts(with_("rewards.functions", OWN_BESIDE_CORRECTNESS), **series)
    found = check(replace(run, groups=[GroupFact(29, "zero_variance", 1.0)] * 153)).items
    assert {hint.code: hint.level for hint in found} == levels
    dead = next(hint for hint in found if hint.code == "dead_groups")
    says = "90 % of the groups of steps 20 to 29 were dead; the rewards of each of these 153 were all equal, at 1."
    assert dead.measured == says
    assert ("The model has learned most" in dead.advice) is (share > 0.9)
    assert "dead_all_right" not in dead.numbers


def test_a_penalty_that_is_never_due_does_not_make_the_other_reward_dominate() -> None:
    functions: Json = [
        {"name": "correctness", "kind": "correctness", "weight": 1.0},
        {"name": "overlong", "kind": "length", "weight": -1.0},
    ]
    spread: dict[str, Values] = {"rewards__correctness__std": 0.4, "rewards__correctness__mean": 0.5}
    spread |= {"reward": 0.5, "rewards__overlong__std": 0.0}
    config = with_("rewards.functions", functions)
    assert fired(facts(config, **spread, rewards__overlong__mean=0.0)) == []
    assert fired(facts(config, **spread, rewards__overlong__mean=1.0)) == ["component_dominates"]


def test_an_adapter_at_a_low_rate_is_told_until_it_learns() -> None:
    config = with_("model.lora", {"rank": 8, "alpha": 16})
    assert fired(Facts(config=config)) == ["lora_rate"]
    assert fired(facts(config, reward=fell(0.2, 0.5), reward_std=0.4)) == []


def test_a_short_phase_is_open_for_long_only_after_half_a_minute() -> None:
    run = replace(facts(time__reward=0.01), phase=OpenPhase("reward", 29.0))
    assert fired(run) == []
    assert fired(replace(run, phase=OpenPhase("reward", 31.0))) == ["phase_open"]
    assert fired(replace(facts(time__rollout=20.0), phase=OpenPhase("rollout", 119.0))) == []
    assert fired(replace(run, phase=OpenPhase("evaluation", 900.0))) == []  # nobody knows how long that takes


def test_a_configuration_of_another_version_is_read_as_far_as_it_goes() -> None:
    strange: dict[str, Json] = {"rewards": {"functions": "none"}, "sampling": [1, 2], "algorithm": None}
    run = facts(strange, frac_reward_zero_std=1.0, completions__clipped_ratio=1.0, kl=5.0, grad_norm=2.0, loss=0.0)
    assert fired(run) == ["kl_blow_up", "truncation", "gradient_clipped"]


FORMAT: dict[str, Json] = {"kind": "format", "name": "format", "weight": 0.1, "tags": ["think", "answer"]}
GRADER: Json = {"kind": "judge", "name": "grader", "instruction": "{prompt} {completion} {answer}"}
GSM8K, MATH = "6 x 7 is\n#### 42", r"So the half is \boxed{\frac{1}{2}}."
LONG_TEXT = "Rivers carry sand to the sea, where it sinks, hardens and becomes stone again."
EXAMPLES: list[tuple[dict[str, Json], str | None, list[str], str]] = [
    ({}, GSM8K, ["<answer>42</answer>", "<answer>4</answer>"], "ends in “42”, and no answer repeats it. Set match to numeric: then 1 of these 2"),
    ({}, GSM8K, ["It is 42.", "7"], "Set extract to last_number and match to numeric: then 1 of these 2"),
    ({"extract": "boxed"}, MATH, [r"\boxed{\frac{1}{2}}"], "Set match to symbolic: then 1 of these 1"),
    ({"match": "numeric"}, "18", ["<answer>18 dollars</answer>"], "Set extract to last_number: then 1"),
    ({"extract": "whole"}, "B", ["I think so. <answer>B</answer>"], "Set extract to answer_tag: then 1"),
    ({}, "B", ["<answer>(b)</answer>"], "differ in signs or capitals"),
    ({}, LONG_TEXT, ["<answer>It hardens.</answer>"], "word for word: let a judge compare them."),
    ({"also": GRADER}, LONG_TEXT, ["<answer>It hardens.</answer>"], "leave that to grader"),
    ({}, "B", ["No.", "Perhaps."], "Ask for <answer> and </answer> in the prompt (task.system_prompt). Add a reward for the format."),
    ({"also": FORMAT}, "B", ["No.", "Perhaps."], "in the prompt (task.system_prompt)."),
    ({"asks": "Write <answer>…</answer>"}, "B", ["No."], "The prompt asks for it: show a whole answer in it"),
    ({"cut": 1}, "B", ["Well, let me"], "1 of these completions were cut at 48 tokens: raise sampling.max_new_tokens."),
    ({}, "42", ["7", "8"], "Or set extract to last_number: 2 of these completions have one."),
    ({"task": "countdown"}, None, ["<answer>1 + 2</answer>"], "If none is, take easier prompts"),
    ({**FORMAT}, "42", ["<answer>42</answer>"], "Ask for <think> and </think> and <answer> and </answer> in the prompt"),
    ({**FORMAT, "asks": "Answer:<think>"}, "42", ["12</think><answer>42</answer>"], "The prompt ends with <think>, so no completion"),
    ({"kind": "python"}, "42", ["42"], "mend the function"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "answer", "texts", "says"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_a_reward_that_is_always_0_says_with_an_example_what_to_change(
    given: dict[str, Json], answer: str | None, texts: list[str], says: str
) -> None:
    also, function = given.get("also"), {"kind": "correctness", **given, "name": "right"}
    config = with_("rewards.functions", [function, *([also] if also else [])])
    config["task"] = {"kind": given.get("task", "dataset")}
    example = ExampleGroup(29, str(given.get("asks", "")), answer, texts, int("cut" in given))
    run = replace(facts(config, reward=0.2, rewards__right__mean=0.0, rewards__right__std=0.0), example=example)
    hint = check(run).items[0]
    assert (hint.code, hint.title) == ("component_at_zero", "The reward right is always 0")
    assert says in hint.advice
    assert ("Add a reward for the format" in hint.advice) <= (also != FORMAT)
    assert answer is None or "kind" in given or f"“{' '.join(answer.split())}”" in hint.measured


ZERO: dict[str, Values] = {"rewards__correctness__mean": 0.0, "rewards__correctness__std": 0.0}


@pytest.mark.parametrize(
    ("config", "metrics", "codes"),
    [
        (CONFIG, {"reward": 0.0, "reward_std": 0.0}, ["component_at_zero"]),
        (CONFIG, {"reward": [0.6] * 20 + [0.0] * 10, "reward_std": fell(0.4, 0.0)}, ["component_at_zero", "all_rewards_zero"]),
        (CONFIG, {"reward": 0.1, "frac_reward_zero_std": 0.8, "kl": 2.0}, ["component_at_zero", "kl_blow_up", "dead_groups"]),
        (with_("algorithm.truncated_completions", "mask"), {"reward": 0.1, "completions__clipped_ratio": 0.9}, ["component_at_zero", "everything_masked"]),
        (CONFIG, {"reward": 0.1, "rewards__correctness__mean": [0.0, 0.0]}, []),
        (CONFIG, {"reward": 0.1, "rewards__correctness__mean": [0.1] + [0.0] * 29}, []),
        (CONFIG, {"reward": 0.1, "rewards__correctness__std": 0.2}, []),
        (with_("rewards.functions", [{"kind": "length", "name": "correctness", "weight": -1.0}]), {"reward": 0.5}, []),
        (with_("rewards.functions", [{"kind": "correctness", "name": "correctness", "weight": 0.0}]), {"reward": 0.5}, []),
    ],
)  # fmt: skip
def test_what_is_always_0_comes_first_and_no_other_rule_speaks_of_it_in_its_way(
    config: dict[str, Json], metrics: dict[str, Values], codes: list[str]
) -> None:
    found = check(facts(config, **{**ZERO, **metrics})).items
    assert [hint.code for hint in found] == codes
    first = "First see why the reward correctness is always 0"
    assert all(first in hint.advice for hint in found if hint.code == "dead_groups")


RAMBLES: dict[str, Values] = {"completions__mean_length": fell(20, 60), "reward": 0.5, "reward_std": 0.4}
ALONE: dict[str, Values] = {"reward": 0.5, "rewards__format__std": 0.4, "rewards__correctness__std": 0.01}
LOST: dict[str, Values] = {"entropy": fell(0.4, 0.01), "reward": 0.5}


@pytest.mark.parametrize(
    ("path", "value", "metrics", "taken", "still"),
    [
        ("algorithm.truncated_completions", "mask", {"completions__clipped_ratio": 0.5}, "truncated_completions: mask", "Raise sampling.max"),
        ("algorithm.truncated_completions", "keep", {"completions__clipped_ratio": 0.95}, "mask", "Raise sampling.max"),
        ("task.system_prompt", "Be brief.", {"completions__clipped_ratio": 0.5}, "system prompt", "truncated_completions: mask"),
        ("algorithm.dead_groups", "resample", {"frac_reward_zero_std": 0.8}, "dead_groups: resample", "resample_rounds"),
        ("sampling.group_size", 64, {"frac_reward_zero_std": 0.8}, "larger groups", "dead_groups: resample"),
        ("rewards.time_limit", 600, {"frac_unscored": 0.1}, "time_limit", "mend the function"),
        ("algorithm.aggregation", "token_mean", RAMBLES, "aggregation", "add a length reward"),
        ("rewards.functions", [{"name": "short", "kind": "length", "ramp": 64}], RAMBLES, "add a length", "raise the weight of short"),
        ("algorithm.advantage", {"kind": "normalize_then_sum"}, ALONE, "normalise each reward", "lower the weight of format"),
        ("algorithm.entropy_bonus", 0.01, LOST, "an entropy bonus", "a larger entropy bonus (now 0.01)"),
        ("algorithm.updates_per_batch", 1, LOST, "clip bound", "a lower learning rate"),
        ("sampling.engine", "native", {"sampling_logprob_diff": 0.2}, "engine: native", "compare with model.dtype: float32"),
        ("model.dtype", "float32", {"sampling_logprob_diff": 0.2}, "float32", "please report it"),
    ],
)  # fmt: skip
def test_no_advice_is_what_the_run_does_already(
    path: str, value: Json, metrics: dict[str, Values], taken: str, still: str
) -> None:
    (hint,) = check(facts(with_(path, value), **metrics)).items
    assert (taken in hint.advice, still in hint.advice) == (False, True)


EXTREMES = st.sampled_from([1.7e308, -1.7e308, 5e-324, 0.0, 1.0]) | st.floats(allow_nan=False, allow_infinity=False)
COMPONENTS = [f"rewards/{name}/{what}" for name in ("correctness", "format") for what in ("mean", "std")]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from([*WATCHED, *COMPONENTS]), st.lists(EXTREMES, min_size=1, max_size=4)))
def test_whatever_finite_numbers_a_run_has_its_health_is_answered(kinds: dict[str, list[float]]) -> None:
    metrics: dict[str, Values] = {name: [of[step % len(of)] for step in range(STEPS)] for name, of in kinds.items()}
    check(facts(**metrics)).model_dump_json()


def test_the_largest_numbers_have_a_mean_a_median_and_a_share() -> None:
    huge = Stretch(dict.fromkeys(range(10), 1.7e308))
    assert (huge.mean, huge.median) == (1.7e308, 1.7e308)
    spread = {"rewards__format__std": 1.7e308, "rewards__correctness__std": 1.0, "rewards__correctness__mean": 0.1}
    assert fired(facts(reward=0.5, **spread)) == ["component_dominates"]


def test_the_documented_rules_are_those_of_the_code_whose_codes_are_unique_and_words_whole() -> None:
    page = (Path(__file__).parents[2] / "docs/inspector/health.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [\w ]+ \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(rule.code, rule.words) for rule in RULES]
    assert len(dict(rows)) == len(RULES)
    assert not any(words.endswith(".") or "|" in words for _, words in rows)


def test_held_out_answers_that_fall_beyond_chance_are_a_hint_while_the_reward_rises() -> None:
    rising = facts(with_("budget.eval_items", 400), reward=noisy(0.4, 0.6))
    for last, codes in ((0.75, ["truth_falls"]), (0.8, [])):
        known = {0: 0.3, 10: 0.88, 20: last}
        assert fired(replace(rising, evaluations=Stretch(known))) == codes  # 0.88 is the best of few
    falling = facts(with_("budget.eval_items", 400), reward=noisy(0.6, 0.4))
    assert "truth_falls" not in fired(replace(falling, evaluations=Stretch({0: 0.9, 20: 0.5})))


def test_near_ties_are_a_hint_unless_a_floor_keeps_them_small() -> None:
    groups = [GroupFact(29, "live", 0.5, 0.001 if place < 4 else 0.4) for place in range(24)]
    assert fired(replace(facts(), groups=groups)) == ["near_ties"]
    assert fired(replace(facts(with_("algorithm.advantage.std_floor", 0.05)), groups=groups)) == []
    assert fired(replace(facts(with_("algorithm.advantage", {"kind": "group_center"})), groups=groups)) == []
    assert fired(replace(facts(), groups=groups[3:])) == []  # one of 21


@pytest.mark.parametrize(
    ("metrics", "cause"),
    [
        ({"frac_reward_zero_std": 0.6}, "60 % of the groups are dead"),
        ({"completions__clipped_ratio": 0.5}, "50 % of the completions are cut"),
        ({"kl": 1e-6}, "the policy has hardly moved"),
        ({}, "none that the metrics show"),
    ],
)
def test_a_flat_reward_names_its_likeliest_cause(metrics: dict[str, Values], cause: str) -> None:
    run = facts(reward=noisy(0.5, 0.5, 0.01), reward_std=0.3, **metrics)
    [hint] = [hint for hint in check(run).items if hint.code == "flat_reward"]
    assert f"Likeliest cause: {cause}" in hint.measured
    assert hint.level == "note"


RECORDED: dict[str, Json] = {
    "kind": "recorded",
    "algorithm": {"advantage": {"kind": "group_zscore"}, "surrogate": {"kind": "clip"}},
    "rewards": {"functions": [{"name": "right", "weight": None}, {"name": "form", "weight": None}]},
}
NOT_KNOWN = "run ends by itself|run fails|not applied|worker|native|now 0|= 0|= 1|(algorithm|sampling|rewards|model|optimizer)[.]"


@pytest.mark.parametrize(
    ("code", "metrics"),
    [
        ("kl_blow_up", {"kl": 2.0}),
        ("entropy_collapse", {"entropy": fell(0.4, 0.01), "reward": 0.5}),
        ("all_rewards_zero", {"reward": 0.0, "reward_std": 0.0}),
        ("all_rewards_zero", {"reward": fell(0.5, 0.0), "reward_std": fell(0.4, 0.0)}),
        ("dead_groups", {"frac_reward_zero_std": 0.8}),
        ("truncation", {"completions__clipped_ratio": 0.95}),
        ("unscored", {"frac_unscored": 0.1}),
        ("length_drift", {"completions__mean_length": fell(20, 60), "reward": 0.5, "reward_std": 0.4}),
        ("sampling_mismatch", {"sampling_logprob_diff": 0.2}),
        ("gradient_explodes", {"grad_norm": [0.4] * 20 + [9.0] * 10}),
        (None, {"grad_norm": [0.4] * 29 + [None]}),
        (None, {"grad_norm": 2.0}),
        (None, {"loss": 0.0, "grad_norm": 0.4}),
        (None, {"reward": 0.5, "rewards__form__std": 0.4, "rewards__right__std": 0.01, "rewards__right__mean": 0.1}),
    ],
)
def test_of_a_run_that_another_program_trains_only_what_is_known_is_said(
    code: str | None, metrics: dict[str, Values]
) -> None:
    found = check(facts(RECORDED, **metrics)).items
    assert [hint.code for hint in found] == [code] * (code is not None)
    assert [re.findall(NOT_KNOWN, f"{hint.measured} {hint.advice}") for hint in found] in ([], [[]])


def test_a_silent_program_is_no_worker_and_what_its_configuration_says_is_known() -> None:
    run = replace(Facts(config=RECORDED), silence=40.0, lost_attempts=1)
    assert [hint.title for hint in check(run).items] == ["The program is gone", "The program was lost"]
    assert not re.search("worker|went on", " ".join(f"{hint.measured} {hint.advice}" for hint in check(run).items))
    assert fired(facts(RECORDED | {"theirs": {"max_grad_norm": 1.0}}, grad_norm=2.0)) == ["gradient_clipped"]


@pytest.mark.parametrize(
    ("config", "metrics", "steps", "says"),
    [
        (RECORDED, {"grad_norm": [0.4] * 29 + [None]}, {"grad_norm": [29], "vf_loss": [29]}, "grad_norm was NaN or infinite in 1 of the last 30 steps: 29. So was vf_loss."),
        (RECORDED, {}, {"eval/loss": [20]}, "eval/loss was NaN"),
        (CONFIG, {}, {"entropy": [12]}, "entropy was NaN"),
        (CONFIG, {"grad_norm": [0.4] * 29 + [0.0]}, {"entropy": [29]}, None),
        (CONFIG, {"grad_norm": [0.4] * 29 + [None]}, {"grad_norm": [29], "loss": [29]}, None),
        (CONFIG, {"frac_unscored": [0.0] * 29 + [0.001]}, {"rewards/format/mean": [29]}, None),
    ],
)  # fmt: skip
def test_a_metric_that_is_not_finite_is_named_unless_that_step_had_nothing_to_measure(
    config: dict[str, Json], metrics: dict[str, Values], steps: dict[str, list[int]], says: str | None
) -> None:
    found = [
        hint for hint in check(replace(facts(config, **metrics), not_finite=steps)).items if hint.code == "not_finite"
    ]
    assert [says is not None and says in hint.measured for hint in found] == [True] * (says is not None)
    assert all("run ends by itself" not in hint.advice for hint in found)
