"""Prompts that a free worker looks at before the launch, and crashes that come again: what the form and the run's page are told."""

import json
from pathlib import Path

import pytest
import torch
from acting import GRPO, Actor, began
from serving import Backend

from backend.contract import protocol as p
from backend.contract import records as r
from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG
from backend.contract.grpo import GrpoConfig
from backend.contract.preflight import NOT_LOOKED, Message
from backend.looks import WISHED_SECONDS
from worker.looks import Looker
from worker.settings import Settings
from worker.worker import Worker

FIELD = "task.prompt_column"


def asking(backend: Backend, *prompts: str, **task: Json) -> dict[str, Json]:
    """A configuration that asks these prompts, of an upload."""
    rows = "\n".join(json.dumps({"prompt": prompt, "answer": "5"}) for prompt in prompts)
    upload = backend.client.upload(f"{len(prompts)}.jsonl", rows.encode())
    source: dict[str, Json] = {
        "kind": "dataset",
        "source": f"upload:{upload.id}",
        "prompt_column": "prompt",
        "answer_column": "answer",
    }
    return {**GRPO, "task": {**source, **task}}


def of_prompts(backend: Backend, config: dict[str, Json]) -> list[Message]:
    return [one for one in backend.client.preflight(config).messages if one.field == FIELD]


def free_worker(backend: Backend, home: Path) -> Worker:
    """A real one, as far as it looks at prompts."""
    settings = Settings(home=home)
    info = p.WorkerInfo(name="free", device="CPU", store="/store#1")
    return Worker(settings, info, backend.client, torch.device("cpu"), lambda: False)


def look(backend: Backend, worker: Worker) -> None:
    """What an idle worker does: it asks for a run, and takes the wish that comes instead."""
    reply = worker.ask()
    assert reply.look is not None
    backend.client.looked(p.LookFound(key=reply.look.key, look=Looker(worker).found(reply.look)))


def test_a_free_worker_looks_at_every_prompt_and_the_form_says_what_it_found(backend: Backend, tmp_path: Path) -> None:
    worker = free_worker(backend, tmp_path)
    config = asking(backend, "Calculate 2 + 2 x 6", "Calculate 1 + 1 x 2", "Calculate 3 + 1 x 2")
    [unknown] = of_prompts(backend, config)
    assert unknown.text == f"{NOT_LOOKED}; the run looks at every prompt before its first step"
    assert worker.ask().claim is None  # heard of; the wish is another worker's now
    [waiting] = of_prompts(backend, config)
    assert (waiting.level, waiting.text) == ("info", NOT_LOOKED)
    look(backend, worker)
    [found] = of_prompts(backend, config)
    assert found.text.startswith("all 3 prompts fit the model; the longest has ")
    assert worker.ask().look is None
    assert len(list((tmp_path / "prompts").glob("*.json"))) == 1  # kept for the run


def test_rows_that_do_not_fit_are_named_with_a_way_on_before_the_launch(backend: Backend, tmp_path: Path) -> None:
    worker = free_worker(backend, tmp_path)
    worker.ask()
    for leave in (False, True):
        config = asking(backend, "Calculate 1 + 1", "Calculate 3 + 1", "1 + " * 3000, leave_out_unfit=leave)
        of_prompts(backend, config)
        look(backend, worker)
        [found] = of_prompts(backend, config)
        says = (
            "1 of 3 prompts are left out; the first: "
            if leave
            else "1 of 3 prompts cannot be asked of this model. Row 3, column prompt: "
        )
        assert found.text.startswith(says)
        assert (found.level, found.fix) == (("warning", None) if leave else ("error", {"task.leave_out_unfit": True}))


def test_a_model_that_was_mended_is_looked_at_again(backend: Backend, tmp_path: Path) -> None:
    worker = free_worker(backend, tmp_path)
    worker.ask()
    config = asking(backend, "1 + " * 3000, "Calculate 1 + 1")
    of_prompts(backend, config)
    look(backend, worker)
    looks = backend.services.looks
    now = backend.services.clock.seconds()
    asked = RUN_CONFIG.validate_python(config)
    assert isinstance(asked, GrpoConfig)
    assert (looks.of(asked, now) or p.PromptsLook()).problem
    assert looks.of(asked, now + WISHED_SECONDS + 1) is None  # and wished again
    assert looks.wish([asked.model.source], now + WISHED_SECONDS + 1) is not None


def test_a_busy_worker_and_one_without_the_model_get_no_wish(backend: Backend) -> None:
    config = asking(backend, "Calculate 1 + 1", "Calculate 3 + 1")
    of_prompts(backend, {**config, "model": {"source": "local:mine"}})
    actor = Actor(backend.client)
    ask = p.ClaimRequest.model_validate({"worker": actor.info})
    assert backend.client.ask(ask).look is None
    of_prompts(backend, config)
    assert backend.client.ask(ask.model_copy(update={"kinds": ["sample"]})).look is None
    has = actor.info.model_copy(update={"models": [r.OfferedModel(source="local:mine")]})
    assert backend.client.ask(ask.model_copy(update={"worker": has})).look is not None


@pytest.mark.parametrize(
    ("messages", "reached", "statuses"),
    [
        (["It broke.", "It broke."], [0, 0], ["queued", "failed"]),
        (["It broke.", "It broke otherwise."], [0, 0], ["queued", "queued"]),
        (["It broke.", "It broke."], [1, 2], ["queued", "queued"]),
        (["It broke.", "It broke."], [2, 2], ["queued", "failed"]),
    ],
    ids=["the same", "another", "later", "the same in a later step"],
)
def test_the_same_crash_in_the_same_step_is_not_tried_a_third_time(
    backend: Backend, messages: list[str], reached: list[int], statuses: list[str]
) -> None:
    actor = began(backend.client)
    for at, (message, steps, status) in enumerate(zip(messages, reached, statuses, strict=True)):
        if at:
            actor.begin()
        for step in range(steps):
            actor.report(step, metrics={"reward": 1.0})
        error = r.RunError(code="crash", message=message)
        backend.client.fail(actor.run_id, p.Fail(attempt=actor.attempt, error=error, retryable=True))
        assert backend.client.run(actor.run_id).status == status
