"""What scores a run is kept with each attempt that it is new to, and binds the next one unless a person let it change."""

from hashlib import sha256

import pytest
from acting import GRPO, Actor
from serving import Backend

from backend.contract.protocol import Claim, Start
from backend.contract.records import RewardText

A, B = "def reward(completion):\n    return 1\n", "def reward(completion):\n    return 2\n"


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def attempt(actor: Actor, *texts: str) -> Claim:
    """One that is scored by files with these texts and ends with an error."""
    claim = actor.claimed()
    files = [RewardText(name=f"file{at}.py", sha256=digest(text), text=text) for at, text in enumerate(texts)]
    start = Start(attempt=claim.attempt, from_step=0, device="CPU", reward_texts=files)
    actor.client.start(claim.run_id, start)
    actor.fail()
    return claim


def kept(backend: Backend, run_id: int) -> list[tuple[int, list[str]]]:
    return [(one.attempt, [file.text for file in one.files]) for one in backend.client.rewards(run_id)]


def test_the_same_texts_are_kept_once_and_bind_the_next_attempt(backend: Backend) -> None:
    run, actor = backend.client.create_run(GRPO), Actor(backend.client)
    assert attempt(actor, A, B).scored_by == {}
    backend.client.command(run.id, "retry")
    assert attempt(actor, A, B).scored_by == {"file0.py": digest(A), "file1.py": digest(B)}
    assert kept(backend, run.id) == [(1, [A, B])]


@pytest.mark.parametrize("second", [A, B], ids=["put back", "changed"])
def test_a_text_that_was_let_change_binds_from_then_on_put_back_or_changed(backend: Backend, second: str) -> None:
    run, actor = backend.client.create_run(GRPO), Actor(backend.client)
    attempt(actor, A)
    backend.client.retry_with_changed_rewards(run.id)
    assert attempt(actor, second).scored_by == {}
    backend.client.command(run.id, "retry")
    assert attempt(actor, second).scored_by == {"file0.py": digest(second)}
    assert kept(backend, run.id) == [(2, [second]), (1, [A])]
