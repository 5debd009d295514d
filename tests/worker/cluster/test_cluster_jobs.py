"""Every run of a worker that has a cluster is done there, by processes that get no secret and reach the backend through the worker."""

import asyncio
import pickle
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from processes import tiny_run
from wire import Wire, claimed, worker

from backend.bucket.bucket import MANIFEST, Bucket
from backend.contract.protocol import CheckpointReport, Fail, Finish, Report
from worker import main
from worker.cluster import cluster
from worker.cluster.exchange import Exchange
from worker.errors import Interrupted
from worker.job import run_claim
from worker.ranks.launch import Heard, Line, RankFailed, tell_end
from worker.ranks.ranks import Ranks
from worker.settings import Settings, store_name

CPU = torch.device("cpu")
SECRETS = ["the-backends-token", "claims-secret", "vllm-key", "judge-password"]
JUDGES = {"strict": {"url": "https://user:judge-password@judge.example/v1", "model": "some-model"}}
DATASET = {"kind": "dataset", "source": "upload:3", "held_out": 0}
ROWS = b'{"prompt": "1 + 1", "answer": "2"}\n' * 4


def sent(what: Any) -> Any:
    """It as it arrives elsewhere."""
    return pickle.loads(pickle.dumps(what))  # noqa: S301 — our own


class Ends:
    """A line within one process."""

    def __init__(self, heard: Heard, answers: Mapping[str, Callable[..., Any]]) -> None:
        self.heard, self.answers, self.replies = heard, answers, list[tuple[bool, Any]]()

    def send(self, message: tuple[str, object, object], /) -> None:
        self.heard.take(0, sent(message), self.answers, self.replies.append)

    def recv(self) -> tuple[bool, Any]:
        return self.replies.pop() if self.replies else (False, None)


class InPlace:
    """A cluster that has one process: this one, which sees no more of the worker than what is sent."""

    def __init__(self, home: Path) -> None:
        self.there, self.sent, self.asked, self.places = home, b"", set[str](), 1

    def free(self) -> int:
        return self.places

    def run_ranks(self, work: Any, given: Any, *, attempt: int, count: int, answers: Any, **_: object) -> Any:
        self.sent, heard, self.answers = pickle.dumps((work, tuple(given))), Heard(), answers
        work, (settings, *others, place) = sent((work, tuple(given)))
        settings = settings.model_copy(update={"home": self.there})
        place = replace(place, store=replace(place.store, folder=settings.store))
        given = (settings, *others, place)
        line = Line(Ends(heard, {name: partial(self._answer, name) for name in answers}))
        tell_end(line, attempt, lambda: work(Ranks(0, count), CPU, line, *given))
        if heard.refused is not None:
            raise heard.refused
        if failed := heard.own_failure():
            raise RankFailed(failed)
        return heard.result

    def _answer(self, name: str, *given: object) -> Any:
        self.asked.add(name)
        return self.answers[name](*given)


def do(
    home: Path, config: dict[str, object], *, wire: Wire | None = None, there: Path | None = None, **changes: object
) -> tuple[Wire, InPlace]:
    wire, place = wire or Wire(), InPlace(there or home)
    settings = {"executor": "ray", "ray_address": "head:6379", "token": SECRETS[0], "judges": JUDGES}
    settings |= {"vllm_url": "http://vllm:8000", "vllm_weights": home / "w", "vllm_api_key": SECRETS[2]}
    one = worker(home, wire, **(settings | changes))
    info = one.info.model_copy(update={"store": store_name(one.settings.own_store)})
    named = {**one.__dict__, "info": info, "cluster": place}
    run_claim(type(one)(**named), claimed(config).model_copy(update={"secret": SECRETS[1]}))
    return wire, place


