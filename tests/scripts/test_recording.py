"""A program of its own reports a run: `groupscope.start_run` against a real backend, which may be away, end, or be asked to stop the record."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import processes
import pyarrow.parquet as pq
import pytest
from acting import Actor
from importing import recorded
from processes import wait_until
from serving import TOKEN, Backend
from sqlalchemy import select

import groupscope
from backend.cli import app
from backend.contract import protocol
from backend.contract.base import LONGEST
from backend.contract.client import ApiError, Client
from backend.contract.conversation import stretches
from backend.contract.home import CannotStart
from backend.contract.spool import Spool
from backend.storage.tables import run_event
from groupscope import Completion, Group, Recording, Tokens, turns_of
from groupscope.outbox import FOLDER, deliver, left_over
from groupscope.recording import group_report

KNOWN: dict[str, Any] = {
    "sampling": {"group_size": 2},
    "rewards": {"functions": [{"name": "right", "weight": 2.0}]},
    "algorithm": {"advantage": {"kind": "group_center"}},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    return tmp_path / "scripts"


def group(step: int) -> Group:
    tokens = Tokens([5, 6], [b"4", b"2"], old_logprob=[-0.5, -1.5], entropy=[0.25, 0.75])
    return Group(
        f"What is {step}?",
        [
            Completion("42", reward=2.0, advantage=1.0, rewards={"right": 1.0}, tokens=tokens),
            Completion("no", reward=0.0, advantage=-1.0, rewards={"right": 0.0}, token_count=1, finish_reason="length"),
        ],
        reward_mean=1.0,
        reward_std=1.0,
    )


def steps(recording: Recording, first: int, last: int) -> None:
    for step in range(first, last):
        recording.log_groups([group(step)], step)
        recording.log_metrics({"reward": 1.0 + step, "actor/lr": float("nan")}, step)


def rewards_of(backend: Backend, run_id: int) -> tuple[list[int], list[float | None]]:
    series = backend.client.metrics(run_id).series["reward"]
    return series.step, series.value


def test_what_was_logged_is_what_is_shown_and_what_was_not_is_missing(backend: Backend, home: Path) -> None:
    with groupscope.start_run(
        "mine", trainer="a loop", config={"lr": 1e-5}, known=KNOWN, backend=backend.url, home=home
    ) as one:
        steps(one, 0, 3)
        one.log_metrics({"eval/pass@1": 0.5}, 3)
        one.log_line("halfway")
    run = recorded(backend)
    assert (run.name, run.status, run.progress.step, run.id) == ("mine", "finished", 3, one.run_id)
    assert run.config["theirs"] == {"lr": 1e-5}
    assert rewards_of(backend, run.id) == ([0, 1, 2], [1.0, 2.0, 3.0])
    assert backend.client.metrics(run.id).series["actor/lr"].value == [None] * 3
    assert backend.client.metrics(run.id).series["eval/pass@1"].step == [3]
    found = [backend.client.group(item.id) for item in backend.client.groups(run.id, sort="step").items]
    assert [each.prompt for each in found] == [f"What is {step}?" for step in range(3)]
    first, second = found[0].completions
    assert (first.text, first.reward, first.advantage) == ("42", 2.0, 1.0)
    assert (first.logprob_sum, first.entropy_mean) == (-2.0, 0.5)
    assert [(score.name, score.raw, score.weight) for score in first.rewards] == [("right", 1.0, 2.0)]
    assert (first.kl_mean, first.ratio_mean, second.logprob_sum, second.has_trace) == (None, None, None, False)
    trace = backend.client.tokens(first.id)
    assert (trace.texts, trace.old_logprob, trace.logprob) == (["4", "2"], [-0.5, -1.5], None)
    assert not list(left_over(home))


@pytest.mark.slow
def test_a_backend_that_is_killed_and_started_again_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", processes.TOKEN)
    with processes.Site(tmp_path / "site") as site:
        first = site.backend()
        one = groupscope.start_run("mine", known=KNOWN, backend=site.url, home=tmp_path)
        steps(one, 0, 3)
        wait_until(lambda: one.run_id is not None, "it is stored")
        first.kill()
        steps(one, 3, 6)
        first.wait()
        site.backend()
        steps(one, 6, 8)
        one.finish()
        [run] = site.client.runs(kind="recorded").items
        assert (run.status, run.progress.step, run.attempt) == ("finished", 8, 1)
        assert site.client.metrics(run.id).series["reward"].step == list(range(8))
        assert len(site.client.groups(run.id, limit=200).items) == 8
        assert not list(left_over(tmp_path))


SCRIPT = """
import os, sys
sys.path[:0] = {path!r}
from test_recording import KNOWN, groupscope, steps
one = groupscope.start_run("offline", known=KNOWN, backend={url!r}, home={home!r})
steps(one, 0, 4)
one.end_step()
{end}
"""


def run_script(home: Path, url: str, end: str) -> int:
    script = SCRIPT.format(path=[str(Path(__file__).parent), *sys.path], home=str(home), url=url, end=end)
    return subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode


def test_an_error_that_ends_the_program_stands_on_its_page(backend: Backend, home: Path) -> None:
    assert run_script(home, backend.url, "raise RuntimeError('out of patience')") == 1
    run = recorded(backend)
    assert run.error is not None
    assert (run.status, run.progress.step, run.error.message) == ("failed", 4, "RuntimeError: out of patience")
    assert not list(left_over(home))


FORKED = """
from processes import wait_until
wait_until(lambda: not one._outbox._spool.waiting_bytes, "all is sent")
for ends in (SystemExit(), RuntimeError("of the child")):
    if os.fork() == 0:
        one.log_metrics({"reward": 9.0}, 9)
        raise ends
    os.wait()
