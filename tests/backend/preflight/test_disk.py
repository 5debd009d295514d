"""What a run takes of the disk is said before it starts, and what would take less."""

from typing import Any

import pytest
from acting import GRPO, Actor
from serving import Backend

from backend.contract.base import Json
from backend.contract.grpo import GrpoConfig
from backend.contract.training import Keep
from backend.preflight.facts import Facts
from backend.preflight.hints import disk

GIB = 2**30
SMOLLM2: dict[str, Json] = {"source": "builtin:smollm2-135m-instruct"}
EACH = 12 * 134_515_008 / GIB  # weights and two moments of each, in float32: 1.50 GiB


def said(free: float, **changes: Any) -> list[tuple[str, str, object]]:
    config = GrpoConfig.model_validate({"model": SMOLLM2, **changes})
    return [(one.level, one.text, one.fix) for one in disk(config, Facts(disk_free=round(free * GIB)))]


def test_checkpoints_that_do_not_fit_are_said_with_what_would() -> None:
    [(level, text, fix)] = said(6.1, budget={"steps": 200, "checkpoint_every": 20})
    assert level == "warning"
    assert text == f"checkpoints take up to about {10 * EACH:.1f} GiB (10 of 1.50 GiB); 6.1 GiB are free where they lie"
    assert fix == {"budget.keep.last": 2}
    assert not any(fix for _, _, fix in said(2.0, budget={"steps": 200})), "two do not fit either"


@pytest.mark.parametrize(
    ("free", "budget", "level"),
    [
        (1000.0, {}, None),
        (20.0, {"steps": 200}, "info"),
        (8.0, {"steps": 200, "keep": {"last": 2}}, "info"),
        (4.0, {"steps": 200, "keep": {"last": 2}}, "warning"),
        (8.0, {"steps": 200, "keep": {"at_most_gib": 5.0}}, "info"),
    ],
)
def test_what_fits_is_said_only_if_it_is_much(free: float, budget: dict[str, Json], level: str | None) -> None:
    assert [one[0] for one in said(free, budget=budget)] == ([level] if level else [])


def test_traces_of_every_token_are_counted() -> None:
    many = {"prompts_per_step": 64, "group_size": 64, "max_new_tokens": 4096}
    run = {"budget": {"steps": 1000, "checkpoint_every": 0}, "telemetry": {"token_traces": "all"}}
    [(level, text, fix)] = said(100.0, sampling=many, optimizer={"micro_batch_tokens": 8192}, **run)
    assert level == "warning"
    assert f"token traces {10 * 1000 * 64 * 64 * 4096 / GIB:.1f} GiB" in text
    assert fix == {"telemetry.token_traces": "extremes"}


def test_a_disk_that_nobody_knows_is_not_spoken_of(backend: Backend) -> None:
    assert list(disk(GrpoConfig.model_validate({"model": SMOLLM2, "budget": {"steps": 100_000}}), Facts())) == []
    config: dict[str, Json] = {**GRPO, "model": SMOLLM2, "budget": {"steps": 1_000_000, "checkpoint_every": 1}}

    def of_the_disk() -> list[str]:
        return [one.text for one in backend.client.preflight(config).messages if one.field == "budget.keep.last"]

    assert of_the_disk() == [], "no worker is there"
    Actor(backend.client, store="/elsewhere#1").claim()
    assert of_the_disk() == [], "another machine's disk"
    Actor(backend.client, "two", store=f"{(backend.home / 'checkpoints').resolve()}#1").claim()
    [text] = of_the_disk()
    assert text.startswith("checkpoints take up to about ")


@pytest.mark.parametrize(
    ("keep", "steps", "every", "most"),
    [
        ({}, 100, 20, 5),
        ({}, 101, 20, 6),
        ({}, 100, 0, 1),
        ({"last": 2}, 1000, 20, 4),
        ({"last": 2, "best": False}, 1000, 20, 3),
        ({"last": 2, "best": False, "every": 100}, 1000, 20, 13),
        ({"last": 50}, 100, 20, 5),
    ],
)
def test_as_many_checkpoints_as_lie_on_the_disk_at_once(
    keep: dict[str, Json], steps: int, every: int, most: int
) -> None:
    assert Keep.model_validate(keep).most(steps, every) == most
