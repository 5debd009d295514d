"""Runs as a worker would have recorded them: sent through the worker's side of the typed client, trace files included."""

import hashlib
import math
import random
from collections.abc import Sequence
from statistics import fmean, pstdev

import numpy as np
from numpy.typing import NDArray

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.groups import CompletionData, GroupReport, RewardScore
from backend.contract.grpo import GrpoConfig
from backend.contract.recorded import RecordedConfig, Trainer
from backend.contract.records import OwnReward, Progress, RewardFile, RewardText, RunError
from backend.contract.trace_file import lists, packed

WORKER = p.WorkerInfo(name="recorder", device="cpu", store="recorded")
# Takes runs on vLLM, which no real worker of a test offers.
SAMPLER = WORKER.model_copy(update={"name": "sampler", "engines": ["vllm"]})
# What another program says of a run before it records it.
THEIRS = p.Recording(key="k" * 16, worker="a script", name="theirs", config=RecordedConfig(trainer=Trainer(name="TRL")))
EPS = 1e-8


def queue(client: Client, name: str = "recorded", **overrides: Json) -> int:
    """A queued run of the default configuration, with some parts changed."""
    config = GrpoConfig().model_dump(mode="json")
    for part, fields in overrides.items():
        config[part] = {**config[part], **fields} if isinstance(fields, dict) else fields
    return client.create_run(config, name=name).id


def claim(
    client: Client, run_id: int | None = None, *, worker: p.WorkerInfo = WORKER, kind: str = "", **start: object
) -> p.Claim:
    """Claim and start the run: the only one waiting (of that kind) that `worker` can take, and no other worker can."""
    kinds = {"kinds": [kind]} if kind else {}
    claimed = client.ask(p.ClaimRequest.model_validate({"worker": worker, **kinds})).claim
    assert claimed is not None
    assert run_id in (None, claimed.run_id)
    begun = p.Start.model_validate({"attempt": claimed.attempt, "from_step": 0, "device": "cpu", **start})
    client.start(claimed.run_id, begun)
    return claimed


def started(
    client: Client, name: str = "recorded", *, worker: p.WorkerInfo = WORKER, **overrides: Json
) -> tuple[int, p.Claim]:
    """A run of that configuration, claimed and started by `worker`."""
    run_id = queue(client, name, **overrides)
    return run_id, claim(client, run_id, worker=worker)


def scored_by_files(client: Client, texts: Sequence[str], **overrides: Json) -> int:
    """A failed run whose attempts were scored by these texts of right.py, one after the other."""
    own: Json = {"kind": "python", "name": "right", "weight": 1.0, "function": "right.py:reward"}
    run_id = queue(client, rewards={"functions": [own]}, **overrides)
    file = RewardFile(name="right.py", functions=[OwnReward(function="right.py:reward")])
    offering = WORKER.model_copy(update={"reward_files": [file]})
    for text in texts:
        files = [RewardText(name="right.py", sha256=hashlib.sha256(text.encode()).hexdigest(), text=text)]
        claimed = claim(client, run_id, worker=offering, reward_texts=files)
        fail(client, run_id, claimed, RunError(code="crash", message="it fell over"))
        later = texts[claimed.attempt :]
        if later and later[0] == text:
            client.command(run_id, "retry")
        elif later:
            client.retry_with_changed_rewards(run_id)
    return run_id