assert os.listdir(os.environ["RECORDINGS"])
steps(one, 4, 5)
"""


@pytest.mark.thorough
def test_forked_processes_add_nothing_to_the_record_of_a_program_that_ends_without_a_word_and_take_nothing_away(
    backend: Backend, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDINGS", str(home / FOLDER))
    assert run_script(home, backend.url, FORKED) == 0
    run = recorded(backend)
    assert (run.status, run.error, run.progress.step) == ("running", None, 5)
    assert rewards_of(backend, run.id)[0] == [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def unsent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a program that was killed, and whose backend did not answer."""
    home = tmp_path_factory.mktemp("unsent")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GROUPSCOPE_TOKEN", TOKEN)
        assert run_script(home, "http://127.0.0.1:1", "os._exit(0)") == 0
    return home / FOLDER


@pytest.mark.slow
def test_a_run_of_which_the_backend_never_heard_is_sent_later_from_the_disk_and_kept_back_by_no_other(
    backend: Backend, home: Path, unsent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(unsent, home / FOLDER)
    [about] = left_over(home)
    sent = deliver(about, backend.client)
    assert sent is not None
    assert sent[1] == 5
    assert not list((home / FOLDER).iterdir())
    shutil.copytree(unsent, home / FOLDER, dirs_exist_ok=True)  # as if the answer had got lost
    (home / FOLDER / "torn.json").write_text('{"key": ')
    with pytest.raises(SystemExit) as ended:
        app(["sync", "--backend", backend.url, "--home", str(home)])
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert "torn.json is damaged" in said.err
    assert "offline: 5 messages sent" in said.out
    run = recorded(backend)
    assert (run.name, run.status, run.progress.step, run.attempt) == ("offline", "running", 4, 1)
    assert rewards_of(backend, run.id)[0] == [0, 1, 2, 3]
    assert [path.name for path in (home / FOLDER).iterdir()] == ["torn.json"]


def silent(one: Recording) -> None:
    """Its start and all that it said are stored, and there is no heartbeat any more."""
    wait_until(lambda: one.run_id is not None and not one._outbox._spool.waiting_bytes, "all is stored")
    one._over.set()
    one._beats.join()


def test_a_program_that_is_silent_is_said_to_be_and_goes_on_when_it_is_heard(
    start_backend: Callable[..., Backend], home: Path
) -> None:
    backend = start_backend(sweep_seconds=0.05)
    one = groupscope.start_run("mine", known=KNOWN, backend=backend.url, home=home)
    steps(one, 0, 2)
    silent(one)
    backend.clock.now += 600
    wait_until(lambda: recorded(backend).status == "failed", "it is given up")
    error = recorded(backend).error
    assert error is not None
    assert error.code == "not_heard_of"
    one._over.clear()
    steps(one, 2, 4)
    wait_until(lambda: recorded(backend).status == "running", "it is heard of")
    run = recorded(backend)
    assert run.error is None
    told = select(run_event.c.payload).where(run_event.c.run_id == run.id, run_event.c.kind == "status")
    with backend.services.database.read() as tx:
        said = [payload["status"] for payload in tx.execute(told.order_by(run_event.c.id)).scalars()]
    assert said == ["queued", "running", "failed", "running"]
    one.finish()
    assert (recorded(backend).status, recorded(backend).progress.step) == ("finished", 4)


def test_a_record_that_was_stopped_while_its_program_was_silent_stays_stopped(
    start_backend: Callable[..., Backend], home: Path
) -> None:
    backend = start_backend(sweep_seconds=0.05)
    one = groupscope.start_run("mine", known=KNOWN, backend=backend.url, home=home)
    silent(one)
    backend.client.command(recorded(backend).id, "stop")
    backend.clock.now += 600
    wait_until(lambda: recorded(backend).status == "stopped", "it is settled")
    one._over.clear()
    steps(one, 0, 2)
    one.finish()
    assert (recorded(backend).status, recorded(backend).progress.step) == ("stopped", 0)


def test_a_further_attempt_takes_back_the_steps_from_which_it_begins(backend: Backend, home: Path) -> None:
    with groupscope.start_run("mine", known=KNOWN, backend=backend.url, home=home) as one:
        steps(one, 0, 4)
    with groupscope.start_run(
        "mine", known=KNOWN, backend=backend.url, home=home, run_id=one.run_id, from_step=2
    ) as two:
        steps(two, 2, 3)
    run = recorded(backend)
    assert (run.id, run.attempt, run.status) == (one.run_id, 2, "finished")
    assert rewards_of(backend, run.id)[0] == [0, 1, 2]


def test_nobody_but_its_program_works_on_it_and_what_it_holds_is_left_to_it(backend: Backend, home: Path) -> None:
    one = groupscope.start_run("mine", backend=backend.url, home=home)
    wait_until(lambda: one.run_id is not None, "it is stored")
    assert one.run_id is not None
    for verb in ("pause", "resume", "retry"):
        with pytest.raises(ApiError, match="only recorded here"):
            backend.client.command(one.run_id, verb)
    assert Actor(backend.client).claim() is None
    [about] = left_over(home)
    assert deliver(about, backend.client) is None
    backend.client.command(one.run_id, "stop")
    wait_until(lambda: recorded(backend).status == "stopped", "the record is stopped")
    steps(one, 0, 2)
    one.finish()
    assert recorded(backend).progress.step == 0


WRONG: dict[str, Group | None] = {
    "no group": None,
    "no completions": Group("empty", []),
    "no text": Group("a number", [Completion(5)]),  # type: ignore[arg-type]
    "no number": Group("a word", [Completion("a", reward="high")]),  # type: ignore[arg-type]
}
NO_TOKENS = {
    "fewer values than tokens": Tokens([1, 2], logprob=[-1.0]),
    "fewer texts than tokens": Tokens([1, 2], [b"a"]),
    "an id that no tokenizer has": Tokens([2**40]),
    "texts that are not bytes": Tokens([1], ["a"]),  # type: ignore[list-item]
    "flags that are none": Tokens([1], trained=["yes"]),  # type: ignore[list-item]
    "values that are none": Tokens([1], logprob=[{}]),  # type: ignore[list-item]
}


def test_what_cannot_be_recorded_is_said_and_takes_nothing_else_along(
    backend: Backend, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = [Group(why, [Completion("a", reward=1.0, tokens=tokens)]) for why, tokens in NO_TOKENS.items()]
    long = Group("long", [Completion("x" * (LONGEST + 1), reward=1.0), Completion("\x00\ud800", reward=float("nan"))])
    with groupscope.start_run("mine", known=KNOWN, backend=backend.url, home=home) as one:
        steps(one, 0, 3)
        one.log_metrics({"reward": 9.0}, 1)
        one.log_groups([group(3), *WRONG.values(), *odd, long], 3)  # type: ignore[list-item]
        one.log_metrics({"x" * 300: 1.0, "y": "high", "reward": 4.0}, 3)  # type: ignore[dict-item]
    assert "step 1 was sent before" in caplog.text
    assert caplog.text.count("a group of step 3 is left out") == len(WRONG)
    assert caplog.text.count("token values are left out") == len(NO_TOKENS)
    run = recorded(backend)
    assert run.status == "finished"
    assert rewards_of(backend, run.id) == ([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    assert set(backend.client.metrics(run.id).series) == {"reward", "actor/lr"}
    found = [backend.client.group(item.id) for item in backend.client.groups(run.id, step=3, sort="index").items]
    assert [each.prompt for each in found] == ["What is 3?", *NO_TOKENS, "long"]
    assert [len(one.text) for one in found[-1].completions] == [LONGEST - 1, 2]
    assert [one.reward for one in found[-1].completions] == [1.0, None]


@pytest.mark.parametrize(
    ("changed", "to"),
    [
        ("groupscope.recording.trace_of", Mock(side_effect=OverflowError("too large"))),
        ("backend.contract.trace_file.MAX_BYTES", 100),
    ],
    ids=["no file", "too large"],
)
def test_a_step_whose_token_values_make_no_file_or_too_large_a_one_is_recorded_without_them(
    backend: Backend, home: Path, monkeypatch: pytest.MonkeyPatch, changed: str, to: object
) -> None:
    monkeypatch.setattr(changed, to)
    with groupscope.start_run("mine", known=KNOWN, backend=backend.url, home=home) as one:
        steps(one, 0, 1)
    run = recorded(backend)
    assert rewards_of(backend, run.id) == ([0], [1.0])
    [item] = backend.client.groups(run.id).items
    assert not backend.client.group(item.id).completions[0].has_trace
    assert any("left out" in line.message for line in backend.client.logs(run.id).items)


def test_steps_that_the_disk_did_not_take_are_counted_in_the_runs_log(
    backend: Backend, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Spool.append

    def full(self: Spool, kind: str, message: Any) -> None:
        if getattr(message, "step", None) in (1, 2):
            raise OSError(28, "No space left on device")
        append(self, kind, message)

    monkeypatch.setattr(Spool, "append", full)
    with groupscope.start_run("mine", known=KNOWN, backend=backend.url, home=home) as one:
        steps(one, 0, 5)
    run = recorded(backend)
    assert rewards_of(backend, run.id)[0] == [0, 3, 4]
    [line] = backend.client.logs(run.id).items
    assert line.message.startswith("steps that could not be recorded whole: 2, the first of them step 1")


def test_tensors_and_arrays_are_numbers_and_a_weight_that_is_not_said_is_none(backend: Backend, home: Path) -> None:
    import numpy as np
    import torch

    tokens = Tokens(
        torch.tensor([1, 2]), [b"a", b"b"], trained=torch.tensor([1, 0]), logprob=np.array([-0.5, float("nan")])
    )
    scored = Completion("ab", reward=torch.tensor(1.5), tokens=tokens, rewards={"right": 0.5, "length": 7.0})  # type: ignore[arg-type]
    with groupscope.start_run("mine", known=KNOWN, backend=backend.url, home=home) as one:
        one.log_groups([Group("p", [scored, Completion("b", rewards={"length": 7.0})])])
    [item] = backend.client.groups(recorded(backend).id).items
    first, second = backend.client.group(item.id).completions
    assert (item.reward_mean, item.reward_std) == (1.5, None)
    trace = backend.client.tokens(first.id)
    assert (first.reward, trace.logprob, trace.trained) == (1.5, [-0.5, None], [True, False])
    assert [(score.name, score.weight) for score in first.rewards] == [("right", 2.0), ("length", None)]
    assert (first.unweighed, second.reward, second.unweighed) == (False, None, True)


def test_what_a_backend_does_not_take_stays_on_the_disk_until_it_does(
    backend: Backend, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def of_another_release(self: Client, recording: protocol.Recording) -> protocol.Claim:
        return self._to.post(protocol.Claim, "/api/v1/worker/recordings", recording)  # which names no protocol

    monkeypatch.setattr(Client, "record", of_another_release)
    one = groupscope.start_run("mine", known=KNOWN, backend=backend.url, home=home)
    steps(one, 0, 2)
    one.finish(seconds=0.5)
    assert not backend.client.runs(kind="recorded").items
    assert "install the same release" in caplog.text
    monkeypatch.undo()
    [about] = left_over(home)
    assert deliver(about, backend.client) is not None
    assert (recorded(backend).status, recorded(backend).progress.step) == ("finished", 2)


def test_a_wrong_token_is_said_to_be_one_with_where_the_right_one_is_and_so_is_none(
    backend: Backend, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("GROUPSCOPE_TOKEN")
    with pytest.raises(CannotStart, match="set GROUPSCOPE_TOKEN"):
        groupscope.start_run("mine", home=home)
    assert not home.exists()
    monkeypatch.setenv("GROUPSCOPE_TOKEN", "of-another-backend")
    groupscope.start_run("mine", backend=backend.url, home=home).finish(seconds=0.5)
    assert "It lies in <home>/token there, or is its GROUPSCOPE_TOKEN" in caplog.text
    assert "does not answer" not in caplog.text


def test_a_script_without_logging_is_told_which_run_records_it(backend: Backend, home: Path) -> None:
    script = f"""
import groupscope
with groupscope.start_run("mine", backend={backend.url!r}, home={str(home)!r}) as run:
    run.log_metrics({{"reward": 1.0}}, 0)
"""
    reach = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    told = subprocess.run([sys.executable, "-c", script], env=reach, capture_output=True, text=True, check=True)
    assert told.stderr == f"groupscope: recorded as run {recorded(backend).id} of {backend.url}\n"
    assert told.stdout == ""


def test_a_program_that_somebody_interrupts_has_a_run_that_was_stopped(backend: Backend, home: Path) -> None:
    one = groupscope.start_run("mine", backend=backend.url, home=home)
    steps(one, 0, 1)
    with pytest.raises(KeyboardInterrupt), one:
        raise KeyboardInterrupt
    assert (recorded(backend).status, recorded(backend).progress.step) == ("stopped", 1)


def test_a_conversation_is_stored_with_who_said_what(backend: Backend, home: Path) -> None:
    messages = [
        {"role": "assistant", "content": "I look it up.", "tool_calls": [
            {"id": "c1", "function": {"name": "find", "arguments": {"what": "\U0001f30d"}}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "nothing"}, {"type": "image"}]},
        {"role": "user", "content": "And now?"},
        {"role": "assistant", "content": "", "trainable": False},
    ]  # fmt: skip
    said = turns_of(messages)
    said[2].failed = True
    said[0].reward, said[0].policy_version = 0.5, "12"
    tokens = Tokens([1, 2, 3], [b"I", b"t", b"u"], trained=[True, False, False], old_logprob=[-1.0, None, None])
    with groupscope.start_run("talk", backend=backend.url, home=home) as one:
        one.log_groups([Group("Where?", [Completion(turns=said, reward=1.0, tokens=tokens)])], 0)
    [found] = backend.client.groups(recorded(backend).id).items
    [stored] = backend.client.group(found.id).completions
    assert stored.text == 'I look it up.\nfind({"what": "\U0001f30d"})\nnothing[image]\nAnd now?\n'
    assert [(turn.role, turn.tool, turn.trained) for turn in stored.turns] == [
        ("assistant", None, True),
        ("assistant", "find", True),
        ("tool", "find", False),
        ("user", None, False),
        ("assistant", None, False),
    ]
    assert [part for _, part in stretches(stored.text, stored.turns)] == [turn.stretch for turn in said]
    assert (stored.turns[0].reward, stored.turns[0].policy_version, stored.turns[2].failed) == (0.5, "12", True)
    assert backend.client.tokens(stored.id).trained == [True, False, False]
    table = pq.read_table(BytesIO(b"".join(backend.client.export_table(found.run_id, "groups"))))
    [row] = table.to_pylist()
    assert row["text"] == stored.text
    assert json.loads(row["turns"]) == [turn.model_dump() for turn in stored.turns]


@pytest.mark.parametrize(
    ("rewards", "advantages", "state"),
    [
        ([1.0, 0.0], [0.5, -0.5], "live"),
        ([1.0, 0.0], [0.0, 0.0], "zero_variance"),
        ([1.0, 0.0], [1e-6, -1e-6], "live"),
        ([0.25, 0.25], [-4.7e-6, -4.7e-6], "zero_variance"),
        ([0.25, 0.25], [0.3, 0.3], "live"),
        ([None, None], [1e-6, -1e-6], "live"),
        ([1.0, 0.0], [None, None], "live"),
        ([1.0, 1.0], [None, None], "zero_variance"),
        ([None, None], [None, None], "unscored"),
    ],
)
def test_a_group_is_dead_if_nothing_in_it_differs_but_by_rounding(
    rewards: list[float | None], advantages: list[float | None], state: str
) -> None:
    said = [Completion("x", reward=one, advantage=other) for one, other in zip(rewards, advantages, strict=True)]
    assert group_report(0, Group("?", said), [None, None], {}).state == state
