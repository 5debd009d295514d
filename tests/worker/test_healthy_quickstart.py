"""The quickstart, really trained at twice its rate in less than half its steps: nothing about it is unusual, at any of them."""

from pathlib import Path

import pytest
import recorded
from pydantic import BaseModel
from serving import Backend
from witness import Witness, train

from backend.contract.client import Client
from backend.contract.grpo import GrpoConfig
from backend.contract.health import Health
from backend.contract.protocol import Report
from backend.contract.recipes import QUICKSTART, RECIPES


class Reporting(Witness):
    """Passes each step on to a backend, and asks it at once how the run does."""

    def __init__(self, client: Client, run_id: int) -> None:
        super().__init__()
        self._client, self._run_id = client, run_id
        self.told: list[Health] = []  # after each step

    def send(self, kind: str, message: BaseModel) -> None:
        super().send(kind, message)
        if isinstance(message, Report):
            self._client.report(self._run_id, message)
            if message.trained_step is not None:
                self.told.append(self._client.health(self._run_id))


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1200)  # half a minute of nothing but training: on a machine with much else to do it may be ten
def test_no_rule_warns_at_any_step_of_a_healthy_quickstart(backend: Backend, tmp_path: Path) -> None:
    card = next(card for card in RECIPES if card.id == QUICKSTART)
    config = GrpoConfig.model_validate(card.config)
    looks_alone = config.model_copy(
        update={
            "optimizer": config.optimizer.model_copy(update={"learning_rate": 2 * config.optimizer.learning_rate}),
            "budget": config.budget.model_copy(update={"steps": 45, "eval_every": 0, "checkpoint_every": 0}),
            "telemetry": config.telemetry.model_copy(update={"token_traces": "none"}),
        }
    )
    run_id = backend.client.create_run(looks_alone.model_dump(mode="json")).id
    reporting = Reporting(backend.client, run_id)
    recorded.claim(backend.client, run_id)
    train(looks_alone, tmp_path, reporting)

    assert len(reporting.told) == looks_alone.budget.steps
    warnings = [f"{step}: {hint.measured}" for step, told in enumerate(reporting.told) for hint in told.warnings]
    assert warnings == []
    assert {hint.code for told in reporting.told for hint in told.items} <= {"loss_near_zero", "dead_groups"}
    last = reporting.told[-1]
    assert all(rule.missing is None for rule in last.checked)
    assert backend.client.run(run_id).summary["reward"] > 0.9  # type: ignore[operator]
