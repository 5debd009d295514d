"""What the backend answers with, made without one."""

from datetime import UTC, datetime

from backend.contract.groups import CompletionRecord, Group, GroupReport, RewardScore
from backend.contract.records import Progress, Run

MADE = datetime(2026, 1, 1, tzinfo=UTC)


def run_of(number: int = 1, **known: object) -> Run:
    """A finished run, of which a test knows this."""
    usual = {"name": "x", "kind": "grpo", "status": "finished", "config": {}, "attempt": 1, "failures": 0}
    return Run.model_validate(usual | {"id": number, "progress": Progress(), "created_at": MADE} | known)


def completion_of(
    index: int, reward: float | None, advantage: float | None, *scores: RewardScore, **known: object
) -> CompletionRecord:
    usual = {"text": "", "token_count": 1, "finish_reason": "stop", "rewards": list(scores)}
    about = {"id": index, "index": index, "reward": reward, "advantage": advantage}
    return CompletionRecord.model_validate(usual | about | known)


def stored(report: GroupReport, number: int = 1) -> Group:
    """The group as it is kept; its completions have the ids from 100 on."""
    completions = [{**one.model_dump(), "id": 100 + one.index} for one in report.completions]
    about = {"id": number, "run_id": 1, "attempt": 1, "step": 0, "completions": completions}
    return Group.model_validate(report.model_dump() | about)
