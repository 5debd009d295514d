"""A `sample` run: one group for each of a few prompts, scored if rewards are given, and not trained on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby

from backend.contract.advantage import Gae
from backend.contract.base import finite
from backend.contract.client import ApiError
from backend.contract.groups import CompletionData, Group, GroupReport
from backend.contract.protocol import LogLine, Report, Start
from backend.contract.records import Progress
from backend.contract.report_parts import in_parts
from backend.contract.reward import Rewards
from backend.contract.sample import PROMPTS_PER_STEP, SampleConfig
from worker.credit import estimated
from worker.errors import RunFailure
from worker.group_records import known_mean, sampled_reports
from worker.groups import GroupSampler, Scored, Scorer
from worker.policy.policy import Policy
from worker.reporter import Channels
from worker.rewards.answers import number
from worker.rewards.scoring import RewardScorer, Sample
from worker.rollout.draws import Draws
from worker.rollout.engine import Completion, Rollout
from worker.rollout.sampler import NativeEngine
from worker.tasks.fitting import Reader, fit
from worker.tasks.items import Item, Items, prompt_item
from worker.tasks.loading import load_items
from worker.tasks.prompt_sampler import PromptSampler
from worker.worker import Reads


def run_sample(
    config: SampleConfig,
    client: Reads,
    load_model: Callable[[], Policy],
    scoring: Callable[[Rewards], AbstractContextManager[RewardScorer]],
    start: Start,
    channels: Channels,
) -> None:
    """Sample, score, report. Nothing is lost by leaving at any moment: a sample has no step boundaries to wait for."""
    channels.load("task", config.steps)
    items = sampled_items(config, fetch_upload=client.upload_content)
    policy = None
    if config.rescores is None:
        channels.load("model", config.steps)
        policy = load_model()
        reader, new_tokens = Reader(policy.chat, policy.context), config.decoding.max_new_tokens
        asked, remarks = fit(
            Items(items, []), config.task or config, reader, new_tokens, channels.fetching(config.steps)
        )
        items = [*asked.train]
        policy.remarks += remarks
    with ExitStack() as opened:
        scorer = None
        if config.rewards is not None:
            channels.load("rewards", config.steps)
            # What could not be scored, and why, is what somebody wants to see: it fails no sample.
            scorer = opened.enter_context(scoring(config.rewards.model_copy(update={"max_unscored": 1.0})))
            start = start.model_copy(update={"reward_texts": scorer.load_own()})
        channels.send("start", start)
        reports: Iterator[Report] = iter(())
        if policy is not None:
            sampler = GroupSampler(policy, NativeEngine(policy), scorer)
            reports = sample_groups(config, items, sampler, start.attempt, channels.show_or_end)
        elif scorer is not None and config.rescores is not None:
            earlier = earlier_groups(client, config.rescores)
            by_id = {item.id: item for item in items}
            reports = score_again(config, earlier, by_id, scorer, start.attempt, channels.show_or_end)
        seq = 0
        for report in reports:
            for part in in_parts(report.model_copy(update={"seq": seq})):
                channels.send("report", part)
                seq += 1


def earlier_groups(client: Reads, run_id: int) -> list[Group]:
    """All groups of a sample, in order. Raises RunFailure if it was deleted."""
    try:
        return sorted(client.all_groups(run_id), key=lambda group: (group.step, group.index))
    except ApiError as error:
        text = f"The completions of sample {run_id} cannot be read: {error.message.removesuffix('.')}. Sample again."
        raise RunFailure("sample_gone", text) from error


def sampled_items(config: SampleConfig, *, fetch_upload: Callable[[int], bytes]) -> list[Item]:
    """What is asked: the typed prompts, or the items that the first step of a run with this task and seed would draw.

    Raises TaskError if the task has none.
    """
    if config.task is None:
        is_number = config.answer is not None and number(config.answer) is not None
        verifier = {"kind": "numeric" if is_number else "exact"}  # the task that would know is not asked
        return [replace(prompt_item(config, prompt, config.answer), verifier=verifier) for prompt in config.prompts]
    items = load_items(config.task, fetch_upload=fetch_upload)
    drawn = PromptSampler(items, config.seed).draw(0, cursor=0, count=config.task_prompts)
    return list({item.id: item for item in drawn}.values())


def sample_groups(
    config: SampleConfig, items: Sequence[Item], sampler: GroupSampler, attempt: int, show: Callable[[Progress], None]
) -> Iterator[Report]:
    """The groups, a few prompts to a report, scored if the sampler has a scorer. What is drawn does not depend on the parts.

    Advantages are those that the configured estimator would train with; a critic, which knows nothing yet, gives none.
    """
    steps = range(0, len(items), PROMPTS_PER_STEP)
    for step, first in enumerate(steps):
        scored = sampler.sample_and_score(
            items[first : first + PROMPTS_PER_STEP],
            config.group_size,
            config.decoding,
            Draws(config.seed, "sample"),
            on_progress=partial(_show, show, Progress(step=step, total_steps=len(steps))),
            first_group=first,
        )
        logs = [LogLine(level="warning", message=remark) for remark in sampler.policy.remarks]
        sampler.policy.remarks.clear()
        groups, metrics = _reported(config, scored, sampler.scorer)
        yield Report(attempt=attempt, seq=step, step=step, groups=groups, metrics=metrics, logs=logs)


def _show(show: Callable[[Progress], None], part: Progress, phase: str, done: int, total: int) -> None:
    show(part.model_copy(update={"phase": phase, "done": done, "total": total}))


def _reported(
    config: SampleConfig, scored: Scored, scorer: Scorer | None
) -> tuple[list[GroupReport], dict[str, float | None]]:
    if scorer is None:
        return sampled_reports(scored), {}
    metrics = {"reward": finite(known_mean(scored.rewards_P_G)), **scorer.take_metrics()}
    chosen = config.algorithm.advantage
    if isinstance(chosen, Gae):  # a sample has no critic
        return sampled_reports(scored), metrics
    found = estimated(chosen, scored.rewards_P_G, scored.scores)
    return sampled_reports(scored, found.advantages_P_G, found.statistics), metrics


def score_again(
    config: SampleConfig,
    groups: Sequence[Group],
    items: Mapping[str, Item],
    scorer: RewardScorer,
    attempt: int,
    show: Callable[[Progress], None],
) -> Iterator[Report]:
    """The groups of an earlier sample as these rewards score them, step by step; nothing else of them changes.

    `items` has the items that were asked, by their ids: a reward may read a row's columns. Raises RunFailure if one of them is no
    longer in the data, and what `RewardScorer.score` raises.
    """
    if missing := [group for group in groups if group.prompt_id not in items]:
        text = f"The prompt of group {missing[0].index} is not in the data any more; sample again."
        raise RunFailure("sample_gone", text)
    steps = [(step, list(of_step)) for step, of_step in groupby(groups, key=lambda group: group.step)]
    for seq, (step, step_groups) in enumerate(steps):
        count = sum(len(group.completions) for group in step_groups)

        def on_progress(done: int, seq: int = seq, count: int = count) -> None:
            show(Progress(step=seq, total_steps=len(steps), phase="scoring", done=done, total=count))

        samples = [
            [
                Sample(one.text, one.token_count, items[group.prompt_id], read=group.prompt_text)
                for one in group.completions
            ]
            for group in step_groups
        ]
        scored = Scored(_as_rollout(step_groups, items), scorer.score(samples, on_progress))
        reports, metrics = _reported(config, scored, scorer)
        kept = [
            report.model_copy(update={"prompt_text": group.prompt_text, "completions": _with_rewards(group, report)})
            for group, report in zip(step_groups, reports, strict=True)
        ]
        yield Report(attempt=attempt, seq=seq, step=step, groups=kept, metrics=metrics)


def _as_rollout(groups: Sequence[Group], items: Mapping[str, Item]) -> Rollout:
    """As far as reports read it: texts and ends, and no tokens."""
    return Rollout(
        [items[group.prompt_id] for group in groups],
        [group.prompt_text for group in groups],
        [[] for _ in groups],
        len(groups[0].completions),
        [Completion(text=one.text, finish_reason=one.finish_reason) for group in groups for one in group.completions],
    )


def _with_rewards(group: Group, report: GroupReport) -> list[CompletionData]:
    """The completions as they were, with what the report says of their rewards."""
    return [
        CompletionData.model_validate(
            {**old.model_dump(), **new.model_dump(include={"rewards", "reward", "advantage"})}
        )
        for old, new in zip(group.completions, report.completions, strict=True)
    ]
