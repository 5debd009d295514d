"""Which fields may be swept, and configurations with other values in them."""

from collections.abc import Iterator
from typing import Any

import pytest

from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG
from backend.contract.recipes import RECIPES
from dashboard.comparison.settings import flatten
from dashboard.stored import get
from dashboard.sweep.fields import LONGEST, NOT_SWEPT, named, place, sweepable, value_at, variants_of

QUICKSTART = RECIPES[0].config


def leaves(config: Json) -> Iterator[str]:
    """Paths to what stands in a configuration; a list of words is one value."""
    for path in flatten(config):
        place = path
        while isinstance(get(config, place.rpartition(".")[0]), list):
            value = get(config, place)
            if isinstance(value, dict):
                break
            place = place.rpartition(".")[0]
        yield place


@pytest.mark.parametrize("card", RECIPES, ids=lambda card: card.id)
def test_every_field_of_every_recipe_can_be_swept_and_set_to_what_it_is_changes_nothing(card: Any) -> None:
    fields = sweepable(card.config)
    fixed = {"kind", "schema_version", "rewards.gates", "pairs.rewards.gates", *NOT_SWEPT}  # gates: there are none
    kinds_in_lists = {path for path in flatten(card.config) if path.endswith(".kind") and ".functions." in path}
    assert set(leaves(card.config)) - fixed - kinds_in_lists <= fields.keys()
    assert all(one.label and "  " not in one.label for one in fields.values())
    assert len({one.label for one in fields.values()}) == len(fields)

    for path, one in fields.items():
        config, taken = place(card.config, {path: value_at(one, card.config)})
        assert config == card.config
        assert list(taken) == [path]


def test_what_most_runs_differ_in_comes_first_and_another_kind_brings_its_own_fields_and_stays_valid() -> None:
    fields = sweepable(QUICKSTART)
    assert list(fields)[:3] == ["optimizer.learning_rate", "sampling.prompts_per_step", "sampling.group_size"]
    assert fields["optimizer.learning_rate"].label == "Optimizer › Learning rate"
    assert fields["rewards.functions.0.weight"].label == "Rewards › correctness › Weight"
    assert not NOT_SWEPT & fields.keys()

    kinds = sweepable(QUICKSTART)["algorithm.advantage.kind"].words
    assert kinds is not None
    assert "gae" in kinds
    for kind in ("softmax", "leave_one_out", "gae"):
        config, _ = place(QUICKSTART, {"algorithm.advantage.kind": kind})
        assert get(RUN_CONFIG.validate_python(config).model_dump(mode="json"), "algorithm.advantage.kind") == kind


def test_a_field_that_a_kind_or_part_does_not_have_is_left_out_and_what_is_equal_is_one_run() -> None:
    points = [
        {"algorithm.advantage.std": std, "algorithm.advantage.kind": kind}
        for kind in ("group_zscore", "leave_one_out")
        for std in ("population", "sample")
    ]
    variants = variants_of(QUICKSTART, points)
    assert [one.name for one in variants] == [
        "std population · advantage.kind group_zscore",
        "std sample · advantage.kind group_zscore",
        "advantage.kind leave_one_out",
    ]
    for one in variants:
        RUN_CONFIG.validate_python(one.config)

    points = [{"model.lora": on, "model.lora.rank": rank} for on in (True, False) for rank in (4, 8)]
    config, taken = place(QUICKSTART, points[0])
    assert (get(config, "model.lora.rank"), taken) == (4, points[0])
    names = [one.name for one in variants_of(QUICKSTART, points)]
    assert names == ["lora true · rank 4", "lora true · rank 8", "lora false"]


def test_a_name_fits_into_a_run_and_the_base_stays_as_it_was() -> None:
    assert named({"optimizer.learning_rate": 1e-5, "sampling.group_size": 8}) == "learning_rate 1e-5 · group_size 8"
    assert len(named({"task.template": "word " * 100})) == LONGEST

    before = repr(QUICKSTART)
    place(QUICKSTART, {"rewards.functions.0.weight": 0.5, "sampling.stop": ["\n"]})
    assert repr(QUICKSTART) == before
