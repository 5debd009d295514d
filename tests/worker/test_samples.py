"""Samples: of a task before a launch, whose prompts and scores are those that training would have; and one that is scored again."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from wire import Wire, claimed, worker

from backend.contract.client import ApiError
from backend.contract.groups import CompletionRecord, Group, GroupReport, GroupSummary
from backend.contract.protocol import Fail, Finish, Heartbeat, HeartbeatReply, Report
from backend.contract.records import Page, Progress, Requested
from backend.contract.sample import SampleConfig
from worker.job import run_claim
from worker.rewards.scoring import Sample, Scoring
from worker.sampling_job import sampled_items

TASK: dict[str, object] = {"kind": "arithmetic", "high": 7}
SAMPLE: dict[str, object] = {
    "kind": "sample",
    "task": TASK,
    "task_prompts": 3,
    "group_size": 4,
    "decoding": {"max_new_tokens": 24},
    "rewards": {},
    "seed": 5,
}
REWARD = """
def picky(prompts, completions, **columns):
    if " x " in str(completions):
        raise ValueError("no <b>products</b> here")
    return [1.0]
"""


def groups_of(wire: Wire) -> Sequence[GroupReport]:
    [report] = [message for message in wire.told if isinstance(message, Report)]
    return report.groups


def failure_of(wire: Wire) -> Fail:
    [failed] = [message for message in wire.told if isinstance(message, Fail)]
    return failed


def sampled(wire: Wire, home: Path, **changes: object) -> Sequence[GroupReport]:
    run_claim(worker(home, wire), claimed({**SAMPLE, **changes}))
    assert isinstance(wire.told[-1], Finish)
    return groups_of(wire)


@pytest.mark.slow
def test_the_prompts_are_those_of_the_first_step_of_a_run_with_this_task_and_seed(tmp_path: Path) -> None:
    groups = sampled(Wire(), tmp_path / "sample")
    wire = Wire()
    run = {
        "kind": "grpo",
        "task": TASK,
        "sampling": {"prompts_per_step": 3, "group_size": 4, "max_new_tokens": 24},
        "budget": {"steps": 1, "seed": 5, "eval_every": 0, "checkpoint_every": 0},
        "telemetry": {"probe_prompts": 0, "token_traces": "none"},
    }
    run_claim(worker(tmp_path / "run", wire), claimed(run))
    first = next(message for message in wire.told if isinstance(message, Report) and message.groups)
    assert [group.prompt_id for group in groups] == [group.prompt_id for group in first.groups]
    assert [group.answer for group in groups] == [group.answer for group in first.groups]
    assert all(len(group.completions) == 4 for group in groups)


@pytest.mark.parametrize("kind", ["group_center", "softmax", "gae"])
def test_advantages_are_those_of_the_configured_estimator_and_a_critic_that_has_learned_nothing_gives_none(
    tmp_path: Path, kind: str
) -> None:
    for group in sampled(Wire(), tmp_path, algorithm={"advantage": {"kind": kind}}):
        rewards = [completion.reward or 0.0 for completion in group.completions]
        advantages = [completion.advantage or 0.0 for completion in group.completions]
        if kind == "group_center":
            mean = sum(rewards) / len(rewards)
            assert advantages == pytest.approx([reward - mean for reward in rewards], abs=1e-12)
        elif kind == "softmax":
            assert sum(advantages) == pytest.approx(1)
        else:
            assert {completion.advantage for completion in group.completions} == {None}
        assert group.state == ("live" if len(set(rewards)) > 1 else "zero_variance")


def test_a_reward_that_raises_fails_no_sample_and_its_traceback_stands_at_each_completion(tmp_path: Path) -> None:
    (tmp_path / "picky_reward.py").write_text(REWARD)
    wire = Wire()
    function = {"kind": "python", "name": "picky", "weight": 1.0, "function": "picky_reward:picky"}
    allowed = worker(tmp_path / "home", wire, reward_functions="picky_reward:picky", reward_path=tmp_path)
    run_claim(allowed, claimed({**SAMPLE, "rewards": {"functions": [function]}}))
    groups = groups_of(wire)
    completions = [completion for group in groups for completion in group.completions]
    failed = [one for one in completions if one.reward is None]
    assert len(failed) > 0.2 * len(completions)  # more than a run would bear
    for one in failed:
        assert one.rewards[0].raw is None
        assert "ValueError: no <b>products</b> here" in (one.rewards[0].error or "")
    assert any(group.state == "unscored" for group in groups)


@pytest.mark.parametrize(("asked", "outcome"), [("stop", "stopped"), ("pause", "paused")])
def test_a_sample_that_nobody_wants_any_more_ends_in_its_midst(tmp_path: Path, asked: Requested, outcome: str) -> None:
    wire = Wire()
    wire.requested = asked
    long = {"group_size": 64, "task_prompts": 16, "decoding": {"max_new_tokens": 400, "temperature": 3.0}}
    run_claim(worker(tmp_path, wire), claimed({**SAMPLE, **long}, lease_seconds=0.2))
    assert [message.outcome for message in wire.told if isinstance(message, Finish)] == [outcome]
    assert not any(isinstance(message, Report) for message in wire.told)


def test_a_task_without_items_fails_the_sample_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()
    monkeypatch.setattr(wire, "upload_content", lambda upload: b"")
    run_claim(worker(tmp_path, wire), claimed({**SAMPLE, "task": {"kind": "dataset", "source": "upload:1"}}))
    assert failure_of(wire).error.code == "too_few_items"


# ---- scored again

slow = pytest.mark.slow  # each starts a process
BODY = "return [1.0] * len(completions)"
SHA256 = sha256(f"def reward(completions, **given):\n    {BODY}\n".encode()).hexdigest()
RESCORED: dict[str, Any] = {"kind": "sample", "prompts": ["Say it", "Say it"], "group_size": 2, "rescores": 3}


class Stored(Wire):
    """A backend that has the groups of a sample, by two identical prompts; it can be asked to stop what is scored."""

    def __init__(self, prompt_id: str | None = None, *, kept: int = 2, stops: bool = False) -> None:
        super().__init__()
        items = sampled_items(SampleConfig.model_validate({**RESCORED, "rewards": {}}), fetch_upload=lambda _: b"")
        self.kept = [stored(index, prompt_id or item.id) for index, item in enumerate(items[:kept])]
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
    place: dict[str, Any] = {"id": index, "run_id": 3, "attempt": 1, "step": 0, "index": index, "state": "unscored"}
    return Group(**place, prompt_id=prompt_id, scored=0, prompt_text="Say it", completions=completions)


def rescored(
    wire: Wire, home: Path, body: str, takes: str = "", scored_by: Any = None, lease_seconds: float = 30, **rewards: Any
) -> None:
    """Score again by a function of the whole group with this body; `takes` are parameters beside the completions, `scored_by` what
    scored in the attempt before.
    """
    (home / "rewards").mkdir(parents=True, exist_ok=True)
    (home / "rewards" / "own.py").write_text(f"def reward(completions, {takes}**given):\n    {body}\n")
    mine = {"kind": "python", "name": "mine", "function": "own.py:reward", "unit": "group"}
    config = {**RESCORED, "rewards": {"functions": [mine], **rewards}}
    claim = claimed(config, lease_seconds=lease_seconds).model_copy(update={"scored_by": scored_by or {}})
    run_claim(worker(home, wire), claim)


@slow
def test_groups_of_one_prompt_stay_apart(tmp_path: Path) -> None:
    wire = Stored()
    assert wire.kept[0].prompt_id == wire.kept[1].prompt_id
    rescored(wire, tmp_path, "return [len(completions) + len(one[0]['content']) for one in completions]")
    assert [[one.reward for one in group.completions] for group in groups_of(wire)] == [[3.0, 4.0]] * 2
    assert isinstance(wire.told[-1], Finish)


@slow
def test_a_reward_that_reads_tokens_leaves_unscored_what_has_none_and_says_so(tmp_path: Path) -> None:
    wire = Stored()
    rescored(wire, tmp_path, "return [len(ids) for ids in completion_ids]", takes="completion_ids, ")
    completions = [one for group in groups_of(wire) for one in group.completions]
    assert [one.reward for one in completions] == [None] * 4
    assert all("takes completion_ids, which no sample keeps" in (one.rewards[0].error or "") for one in completions)


@slow
def test_how_far_the_scoring_is_can_be_seen_and_a_stop_ends_it_in_its_midst(tmp_path: Path) -> None:
    wire = Stored(stops=True)
    rescored(wire, tmp_path, "while True: pass", lease_seconds=0.2, time_limit=600)
    assert [message.outcome for message in wire.told if isinstance(message, Finish)] == ["stopped"]
    assert not any(isinstance(message, Report) for message in wire.told)
    assert {(one.done, one.total, one.total_steps) for one in wire.shown} == {(0, 4, 1)}


@slow
@pytest.mark.parametrize(
    ("stored", "says"),
    [
        ({"kept": 0}, "The completions of sample 3 cannot be read: There is no run 3. Sample again."),
        ({"prompt_id": "prompt:gone"}, "The prompt of group 0 is not in the data any more; sample again."),
    ],
    ids=["a sample that was deleted", "a prompt that left the data"],
)
def test_what_is_there_no_more_says_so(tmp_path: Path, stored: dict[str, Any], says: str) -> None:
    wire = Stored(**stored)
    rescored(wire, tmp_path, "return []")
    failed = failure_of(wire)
    assert (failed.error.code, failed.retryable, failed.error.message) == ("sample_gone", False, says)


@slow
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
        error = failure_of(wire).error
        assert error.code == "reward_changed"
        assert error.message.startswith(f"{changed} has changed since it scored this run")
        assert "Put the text back that Configuration shows" in error.message


@slow
def test_a_file_that_is_imported_since_is_said_to_be_new(tmp_path: Path) -> None:
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "helper.py").write_text("")
    wire, takes = Stored(), "helper=__import__('helper'), "
    own = sha256(f"def reward(completions, {takes}**given):\n    {BODY}\n".encode()).hexdigest()
    rescored(wire, tmp_path, BODY, takes=takes, scored_by={"own.py": own})
    error = failure_of(wire).error
    assert error.code == "reward_changed"
    assert error.message == (
        "helper.py is new and did not score this run so far, whose rewards would then mean two things. Take it away and retry "
        "the run, or retry it with the changed reward."
    )


@slow
@pytest.mark.parametrize("again", [False, True])
def test_rewards_get_the_prompt_as_the_model_read_it_also_when_a_sample_is_scored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Its end may have opened a tag that counts."""
    read: list[str] = []
    add = Scoring.add

    def adding(self: Scoring, first: int, samples: Sequence[Sample]) -> None:
        read.extend(one.read for one in samples)
        add(self, first, samples)

    monkeypatch.setattr(Scoring, "add", adding)
    wire = Stored() if again else Wire()
    if isinstance(wire, Stored):
        rescored(wire, tmp_path, BODY)
    else:
        run_claim(worker(tmp_path, wire), claimed(SAMPLE))
    assert sorted(read) == sorted(group.prompt_text for group in groups_of(wire) for _ in group.completions)
    assert all(read)
