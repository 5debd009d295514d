"""A run as its worker would report it: metrics that settle, groups that are learned, texts and token traces of the extremes.

The texts are sentences of a reasoning about numbers, made of common words and of rare ones, token by token.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import exp
from statistics import fmean, pstdev

import numpy as np

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.groups import CompletionData, GroupReport, RewardScore
from backend.contract.grpo import GrpoConfig
from backend.contract.trace_file import lists, packed
from scale.plan import METRICS, RunPlan

COMMON = "because"  # in about every second completion
RARE = "perihelion"  # in one of very many
SENTENCES = 20_000
MOST_TOKENS, FEWEST_TOKENS = 200, 20

_TEMPLATES = (
    "First , we add # and # , which gives # .",
    "The @ of the @ is # , so # remain .",
    "Then multiply # by # : the product is # .",
    "Since every @ holds # of them , there are # in all .",
    "That is right because # x # = # .",
    "Wait , the @ says # and not # ; let me check this again .",
    "Subtracting # from # leaves # .",
    "We know that the @ costs # , and two of them # .",
    "Half of # is # , which is what the @ asks for .",
    "So the @ has # , because # were taken away .",
)
_SYLLABLES = (
    "ba", "ce", "di", "fo", "gu", "ha", "ki", "lo", "mer", "nas", "or", "pel", "qui", "ros", "tan", "ver", "win",
)  # fmt: skip
_END = ("</think>", "\n", "<answer>", "#", "</answer>")

Tokens = tuple[str, ...]

EPS = 1e-8
EVALUATED_EVERY = 100
PROBES, PROBED_EVERY = 2, 20  # as telemetry's defaults, counted in steps with groups
_WEIGHTS = {"correctness": 0.8, "format": 0.1, "length": 0.1}
_PER_TOKEN = ("sampling_logprob", "old_logprob", "logprob", "reference_logprob", "entropy", "ratio", "kl")
# first value, last value, noise; what is not named moves from 1 to 2
_COURSES = {
    "reward": (0.45, 0.92, 0.03), "reward_std": (0.4, 0.2, 0.02), "group_reward_std": (0.35, 0.12, 0.02),
    "frac_reward_zero_std": (0.1, 0.35, 0.03), "frac_filtered": (0, 0, 0), "frac_unscored": (0, 0, 0),
    "rewards/correctness/mean": (0.4, 0.9, 0.03), "rewards/format/mean": (0.7, 0.99, 0.01),
    "rewards/length/mean": (0.8, 0.95, 0.02), "kl": (0, 0.04, 0.002),
    "completions/mean_length": (110, 124, 3), "completions/min_length": (20, 24, 2), "completions/max_length": (196, 200, 2),
    "completions/clipped_ratio": (0.06, 0.01, 0.004), "entropy": (0.45, 0.3, 0.01), "loss": (0, 0.0016, 2e-4),
    "grad_norm": (0.45, 0.3, 0.05), "learning_rate": (2e-5, 2e-5, 0), "ratio_mean": (1, 1, 0),
    "clip_ratio/low_mean": (0, 0, 0), "clip_ratio/high_mean": (0, 0, 0), "sampling_logprob_diff": (2e-6, 2e-6, 1e-7),
    "step_time": (31, 33, 0.6), "time/rollout": (20, 21, 0.4), "time/reward": (0.2, 0.2, 0.02),
    "time/reference": (3, 3, 0.05), "time/update": (8, 9, 0.1), "time/report": (0.02, 0.02, 0.002),
    "tokens_per_second": (2800, 2900, 60),
}  # fmt: skip


class Writer:
    """Writes completions; the same seed writes the same."""

    def __init__(self, seed: int, rare_every: int) -> None:
        self._sentences = _sentences()
        self._draw, self._rare_every = random.Random(seed), rare_every

    def completion(self, answer: int, *, closed: bool) -> Tokens:
        """A reasoning and its answer, of 20 to 200 tokens; one that was cut at its limit is not `closed` and lacks the last 5."""
        length = self._draw.randint(FEWEST_TOKENS, MOST_TOKENS) - len(_END)
        tokens: list[str] = ["<think>"]
        if self._draw.randrange(self._rare_every) == 0:
            tokens += [" At", " the", " per", "ihelion", ","]
        while len(tokens) < length:
            tokens += self._draw.choice(self._sentences)
        tokens = tokens[:length]
        return (*tokens, *(part.replace("#", str(answer)) for part in _END)) if closed else tuple(tokens)


def prompt(number: int) -> str:
    """The question of an item."""
    draw = random.Random(number)
    a, b, c = (draw.randint(2, 90) for _ in range(3))
    return (
        f"A shop sells {a} boxes with {b} pencils each. On Monday {c} pencils are taken out of every tenth box, and the rest "
        f"is shared among {draw.randint(2, 9)} schools. How many pencils does each school get? (item {number})"
    )


@cache
def _sentences() -> list[Tokens]:
    draw = random.Random(0)
    nouns = ["".join(draw.choices(_SYLLABLES, k=draw.randint(2, 4))) for _ in range(4000)]
    often = list(accumulate(1 / rank for rank in range(1, len(nouns) + 1)))  # Zipf's law
    chosen = iter(draw.choices(nouns, cum_weights=often, k=4 * SENTENCES))
    return [_sentence(draw.choice(_TEMPLATES), draw, chosen) for _ in range(SENTENCES)]


def _sentence(template: str, draw: random.Random, nouns: Iterator[str]) -> Tokens:
    tokens: list[str] = []
    for part in template.split():
        word = part
        if part == "#":
            word = str(draw.randint(2, 999))
        elif part == "@":
            word = next(nouns)
        joined = word if part in ",.;:" else f" {word}"
        tokens += [joined[:6], joined[6:]] if len(joined) > 8 else [joined]
    return tuple(tokens)


@dataclass(frozen=True)
class _Sampled:
    """A completion beside its tokens."""

    tokens: Tokens
    raw: dict[str, float]

    @property
    def reward(self) -> float:
        return sum(weight * self.raw[name] for name, weight in _WEIGHTS.items())


def config(run: RunPlan) -> dict[str, Json]:
    """The run's configuration; what the long runs differ in are their seeds and two learning rates."""
    stored = GrpoConfig().model_dump(mode="json")
    correctness, form = stored["rewards"]["functions"]
    length = {"name": "length", "weight": 0.1, "kind": "length", "maximum": 180}
    stored["rewards"]["functions"] = [{**correctness, "weight": 0.8}, form, length]
    stored["sampling"] |= {"prompts_per_step": run.groups, "group_size": run.group_size, "max_new_tokens": 200}
    stored["budget"] |= {"steps": run.total_steps, "seed": run.seed // 2, "eval_every": EVALUATED_EVERY}
    stored["optimizer"] |= {"learning_rate": 2e-5 if run.seed % 2 else 5e-5}
    return stored


class Reporter:
    """Reports one attempt, step after step."""

    def __init__(self, run: RunPlan, attempt: int, seq: int = 0) -> None:
        self._run, self._attempt, self._seq = run, attempt, seq
        self._draw = random.Random(f"{run.name} {seq}")
        self._writer = Writer(run.seed, run.rare_every)
        self._noise = np.random.default_rng(run.seed + seq)

    def step(self, step: int) -> Iterator[p.Report]:
        """The step's report, and before some of them an evaluation's."""
        if step % EVALUATED_EVERY == 0:
            right = 0.5 + 0.4 * self._progress(step) + self._draw.gauss(0, 0.01)
            evaluated = {"eval/pass@1": right, "eval/greedy_pass@1": right - 0.02, "eval/reward": right}
            yield self._numbered(step=step, metrics={**evaluated, "eval/mean_length": 115.0})
        groups, trace = list[GroupReport](), None
        if self._run.has_groups(step):
            # For each group the number of its prompt, and its completions.
            epoch, place = divmod((step // self._run.grouped_every) * self._run.groups, self._run.prompts)
            order = random.Random(f"{self._run.seed} {epoch}").sample(range(self._run.prompts), self._run.prompts)
            numbers = [order[(place + index) % self._run.prompts] for index in range(self._run.groups)]
            sampled = [(number, self._completions(number, step)) for number in numbers]
            groups = [_group(index, number, of, self._draw) for index, (number, of) in enumerate(sampled)]
            groups += self._probes(step, len(groups))
            trace = _trace([of for _, of in sampled], self._noise)
        yield self._numbered(step=step, metrics=self._metrics(step), groups=groups, trace=trace, seconds=33.0 * step)

    def _numbered(self, **content: object) -> p.Report:
        self._seq += 1
        return p.Report.model_validate({"attempt": self._attempt, "seq": self._seq - 1, **content})

    def _progress(self, step: int) -> float:
        return 1 - exp(-3 * step / self._run.steps)

    def _metrics(self, step: int) -> dict[str, float | None]:
        done, noise = self._progress(step), self._noise.standard_normal(len(METRICS)).tolist()
        values: dict[str, float | None] = {}
        for name, one in zip(METRICS, noise, strict=True):
            first, last, spread = _COURSES.get(name, (1.0, 2.0, 0.1))
            values[name] = first + (last - first) * done + spread * one
        values["num_tokens"] = 61_000.0 * (step + 1)
        return values

    def _completions(self, number: int, step: int) -> list[_Sampled]:
        hardness = random.Random(number).uniform(-0.4, 0.5)
        skill = min(1.0, max(0.0, 0.3 + 0.6 * self._progress(step) - hardness))
        sampled = []
        for _ in range(self._run.group_size):
            right, closed = self._draw.random() < skill, self._draw.random() < 0.9 + 0.1 * skill
            tokens = self._writer.completion(number if right else self._draw.randint(0, 999), closed=closed)
            raw = {"correctness": float(right and closed), "format": float(closed), "length": float(len(tokens) <= 180)}
            sampled.append(_Sampled(tokens, raw))
        return sampled

    def _probes(self, step: int, first: int) -> list[GroupReport]:
        if (step // self._run.grouped_every) % PROBED_EVERY:
            return []
        numbers = range(self._run.prompts, self._run.prompts + PROBES)
        return [
            _group(first + place, number, self._completions(number, step), self._draw, probe=True)
            for place, number in enumerate(numbers)
        ]


def _group(
    index: int, number: int, sampled: Sequence[_Sampled], draw: random.Random, *, probe: bool = False
) -> GroupReport:
    rewards = [one.reward for one in sampled]
    mean, std = fmean(rewards), pstdev(rewards)
    question = prompt(number)
    return GroupReport(
        index=index,
        prompt_id=f"item-{number}",
        prompt_text=f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n",
        prompt=question,
        answer=str(number),
        state="probe" if probe else "live" if std else "zero_variance",
        scored=len(rewards),
        truncated=sum(not one.raw["format"] for one in sampled),
        reward_mean=mean,
        reward_std=std,
        completions=[
            CompletionData(
                index=place,
                text="".join(one.tokens),
                token_count=len(one.tokens),
                finish_reason="stop" if one.raw["format"] else "length",
                rewards=[RewardScore(name=name, raw=one.raw[name], weight=weight) for name, weight in _WEIGHTS.items()],
                reward=one.reward,
                advantage=None if probe else (one.reward - mean) / (std + EPS) if std else 0.0,
                logprob_sum=-draw.uniform(10, 90),
                kl_mean=draw.uniform(0, 0.05),
                entropy_mean=draw.uniform(0.2, 0.6),
                ratio_mean=1.0,
                clipped_share=0.0,
            )
            for place, one in enumerate(sampled)
        ],
    )


def _trace(groups: Sequence[Sequence[_Sampled]], noise: np.random.Generator) -> p.TraceFile:
    """The tokens of each group's best and worst completion, as telemetry keeps them by default."""
    kept = []
    for index, group in enumerate(groups):
        places = range(len(group))
        extremes = {max(places, key=lambda at: group[at].reward), min(places, key=lambda at: group[at].reward)}
        kept += [(index, place, group[place].tokens) for place in sorted(extremes)]
    pieces = [[token.encode() for token in tokens] for _, _, tokens in kept]
    lengths = [len(tokens) for tokens in pieces]
    measured = {"clipped": lists([np.zeros(length, bool) for length in lengths], np.bool_)}
    for name in _PER_TOKEN:
        drawn = [noise.exponential(0.25, length) for length in lengths]
        values = [np.ones_like(one) if name == "ratio" else one if name in ("entropy", "kl") else -one for one in drawn]
        measured[name] = lists(values, np.float32)
    ids = [noise.integers(0, 50_000, length) for length in lengths]
    return packed([(index, place) for index, place, _ in kept], ids, pieces, measured)