@pytest.fixture
def uploaded(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire = Wire()
    monkeypatch.setattr(wire, "upload_content", Mock(side_effect=lambda upload: ROWS if upload == 3 else b""))
    return wire


def test_a_run_of_one_process_is_done_there_and_what_it_gets_has_no_secret(tmp_path: Path, uploaded: Wire) -> None:
    wire, place = do(tmp_path, tiny_run(2, every=2, task=DATASET), wire=uploaded)
    assert isinstance(wire.told[-1], Finish), wire.told[-1]
    assert [one.step for one in wire.told if isinstance(one, CheckpointReport)] == [2]
    assert place.asked >= {"send", "show", "requested", "shutting_down", "between_steps", "upload_content"}
    assert [secret for secret in SECRETS if secret.encode() in place.sent] == []
    assert place.answers["upload_content"](3) == ROWS
    uploaded.upload_content.assert_called_once_with(3)  # however many processes ask


@pytest.mark.parametrize(
    "config",
    [
        {"kind": "sample", "prompts": ["Calculate 2 + 2 x 6"], "group_size": 1},
        {
            "kind": "dpo",
            "pairs": {"kind": "sampled", "prompts": 6, "held_out_prompts": 2, "group_size": 4},
            "budget": {"steps": 1, "pairs_per_step": 2, "eval_every": 0, "checkpoint_every": 1},
        },
    ],
    ids=lambda config: config["kind"],
)
def test_runs_of_other_kinds_are_done_there_too(tmp_path: Path, config: dict[str, object]) -> None:
    wire, place = do(tmp_path, config)
    assert isinstance(wire.told[-1], Finish), wire.told[-1]
    assert place.sent
    assert any(isinstance(one, Report) for one in wire.told)


def test_a_node_without_the_data_directory_fails_the_run_and_says_what_to_do(tmp_path: Path) -> None:
    wire, _ = do(tmp_path, tiny_run(1), there=tmp_path / "there")
    (fail,) = [one for one in wire.told if isinstance(one, Fail)]
    assert fail.error.code == "node_without_data"
    assert (
        f"does not have the worker's data directory at {tmp_path / 'there'}. Mount the same folder there"
        in fail.error.message
    )


@pytest.mark.thorough
def test_with_a_bucket_a_node_needs_no_data_directory_and_keeps_what_it_saves_from_other_users(
    tmp_path: Path, bucket: Bucket
) -> None:
    there = tmp_path / "of" / "another machine"
    wire, _ = do(tmp_path, tiny_run(1, every=1), there=there, checkpoints=bucket.address)
    assert isinstance(wire.told[-1], Finish), wire.told[-1]
    [saved] = [one for one in wire.told if isinstance(one, CheckpointReport)]
    assert f"{saved.path}/{MANIFEST}" in bucket.keys("run-7")
    assert stat.S_IMODE(there.stat().st_mode) == 0o700


def test_a_node_takes_judges_and_vllm_from_its_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Settings.model_validate(
        {"home": tmp_path, "judges": JUDGES, "token": SECRETS[0], "silence_seconds": 7, "backend_url": "http://b:1"}
    )
    (tmp_path / ".env").write_text('GROUPSCOPE_JUDGES={"strict": {"url": "http://near.example", "model": "near"}}\n')
    (tmp_path / ".env").chmod(0o600)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("GROUPSCOPE_SILENCE_SECONDS", "9")
    received = given.to_send().as_received()
    assert str(received.judges["strict"].url) == "http://near.example/"
    assert (received.silence_seconds, received.token, received.backend_url) == (7, None, "http://127.0.0.1:8000")


@pytest.mark.parametrize("places", [0, 1])
def test_while_the_cluster_is_full_a_worker_lets_the_backend_know_of_it_and_takes_no_run(
    tmp_path: Path, places: int
) -> None:
    place, client = InPlace(tmp_path), Mock()
    place.places = places
    replace(worker(tmp_path, Wire()), cluster=place, client=client).ask("sample")
    [(asked,)] = [call.args for call in client.ask.call_args_list]
    assert (asked.kinds, asked.worker.processes) == (["sample"] * places, 1)


def test_without_ray_a_worker_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", "a-token-for-this-test")
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: None if name == "ray" else object())
    with pytest.raises(SystemExit) as ended:
        main.main(["--home", str(tmp_path), "--executor", "ray", "--ray-address", "head:6379"])
    assert "pip install 'groupscope[worker,ray]'" in str(ended.value)


class Failed(Exception):
    """As Ray Train's errors are seen from here."""

    worker_failures: dict[int, Exception]


def test_what_a_process_said_counts_more_than_that_ray_lost_it() -> None:
    heard, error = Heard(), Failed("Ray says so")
    error.worker_failures = {0: Exception(), 1: Exception()}
    died = cluster._cause(3, heard, [error], 2)
    assert (died.error.code, died.retryable, died.error.details) == ("rank_died", True, "Ray says so")
    assert died.error.message.startswith("Process 0 of the 2 processes of this run died on the Ray cluster")
    lost = Fail.model_validate({"attempt": 3, "error": {"code": "lost", "message": "it lost another"}})
    heard.failed.append((0, lost, True))
    assert cluster._cause(3, heard, [error], 2).error.message.startswith("Process 1 of the 2 processes")
    own = Fail.model_validate({"attempt": 3, "error": {"code": "own", "message": "its own"}})
    heard.failed.append((1, own, False))
    assert cluster._cause(3, heard, [error], 2) is own


def test_a_job_that_got_no_places_or_lost_them_to_a_preemption_is_no_failure() -> None:
    preempted, timed_out = (
        type(name, (Exception,), {}) for name in ("PreemptionError", "WorkerGroupStartupTimeoutError")
    )
    waited = Exception()
    waited.controller_failure = timed_out()  # type: ignore[attr-defined]
    died, by_ray, by_itself = Exception(), Failed(), Failed()
    died.health_check_failure = SimpleNamespace(preempted=True)  # type: ignore[attr-defined]
    by_ray.worker_failures, by_itself.worker_failures = {0: Exception(), 1: died}, {0: Exception()}
    assert "taken away" in (cluster._no_fault(preempted()) or "")
    assert "taken away" in (cluster._no_fault(by_ray) or "")
    assert cluster._no_fault(by_itself) is None
    assert "took the places" in (cluster._no_fault(waited) or "")
    assert cluster._no_fault(Exception()) is None
    assert Interrupted().ending == "released"


def test_each_process_gets_the_answer_to_what_it_asked_and_silence_loses_nothing() -> None:
    async def talk() -> tuple[list[tuple[int, bytes]], bytes, bytes]:
        exchange = Exchange()
        assert await exchange.hear(0.01) == []
        await exchange.say(1, b"here")
        first, second = (asyncio.create_task(exchange.ask(rank, b"what?")) for rank in (0, 1))
        await asyncio.sleep(0)
        heard = await exchange.hear(10)
        await exchange.answer(1, b"one")
        await exchange.answer(0, b"zero")
        await exchange.answer(0, b"nobody asked")
        return heard, await first, await second

    assert asyncio.run(talk()) == ([(1, b"here"), (0, b"what?"), (1, b"what?")], b"zero", b"one")
