"""A sample that is scored again: its groups as they were, what a reward is given, progress, and how it ends early."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from wire import Wire, claimed, worker

from backend.contract.client import ApiError
from backend.contract.groups import CompletionRecord, Group, GroupReport, GroupSummary
from backend.contract.protocol import Fail, Finish, Heartbeat, HeartbeatReply, Report
from backend.contract.records import Page, Progress
from backend.contract.sample import SampleConfig
from worker.job import run_claim
from worker.sampling_job import sampled_items

pytestmark = pytest.mark.slow  # each starts a process

BODY = "return [1.0] * len(completions)"
SHA256 = sha256(f"def reward(completions, **given):\n    {BODY}\n".encode()).hexdigest()
SAMPLE: dict[str, Any] = {"kind": "sample", "prompts": ["Say it", "Say it"], "group_size": 2, "rescores": 3}


class Stored(Wire):
    """A backend that has the groups of a sample, by two identical prompts; it can be asked to stop what is scored."""

    def __init__(self, *, prompt_id: str | None = None, stops: bool = False) -> None:
        super().__init__()
        items = sampled_items(SampleConfig.model_validate({**SAMPLE, "rewards": {}}), fetch_upload=lambda _: b"")
        self.kept = [stored(index, prompt_id or item.id) for index, item in enumerate(items)]
        self.shown: list[Progress] = []
        self.stops = stops

    def groups(self, run_id: int, **_: object) -> Page[GroupSummary]:  # type: ignore[override]
        if not self.kept:
            raise ApiError(404, "not_found", f"There is no run {run_id}.")
        found = [{**one.model_dump(), "rewards": [], "advantages": []} for one in self.kept]
        return Page(items=[GroupSummary.model_validate(one) for one in found])

    def group(self, group_id: int) -> Group:
        return self.kept[group_id]

    def heartbeat(self, run_id: int, beat: Heartbeat) -> HeartbeatReply:
        if beat.progress is not None and beat.progress.phase == "scoring":
            self.shown.append(beat.progress)
            self.requested = "stop" if self.stops else "nothing"
        return super().heartbeat(run_id, beat)


def stored(index: int, prompt_id: str) -> Group:
    """A group of two completions, "a" and "bb"."""
    completions = [
        CompletionRecord(id=place, index=place, text=text, token_count=len(text), finish_reason="stop")
        for place, text in enumerate(("a", "bb"))
    ]
    place = {"id": index, "run_id": 3, "attempt": 1, "step": 0, "index": index}
    return Group(
        **place, prompt_id=prompt_id, state="unscored", scored=0, prompt_text="Say it", completions=completions
    )  # type: ignore[arg-type]


def rescored(
    wire: Wire,
    home: Path,
    body: str,
    *,
    takes: str = "",
    scored_by: dict[str, str] | None = None,
    lease_seconds: float = 30,
    **rewards: object,
) -> None:
    """Score again by a function of the whole group with this body; `takes` are parameters beside the completions, `scored_by` what
    scored in the attempt before.
    """
    (home / "rewards").mkdir(parents=True, exist_ok=True)
    (home / "rewards" / "own.py").write_text(f"def reward(completions, {takes}**given):\n    {body}\n")
    mine = {"kind": "python", "name": "mine", "function": "own.py:reward", "unit": "group"}
    config = {**SAMPLE, "rewards": {"functions": [mine], **rewards}}
    claim = claimed(config, lease_seconds=lease_seconds).model_copy(update={"scored_by": scored_by or {}})
    run_claim(worker(home, wire), claim)


def groups_of(wire: Wire) -> Sequence[GroupReport]:
    [report] = [message for message in wire.told if isinstance(message, Report)]
    return report.groups


def test_groups_of_one_prompt_stay_apart(tmp_path: Path) -> None:
    wire = Stored()
    assert wire.kept[0].prompt_id == wire.kept[1].prompt_id
    rescored(wire, tmp_path, "return [len(completions) + len(one[0]['content']) for one in completions]")
    assert [[one.reward for one in group.completions] for group in groups_of(wire)] == [[3.0, 4.0]] * 2
    assert isinstance(wire.told[-1], Finish)


def test_a_reward_that_reads_tokens_leaves_unscored_what_has_none_and_says_so(tmp_path: Path) -> None:
    wire = Stored()
    rescored(wire, tmp_path, "return [len(ids) for ids in completion_ids]", takes="completion_ids, ")
    completions = [one for group in groups_of(wire) for one in group.completions]
    assert [one.reward for one in completions] == [None] * 4
    assert all("takes completion_ids, which no sample keeps" in (one.rewards[0].error or "") for one in completions)


def test_how_far_the_scoring_is_can_be_seen_and_a_stop_ends_it_in_its_midst(tmp_path: Path) -> None:
    wire = Stored(stops=True)
    rescored(wire, tmp_path, "while True: pass", lease_seconds=0.2, time_limit=600)
    assert [message.outcome for message in wire.told if isinstance(message, Finish)] == ["stopped"]
    assert not any(isinstance(message, Report) for message in wire.told)
    assert {(one.done, one.total, one.total_steps) for one in wire.shown} == {(0, 4, 1)}


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        ({"kept": []}, "The completions of sample 3 cannot be read: There is no run 3. Sample again."),
        ({"prompt_id": "prompt:gone"}, "The prompt of group 0 is not in the data any more; sample again."),
    ],
    ids=["a sample that was deleted", "a prompt that left the data"],
)
def test_what_is_there_no_more_says_so(tmp_path: Path, stored: dict[str, Any], says: str) -> None:
    wire = Stored(**{name: value for name, value in stored.items() if name != "kept"})
    wire.kept = stored.get("kept", wire.kept)
    rescored(wire, tmp_path, "return []")
    [failed] = [message for message in wire.told if isinstance(message, Fail)]
    assert (failed.error.code, failed.retryable, failed.error.message) == ("sample_gone", False, says)


@pytest.mark.parametrize(
    ("scored_by", "changed"),
    [
        ({"own.py": SHA256}, None),
        ({"own.py": "0"}, "own.py"),
        ({"own.py": SHA256, "extra.py": "0"}, "extra.py"),
        ({"zest.py": "0"}, "zest.py"),  # own.py is new, and cannot be put back
    ],
    ids=["the same", "changed", "one is gone", "another one"],
)
def test_an_attempt_is_scored_by_exactly_the_files_of_the_one_before(
    tmp_path: Path, scored_by: dict[str, str], changed: str | None
) -> None:
    wire = Stored()
    rescored(wire, tmp_path, BODY, scored_by=scored_by)
    if changed is None:
        assert isinstance(wire.told[-1], Finish)
    else:
        [failed] = [message for message in wire.told if isinstance(message, Fail)]
        assert failed.error.code == "reward_changed"
        assert failed.error.message.startswith(f"{changed} has changed since it scored this run")
        assert "Put the text back that Configuration shows" in failed.error.message


def test_a_file_that_is_imported_since_is_said_to_be_new(tmp_path: Path) -> None:
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "helper.py").write_text("")
    wire, takes = Stored(), "helper=__import__('helper'), "
    own = sha256(f"def reward(completions, {takes}**given):\n    {BODY}\n".encode()).hexdigest()
    rescored(wire, tmp_path, BODY, takes=takes, scored_by={"own.py": own})
    [failed] = [message for message in wire.told if isinstance(message, Fail)]
    assert failed.error.code == "reward_changed"
    assert failed.error.message == (
        "helper.py is new and did not score this run so far, whose rewards would then mean two things. Take it away and retry "
        "the run, or retry it with the changed reward."
    )
