"""A worker as the backend sees one: it speaks the protocol and trains nothing."""

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from backend.contract import protocol as p
from backend.contract import records as r
from backend.contract.base import Json
from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.groups import CompletionData, GroupReport, RewardScore
from backend.contract.grpo import GrpoConfig
from backend.contract.reading import NEWEST
from backend.contract.reward import Rewards
from backend.contract.sample import SampleConfig
from backend.contract.stored import REWARDS, get, put

GRPO: dict[str, Json] = GrpoConfig(rewards=Rewards(reading=NEWEST)).model_dump(mode="json")
SAMPLE: dict[str, Json] = SampleConfig(prompts=["2 + 2"]).model_dump(mode="json")


def as_submitted(config: dict[str, Json]) -> Json:
    """A configuration as a run has it that was submitted with it: it says how its answers are read."""
    stored: Json = config
    for path in REWARDS:
        stored = stored if get(stored, path) is None else put(stored, f"{path}.reading", NEWEST)
    return stored


def completion(index: int = 0, text: str = "four", reward: float | None = 1.0) -> CompletionData:
    return CompletionData(
        index=index,
        text=text,
        token_count=1,
        finish_reason="stop",
        rewards=[RewardScore(name="correctness", raw=reward, weight=1.0)],
        reward=reward,
        advantage=None if reward is None else reward - 0.5,
    )


def group(index: int = 0, *, prompt_id: str = "a", rewards: Sequence[float | None] = (1.0, 0.0)) -> GroupReport:
    finite = [reward for reward in rewards if reward is not None]
    return GroupReport(
        index=index,
        prompt_id=prompt_id,
        prompt_text=f"prompt {prompt_id}",
        state="live" if len(set(finite)) > 1 else "zero_variance",
        scored=len(finite),
        reward_mean=sum(finite) / len(finite) if finite else None,
        completions=[completion(at, f"text {at}", reward) for at, reward in enumerate(rewards)],
    )


class Actor:
    """One worker process, with the run it holds."""

    def __init__(self, client: Client, name: str = "one", store: str = "/store", **info: object) -> None:
        self.client, self.name = client, name
        known = p.WorkerInfo(name=name, device="CPU", store=store, versions={"torch": "2.13.0"})
        self.info = known.model_copy(update=info)
        self.run_id, self.attempt, self.seq = 0, 0, 0

    def claim(self, *kinds: str) -> p.Claim | None:
        request = p.ClaimRequest.model_validate({"worker": self.info, "kinds": list(kinds or ("grpo", "sample"))})
        claim = self.client.ask(request).claim
        if claim is not None:
            self.run_id, self.attempt, self.seq = claim.run_id, claim.attempt, 0
        return claim

    def claimed(self, *kinds: str) -> p.Claim:
        """A claim that must find a run."""
        claim = self.claim(*kinds)
        assert claim is not None
        return claim

    def start(self, from_step: int = 0) -> p.Accepted:
        computes = {"device": self.info.device, "versions": self.info.versions}
        return self.client.start(self.run_id, p.Start(attempt=self.attempt, from_step=from_step, **computes))

    def begin(self, from_step: int = 0, *kinds: str) -> "Actor":
        self.claimed(*kinds)
        self.start(from_step)
        return self

    def beat(self, progress: r.Progress | None = None, ranks: r.Ranks | None = None) -> p.HeartbeatReply:
        sent = p.Heartbeat(attempt=self.attempt, worker=self.name, progress=progress, ranks=ranks)
        return self.client.heartbeat(self.run_id, sent)

    def report(self, step: int | None = None, **fields: object) -> p.Accepted:
        """A training step with one group, unless `groups` says otherwise."""
        if step is not None:
            fields.setdefault("groups", [group()])
        values = {"attempt": self.attempt, "seq": self.seq, "step": step, **fields}
        accepted = self.client.report(self.run_id, p.Report.model_validate(values))
        self.seq += 1
        return accepted

    def report_two(self, step: int, **fields: object) -> p.Accepted:
        """Two training steps in one request."""
        values = {"attempt": self.attempt, "metrics": {"reward": 1.0}, **fields}
        both = [p.Report.model_validate(values | {"seq": self.seq + one, "step": step + one}) for one in range(2)]
        accepted = self.client.reports(self.run_id, p.Reports(attempt=self.attempt, reports=both))
        self.seq += 2
        return accepted

    def save(self, step: int, content: str = "", *, sha256: str = "") -> p.Accepted:
        digest = sha256 or hashlib.sha256(f"{self.run_id} {self.attempt} {step} {content}".encode()).hexdigest()
        place = {"store": self.info.store, "path": f"run-{self.run_id}/step-{step}", "sha256": digest}
        sent = p.CheckpointReport.model_validate({"attempt": self.attempt, "step": step, "size_bytes": 1, **place})
        return self.client.checkpoint(self.run_id, sent)

    def finish(self, outcome: p.Outcome = "finished") -> p.Accepted:
        return self.client.finish(self.run_id, p.Finish(attempt=self.attempt, outcome=outcome))

    def fail(self, *, retryable: bool = False) -> p.Accepted:
        error = r.RunError(code="out_of_memory", message="The GPU is too small.")
        return self.client.fail(self.run_id, p.Fail(attempt=self.attempt, error=error, retryable=retryable))

    @contextmanager
    def beating(self, interval: float) -> Iterator["Beats"]:
        """Heartbeats from a thread, as a real worker sends them: a backend that does not answer is tried again."""
        beats, over = Beats(), threading.Event()

        def beat() -> None:
            while not over.wait(interval):
                try:
                    self.beat()
                    beats.taken.append(time.monotonic())
                except (ApiError, Unreachable) as error:
                    beats.refused.append(error)

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield beats
        finally:
            over.set()
            thread.join()


def began(client: Client, config: dict[str, Json] = GRPO, name: str = "one", **info: Any) -> Actor:
    """A new run, and the worker that has begun it."""
    run_id = client.create_run(config).id
    actor = Actor(client, name, **info).begin(0, str(config["kind"]))
    assert actor.run_id == run_id
    return actor


@contextmanager
def api_error(status: int, code: str | None = None, match: str | None = None) -> Iterator[Any]:
    """What is asked in it is refused in this way; yields what pytest caught, whose `value` is the error."""
    with pytest.raises(ApiError, match=match) as caught:
        yield caught
    assert (caught.value.status, caught.value.code) == (status, code or caught.value.code)


class Beats:
    """When heartbeats were taken, and why others were not."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.refused: list[ApiError | Unreachable] = []

    @property
    def lost(self) -> bool:
        return any(isinstance(error, ApiError) and error.code == "lease_lost" for error in self.refused)

    def since(self, moment: float) -> int:
        return sum(taken > moment for taken in self.taken)
