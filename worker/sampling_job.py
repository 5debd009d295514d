"""A `sample` run: one group for each of a few prompts, scored if rewards are given, and not trained on."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from backend.contract.advantage import Gae
from backend.contract.protocol import LogLine, Report
from backend.contract.records import Progress
from backend.contract.sample import SampleConfig
from worker.credit import estimated
from worker.group_records import finite, known_mean, sampled_reports
from worker.groups import GroupSampler
from worker.rewards.answers import number
from worker.rollout.draws import Draws
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
    return draw(items.train, cursor=0, count=config.task_prompts, seed=config.seed)


def sample_groups(
    config: SampleConfig, items: Sequence[Item], sampler: GroupSampler, attempt: int, show: Callable[[Progress], None]
) -> Report:
    """The groups, as the one report of the run, scored if the sampler has a scorer.

    Advantages are those that the configured estimator would train with; a critic, which knows nothing yet, gives none.
    """
    scored = sampler.sample_and_score(
        items,
        config.group_size,
        config.decoding,
        Draws(config.seed, "sample"),
        on_progress=lambda phase, done, total: show(Progress(total_steps=1, phase=phase, done=done, total=total)),
    )
    logs = [LogLine(level="warning", message=remark) for remark in sampler.policy.remarks]
    if sampler.scorer is None:
        return Report(attempt=attempt, seq=0, step=0, groups=sampled_reports(scored), logs=logs)
    metrics = {"reward": finite(known_mean(scored.rewards_P_G)), **sampler.scorer.take_metrics()}
    chosen = config.algorithm.advantage
    if isinstance(chosen, Gae):  # a sample has no critic
        groups = sampled_reports(scored)
    else:
        found = estimated(chosen, scored.rewards_P_G, scored.scores)
        groups = sampled_reports(scored, found.advantages_P_G, found.statistics)
    return Report(attempt=attempt, seq=0, step=0, groups=groups, metrics=metrics, logs=logs)