def group_of(
    index: int, rewards: Sequence[float | None], *, texts: Sequence[str] | None = None, prompt: str = ""
) -> GroupReport:
    """A group whose completions got these totals, as 0.9 correctness and 0.1 format; None could not be scored."""
    known = [reward for reward in rewards if reward is not None]
    mean, std = (fmean(known), pstdev(known)) if known else (None, None)
    state = "unscored" if len(known) < 2 else "live" if std else "zero_variance"
    numbers = random.Random(index)
    a, b, c = (numbers.randint(1, 9) for _ in range(3))
    question = prompt or f"Calculate {a} - {b} x {c}"
    right = f"<think>{b} x {c} = {b * c}; {a} - {b * c} = {a - b * c}</think><answer>{a - b * c}</answer>"
    wrong = f"<think>{a} - {b} = {a - b}; {a - b} x {c} = {(a - b) * c}</think><answer>{(a - b) * c}</answer>"
    completions = []
    for place, reward in enumerate(rewards):
        correct, formed = (None, None) if reward is None else (float(reward >= 0.9), float(reward not in (0.0, 0.9)))
        error = "Traceback: the verifier gave up" if reward is None else None
        text = texts[place] if texts else right if correct else wrong
        completions.append(
            CompletionData(
                index=place,
                text=text,
                token_count=len(text),
                finish_reason="stop" if formed else "length",
                rewards=[
                    RewardScore(name="correctness", raw=correct, weight=0.9, error=error),
                    RewardScore(name="format", raw=formed, weight=0.1),
                ],
                reward=reward,
                advantage=0.0 if reward is None or mean is None or not std else (reward - mean) / (std + EPS),
                logprob_sum=-numbers.uniform(1, 6),
                logprob_sum_after=-numbers.uniform(1, 6),
                kl_mean=numbers.uniform(0, 0.02),
                entropy_mean=numbers.uniform(0.1, 0.6),
                ratio_mean=1.0,
                clipped_share=0.0,
            )
        )
    return GroupReport(
        index=index,
        prompt_id=f"{a}-{b}x{c}",
        prompt_text=f"<|user|>{question}<|assistant|>",
        prompt=question,
        answer=str(a - b * c),
        state=state,
        scored=len(known),
        truncated=sum(completion.finish_reason == "length" for completion in completions),
        reward_mean=mean,
        reward_std=std,
        completions=completions,
    )


def trace_of(groups: Sequence[GroupReport]) -> p.TraceFile:
    """Token traces of each group's first and last completion, one character a token."""
    places, texts = list[tuple[int, int]](), list[bytes]()
    drawn: dict[str, list[NDArray[np.float64]]] = {name: [] for name in _VALUES}
    for group in groups:
        for completion in (group.completions[0], group.completions[-1]):
            places.append((group.index, completion.index))
            texts.append(completion.text.encode())
            numbers = random.Random(group.index * 1000 + completion.index)
            for name in _VALUES:
                sign = 1 if name in ("entropy", "kl", "ratio") else -1
                each = [1.0 if name == "ratio" else sign * numbers.expovariate(4) for _ in texts[-1]]
                drawn[name].append(np.array(each))
    measured = {name: lists(values, np.float32) for name, values in drawn.items()}
    measured["clipped"] = lists([np.zeros(len(text), bool) for text in texts], np.bool_)
    return packed(places, [list(text) for text in texts], [[bytes([one]) for one in text] for text in texts], measured)


_VALUES = ("sampling_logprob", "old_logprob", "logprob", "reference_logprob", "entropy", "ratio", "kl")


def metrics_of(step: int, groups: Sequence[GroupReport], steps: int, numbers: random.Random) -> dict[str, float | None]:
    """What the trainer logs at a step, roughly as it looks in a run that goes well."""
    done = step / steps
    totals = [c.reward for group in groups for c in group.completions if c.reward is not None]
    return {
        "reward": fmean(totals),
        "reward_std": pstdev(totals),
        "group_reward_std": fmean(group.reward_std or 0.0 for group in groups),
        "rewards/correctness/mean": fmean(c.rewards[0].raw or 0.0 for group in groups for c in group.completions),
        "rewards/format/mean": fmean(c.rewards[1].raw or 0.0 for group in groups for c in group.completions),
        "frac_reward_zero_std": sum(group.state == "zero_variance" for group in groups) / len(groups),
        "frac_unscored": 0.0,
        "completions/mean_length": 24 + 3 * done + numbers.gauss(0, 0.4),
        "completions/clipped_ratio": max(0.0, 0.08 * (1 - done) + numbers.gauss(0, 0.01)),
        "kl": 0.02 * done + abs(numbers.gauss(0, 0.001)),
        "entropy": 0.42 - 0.2 * done + numbers.gauss(0, 0.01),
        "clip_ratio/low_mean": 0.0,
        "clip_ratio/high_mean": 0.0,
        "ratio_mean": 1.0,
        "loss": 0.0008 * done + numbers.gauss(0, 1e-4),
        "grad_norm": 0.4 + abs(numbers.gauss(0, 0.1)),
        "learning_rate": 2e-4,
        "num_tokens": 4600.0 * (step + 1),
        "step_time": 1.6 + numbers.gauss(0, 0.05),
        "tokens_per_second": 2900 + numbers.gauss(0, 90),
        "sampling_logprob_diff": 2e-6,
        "time/rollout": 1.0 + numbers.gauss(0, 0.04),
        "time/reward": 0.05,
        "time/reference": 0.12 + numbers.gauss(0, 0.01),
        "time/update": 0.4 + numbers.gauss(0, 0.02),
        "time/report": 0.01,
    }


