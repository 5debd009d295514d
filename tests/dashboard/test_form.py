"""The form without its page: fields of the models, defaults, and values as people type them."""

from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as s
from pydantic import ValidationError, create_model

from backend.contract.base import Json
from backend.contract.catalog import RecipeCard
from backend.contract.grpo import GrpoConfig
from backend.contract.recipes import RECIPES
from dashboard.form.draft import Unreadable, from_text
from dashboard.form.fields import in_labels
from dashboard.form.schema import (
    FIELDS,
    Field,
    Many,
    NoWidget,
    Record,
    Union,
    changed_kind,
    complete,
    fresh,
    inside,
    read_model,
    unknown,
)
from dashboard.form.widgets import fits
from dashboard.stored import get, put
from dashboard.wording import (
    dump,
    read_lines,
    read_number,
    read_settings,
    show_lines,
    show_number,
    show_settings,
    title,
)

GRPO = FIELDS["grpo"]
Shape = TypeVar("Shape", bound=Field)
DEFAULT = GrpoConfig().model_dump(mode="json")

INT64 = s.integers(-(2**63), 2**63 - 1)


def field_at(path: str, kind: type[Shape]) -> Shape:
    field: Field = GRPO
    for part in path.split("."):
        assert isinstance(field, Record)
        field = next(inner for inner in field.fields if inner.name == part)
    assert isinstance(field, kind)
    return field


def valid(config: Json) -> bool:
    try:
        GrpoConfig.model_validate(config)
    except ValidationError:
        return False
    return True


def check_fits(field: Field, value: Json) -> None:
    """There is a widget for the value, and for all that is in it."""
    assert fits(field, value), field.name
    if isinstance(field, Union) and isinstance(value, dict):
        field = field.kinds[str(value["kind"])]
    if isinstance(field, Record) and isinstance(value, dict):
        for inner in field.fields:
            check_fits(inner, value[inner.name])
    if isinstance(field, Many) and isinstance(value, list):
        for item in value:
            check_fits(field.item, item)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)
def test_a_recipe_passes_through_the_form_and_a_file_unchanged_and_each_of_its_values_has_a_widget_that_fits(
    recipe: RecipeCard,
) -> None:
    fields = FIELDS[str(recipe.config["kind"])]
    assert complete(fields, recipe.config) == recipe.config
    assert list(unknown(recipe.config, complete(fields, recipe.config))) == []
    assert from_text(dump(recipe.config), {})[0] == recipe.config
    check_fits(fields, recipe.config)


def test_the_form_begins_with_the_models_own_defaults() -> None:
    assert fresh(GRPO) == DEFAULT


def test_choosing_another_task_or_switching_lora_on_gives_a_valid_run() -> None:
    for kind in ("arithmetic", "countdown", "single_prompt", "reasoning_gym"):
        assert valid(put(DEFAULT, "task", changed_kind(field_at("task", Union), DEFAULT["task"], kind))), kind
    assert valid(put(DEFAULT, "model.lora", fresh(field_at("model.lora", Record))))


def test_choosing_another_task_keeps_what_means_the_same_and_nothing_else() -> None:
    old = {**DEFAULT["task"], "system_prompt": "Be brief.", "high": 7, "template": "Compute {expression}"}
    new = changed_kind(field_at("task", Union), old, "countdown")
    assert isinstance(new, dict)
    assert new["system_prompt"] == "Be brief."
    assert (new["kind"], new["high"]) == ("countdown", 20)
    assert "{target}" in str(new["template"])


def test_a_reward_of_another_kind_keeps_its_name_only_if_it_was_chosen() -> None:
    union = field_at("rewards.functions", Many).item
    assert isinstance(union, Union)
    for before, after in (("format", "length"), ("shape", "shape")):
        changed = changed_kind(union, {"kind": "format", "name": before, "weight": 0.5}, "length")
        assert (get(changed, "name"), get(changed, "weight")) == (after, 0.5)


def test_what_is_missing_gets_its_default_and_what_nobody_knows_is_left_out_and_named() -> None:
    sampling: Json = {"group_size": 4, "beam_width": 3}
    stored: dict[str, Json] = {"sampling": sampling, "swarm": 1, "task": {"kind": "countdown"}}
    completed = complete(GRPO, stored)
    assert sorted(unknown(stored, completed)) == ["sampling.beam_width", "swarm"]
    assert valid(completed)
    assert get(completed, "sampling.group_size") == 4
    assert get(completed, "task.numbers") == 4


def test_a_task_of_an_unknown_kind_is_kept_for_the_backend_to_refuse() -> None:
    assert complete(GRPO, {"task": {"kind": "chess", "elo": 1200}})["task"] == {"kind": "chess", "elo": 1200}  # type: ignore[call-overload, index]


