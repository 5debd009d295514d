"""By which fields the runs of a sweep are taken together."""

from datetime import UTC, datetime

from backend.contract.base import Json
from backend.contract.recipes import RECIPES
from backend.contract.records import Metrics, Progress, Run
from dashboard.comparison.curves import groups_of
from dashboard.comparison.settings import cell, setting, settings_of_sweep, short_names, swept
from dashboard.sweep.fields import place

QUICKSTART = RECIPES[0].config


def runs(*points: dict[str, Json]) -> list[Run]:
    """A run of the quickstart for each point."""
    return [
        Run(
            id=number,
            name="x",
            kind="grpo",
            status="queued",
            config=place(QUICKSTART, point)[0],
            progress=Progress(step=0, total_steps=100),
            attempt=0,
            failures=0,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for number, point in enumerate(points)
    ]


def test_what_a_kind_brings_along_was_not_swept() -> None:
    kinds = ("group_zscore", "softmax", "gae")
    made = runs(
        *({"algorithm.advantage.kind": kind, "algorithm.kl.beta": beta} for kind in kinds for beta in (0.0, 0.1))
    )
    assert swept(made) == settings_of_sweep(made) == ["algorithm.advantage.kind", "algorithm.kl.beta"]


def test_a_field_of_a_kind_that_varies_by_itself_was_swept() -> None:
    gae, std = {"algorithm.advantage.kind": "gae"}, "algorithm.advantage.std"
    assert swept(runs(gae, {std: "population"}, {std: "sample"})) == ["algorithm.advantage.kind", std]


def test_a_part_that_only_some_have_is_one_field() -> None:
    assert len(swept(runs({"model.lora": True}, {"model.lora": False}))) == 1
    many = runs({"model.lora": False}, *({"model.lora": True, "model.lora.rank": rank} for rank in (4, 8)))
    assert swept(many) == ["model.lora.rank"]


def test_many_fields_that_vary_are_all_kept() -> None:
    points: list[dict[str, Json]] = [
        {
            "optimizer.learning_rate": rate,
            "optimizer.weight_decay": decay,
            "sampling.group_size": size,
            "sampling.top_p": top,
        }
        for rate, decay, size, top in ((1e-5, 0.0, 4, 0.9), (2e-5, 0.1, 8, 0.95), (3e-5, 0.2, 16, 1.0))
    ]
    assert sorted(settings_of_sweep(runs(*points))) == sorted(points[0])


def test_runs_that_differ_in_nothing_are_taken_together_by_their_recipe() -> None:
    assert settings_of_sweep(runs({}, {})) == ["recipe"]


def test_a_run_without_a_recipe_is_not_taken_for_one_of_the_recipe_named_like_its_kind() -> None:
    with_it, without = (
        run.model_copy(update={"config": {**run.config, "recipe": recipe}})
        for run, recipe in zip(runs({}, {}), ("grpo", None), strict=True)
    )
    assert [setting(run, ["recipe"]) for run in (with_it, without)] == ["grpo", "no recipe (grpo)"]


def test_a_label_names_what_a_kind_is_the_kind_of_and_writes_numbers_as_people_do() -> None:
    fields = ["algorithm.advantage.kind", "optimizer.learning_rate"]
    (run,) = runs({"optimizer.learning_rate": 1e-5})
    assert setting(run, fields) == "advantage.kind group_zscore · learning_rate 1e-5"
    assert short_names(["a.b", "c.b"]) == {"a.b": "a.b", "c.b": "c.b"}


def test_whole_numbers_are_exact_and_their_thousands_separated() -> None:
    written = [cell(value) for value in (1_000_000, 1e6, -1.0, 8, 2e-4, 0.95, True, None)]
    assert written == ["1,000,000", "1,000,000", "-1", "8", "2e-4", "0.95", "true", "–"]


def test_groups_are_in_the_order_of_their_first_run_and_without_fields_each_run_is_one() -> None:
    rate = "optimizer.learning_rate"
    made = runs({rate: 5e-4}, {rate: 1e-4}, {rate: 5e-4})
    found = {run.id: Metrics(run_id=run.id, series={}) for run in made}
    together = groups_of(made, found, [rate])
    assert [(group.label, len(group.members)) for group in together] == [
        ("learning_rate 5e-4", 2),
        ("learning_rate 1e-4", 1),
    ]
    assert [group.number for group in groups_of(made, found, [])] == [run.id for run in made]
