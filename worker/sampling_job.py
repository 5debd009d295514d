"""A `sample` run: one group for each of a few prompts, scored if rewards are given, and not trained on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from backend.contract.advantage import Gae
from backend.contract.groups import CompletionData, Group, GroupReport
from backend.contract.protocol import LogLine, Report
from backend.contract.records import Progress
from backend.contract.sample import PROMPTS_PER_STEP, SampleConfig
from worker.credit import estimated
from worker.errors import RunFailure
from worker.group_records import finite, known_mean, sampled_reports
from worker.groups import GroupSampler, Scored
from worker.rewards.answers import number
from worker.rewards.scoring import RewardScorer, Sample, Scores
from worker.rollout.draws import Draws
from worker.rollout.engine import Completion, Rollout
from worker.tasks.items import Item, draw, prompt_item
from worker.tasks.loading import load_items


def sampled_items(config: SampleConfig, *, fetch_upload: Callable[[int], bytes]) -> list[Item]:
    """What is asked: the typed prompts, or the items that the first step of a run with this task and seed would draw.

    Raises TaskError where the task has none.
    """
    if config.task is None:
        is_number = config.answer is not None and number(config.answer) is not None
        verifier = {"kind": "numeric" if is_number else "exact"}  # the task that would know is not asked
        return [replace(prompt_item(config, prompt, config.answer), verifier=verifier) for prompt in config.prompts]
    items = load_items(config.task, fetch_upload=fetch_upload)
    return draw(items.train, cursor=0, count=min(config.task_prompts, len(items.train)), seed=config.seed)


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
    config: SampleConfig, scored: Scored, scorer: RewardScorer | None
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

    `items` has the items that were asked, by their ids: a reward may read a row's columns. Raises what `RewardScorer.score` raises.
    """
    steps = [(step, list(of_step)) for step, of_step in groupby(groups, key=lambda group: group.step)]
    for seq, (step, step_groups) in enumerate(steps):
        count = sum(len(group.completions) for group in step_groups)

        def on_progress(done: int, seq: int = seq, count: int = count) -> None:
            show(Progress(step=seq, total_steps=len(steps), phase="scoring", done=done, total=count))

        scored = Scored(_as_rollout(step_groups, items), _scores(step_groups, items, scorer, on_progress))
        reports, metrics = _reported(config, scored, scorer)
        kept = [
            report.model_copy(update={"prompt_text": group.prompt_text, "completions": _with_rewards(group, report)})
            for group, report in zip(step_groups, reports, strict=True)
        ]
        yield Report(attempt=attempt, seq=seq, step=step, groups=kept, metrics=metrics)


def _scores(
    groups: Sequence[Group], items: Mapping[str, Item], scorer: RewardScorer, on_progress: Callable[[int], None]
) -> Scores:
    """Group by group: two groups of one prompt are two. Raises RunFailure if a prompt is no longer in the data."""
    if missing := next((group for group in groups if group.prompt_id not in items), None):
        text = f"the prompt of group {missing.index} is not in the data any more; sample again"
        raise RunFailure("sample_gone", text)
    with scorer.begin(sum(len(group.completions) for group in groups)) as scoring:
        first = 0
        for group in groups:
            scoring.add(first, [Sample(one.text, one.token_count, items[group.prompt_id]) for one in group.completions])
            first += len(group.completions)
        return scoring.finish(on_progress)


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