@pytest.mark.parametrize("annotation", [bytes, list[float], int | str, dict[str, int] | list[str]])
def test_a_type_without_a_widget_is_refused_not_skipped(annotation: type) -> None:
    with pytest.raises(NoWidget, match="odd"):
        read_model(create_model("Odd", odd=(annotation, ...)))


def test_every_field_has_help_or_names_a_part() -> None:
    silent = [
        field.name
        for record in FIELDS.values()
        for field in inside(record)
        if not field.help and not isinstance(field, Record | Union | Many)
    ]
    assert set(silent) <= {"kind", "schema_version"}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a smaller optimizer.micro_batch_tokens.", "a smaller Optimizer › Micro batch tokens."),
        ("Adapters (model.lora) need them", "Adapters (Model › LoRA) need them"),
        ("group_zscore makes what is left", "group z-score makes what is left"),
        ("its ratio is sequence_product", "its ratio is sequence product"),
        ("the function my_own.reward_of", "the function my_own.reward_of"),
    ],
)
def test_what_the_backend_says_stands_under_the_forms_labels(said: str, shown: str) -> None:
    assert in_labels(said) == shown


def test_titles_are_words() -> None:
    names = ("top_k", "kl", "eps", "max_new_tokens", "lora")
    assert [title(name) for name in names] == ["Top k", "KL", "ε", "Max new tokens", "LoRA"]


@given(s.floats(allow_nan=False, allow_infinity=False))
def test_a_number_comes_back_as_it_was_shown(value: float) -> None:
    assert read_number(show_number(value)) == value


def test_a_learning_rate_is_shown_as_people_write_it_and_what_is_no_number_stays_as_it_was_typed() -> None:
    assert [show_number(value) for value in (2e-4, 1e-8, 0.04, 1.0, 32)] == ["2e-4", "1e-8", "0.04", "1", "32"]
    for typed in ("abc", "1,5", "nan", "inf", "2e"):
        assert read_number(typed) == typed


@given(s.lists(s.text(s.characters(codec="utf-8") | s.sampled_from("\\\nn"), min_size=1)))
@example(["\\\n"])  # came back as a backslash and an n
def test_a_list_comes_back_as_it_was_shown(entries: list[str]) -> None:
    assert read_lines(show_lines(entries)) == entries


def test_one_word_may_stand_for_a_list() -> None:
    assert read_lines(show_lines("all-linear"), "all-linear") == "all-linear"
    assert read_lines("q_proj\nv_proj", "all-linear") == ["q_proj", "v_proj"]


@given(s.dictionaries(s.text(s.characters(categories=["L"]), min_size=1), s.booleans() | INT64 | s.text()))
@example({"pattern": "\xa0"})  # one no-break space came back as nothing
@example({"pattern": "end\u3000"})
def test_settings_come_back_as_they_were_shown(settings: dict[str, Json]) -> None:
    assert read_settings(show_settings(settings)) == settings


@pytest.mark.thorough
@pytest.mark.slow
@given(s.text(s.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], include_characters="\x85\n"), min_size=1))
def test_an_exported_prompt_is_imported_unchanged(prompt: str) -> None:
    config = {**DEFAULT, "task": {"kind": "single_prompt", "prompt": prompt}}
    assert get(from_text(dump(config), {})[0], "task.prompt") == prompt


def test_a_file_means_the_same_in_the_form_and_on_the_command_line() -> None:
    text = "sampling: {group_size: 4}"
    assert from_text(text, {})[0] == GrpoConfig.model_validate({"sampling": {"group_size": 4}}).model_dump(mode="json")


@pytest.mark.parametrize(
    "text", ["a: &a [*a]", "a: 2001-02-30", "a: .inf", 'a: "\\ud800"', "a: " + "9" * 5000, "a: " + "[" * 3000]
)
def test_a_setting_that_no_json_holds_stays_as_it_was_typed(text: str) -> None:
    assert read_settings(text) == text


def test_a_part_that_stands_in_two_places_is_exported_twice() -> None:
    stop: list[Json] = ["a", "b"]
    config: dict[str, Json] = {**DEFAULT, "sampling": {"stop": stop}, "evaluation": {"stop": stop}}
    assert get(from_text(dump(config), {})[0], "evaluation.stop") == stop


@pytest.mark.parametrize(
    "text", ["", "a: [", "- 1", "just words", "kind: sample\nprompts: [a]", "a: &a [*a]", "a: .inf"]
)
def test_a_file_without_a_configuration_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(Unreadable) as refusal:
        from_text(text, {})
    assert str(refusal.value)