def train(
    client: Client,
    run_id: int,
    *,
    steps: int,
    total: int,
    prompts: int = 16,
    group_size: int = 8,
    seed: int = 0,
    traced: bool = False,
) -> p.Claim:
    """Claim the run and report its first steps: a policy that learns, from half right to nearly always right."""
    claimed = claim(client, run_id)
    numbers = random.Random(seed)
    seq = 0

    def send(**report: object) -> None:
        nonlocal seq
        client.report(run_id, p.Report.model_validate({"attempt": claimed.attempt, "seq": seq, **report}))
        seq += 1

    send(step=0, metrics=_evaluation(0, total), logs=[p.LogLine(message="Model loaded: 0.86 M parameters on cpu")])
    for step in range(steps):
        skill = 0.5 + 0.45 * (1 - math.exp(-3 * step / total))
        groups = [group_of(index, _rewards(numbers, skill, group_size)) for index in range(prompts)]
        logs = [p.LogLine(level="warning", message="3 completions reached the token limit")] if step % 9 == 4 else []
        metrics, trace = metrics_of(step, groups, total, numbers), trace_of(groups) if traced else None
        send(step=step, metrics=metrics, groups=groups, logs=logs, trace=trace)
        if (step + 1) % 25 == 0:
            saved = [p.LogLine(message=f"Checkpoint {step + 1} saved")]
            send(step=step + 1, metrics=_evaluation(step + 1, total), logs=saved)
            client.checkpoint(run_id, checkpoint_of(claimed.attempt, step + 1, run_id))
    place = {"step": steps, "total_steps": total, "phase": "rollout", "done": 96, "total": prompts * group_size}
    progress = Progress.model_validate({**place, "eta_seconds": 41.0})
    client.heartbeat(run_id, p.Heartbeat(attempt=claimed.attempt, worker=WORKER.name, progress=progress))
    return claimed


def _rewards(numbers: random.Random, skill: float, group_size: int) -> list[float]:
    right = min(1.0, max(0.0, numbers.gauss(skill, 0.3)))
    return [1.0 if numbers.random() < right else 0.1 if numbers.random() < 0.9 else 0.0 for _ in range(group_size)]


def _evaluation(step: int, total: int) -> dict[str, float]:
    rate = 0.52 + 0.4 * (1 - math.exp(-3 * step / total))
    return {
        "eval/pass@1": rate,
        "eval/pass@4": min(1.0, rate + 0.06),
        "eval/greedy_pass@1": rate - 0.03,
        "eval/reward": rate,
        "eval/mean_length": 25.0,
    }


def report(client: Client, run_id: int, attempt: int, step: int, groups: Sequence[GroupReport]) -> None:
    """A step's groups and nothing else, beside what `train` has reported."""
    client.report(run_id, p.Report(attempt=attempt, seq=1000 + step, step=step, groups=list(groups)))


def checkpoint_of(attempt: int, step: int, run_id: int) -> p.CheckpointReport:
    """A registered checkpoint whose files no backend reaches."""
    place = {"store": WORKER.store, "path": f"run-{run_id}/{step}", "sha256": "0" * 64, "size_bytes": 14_000_000}
    return p.CheckpointReport.model_validate({"attempt": attempt, "step": step, **place})


def finish(client: Client, run_id: int, claimed: p.Claim, outcome: p.Outcome = "finished") -> None:
    """End the run as asked."""
    client.finish(run_id, p.Finish(attempt=claimed.attempt, outcome=outcome))


def fail(client: Client, run_id: int, claimed: p.Claim, error: RunError) -> None:
    """End the run as failed, for good."""
    client.fail(run_id, p.Fail(attempt=claimed.attempt, error=error))
