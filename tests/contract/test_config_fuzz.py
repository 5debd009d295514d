"""A configuration is refused by the field, or it means the same whenever it is read again: stored, sent, written, migrated."""

import json
from typing import Any

import pytest
from drawing import examples, places, put
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.contract.base import to_json
from backend.contract.config import MODELS, RUN_CONFIG
from backend.contract.recipes import RECIPES
from backend.field_errors import field_errors

SAMPLE = RUN_CONFIG.validate_python({"kind": "sample", "prompts": ["2 + 2"], "launch": {"kind": "grpo"}})
WHOLE: list[Any] = [*(recipe.config for recipe in RECIPES), SAMPLE.model_dump(mode="json")]
TEXTS = st.text(max_size=30) | st.sampled_from(["\0", "\ud800", "\u202e", "\xa0", "http://[::1]/", "../x", "é" * 300])
NUMBERS = st.integers() | st.floats() | st.sampled_from([2**63 - 1, 2**63, -(2**63) - 1, 10**400, 1e308, -0.0, 1e-320])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def configurations(draw: st.DrawFn) -> Any:
    """A recipe or a sample with up to three places changed: to anything, or to what stands in the same place of another."""
    config = draw(st.sampled_from(WHOLE))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(config)[1:]))
        other = draw(st.sampled_from(WHOLE))
        try:
            for key in place:
                other = other[key]
        except (KeyError, IndexError, TypeError):
            other = None
        config = put(config, place, draw(VALUES | st.just(other)))
    if draw(st.booleans()):
        config = {**config, draw(TEXTS): draw(VALUES)}
    return config


@pytest.mark.slow
@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(configurations())
@example({"kind": "sample", "prompts": ["x"], "launch": {"a": float("inf")}})
def test_a_configuration_is_refused_in_words_or_comes_back_byte_for_byte(config: Any) -> None:
    try:
        read = RUN_CONFIG.validate_python(config)
    except ValidationError as error:
        words = field_errors(error.errors(include_url=False), config)
        assert words
        to_json([vars(one) for one in words])  # as the answer says them
        return
    stored = to_json(read.model_dump(mode="json"))
    again = RUN_CONFIG.validate_python(json.loads(stored))
    assert to_json(again.model_dump(mode="json")) == stored
    assert to_json(RUN_CONFIG.validate_json(stored).model_dump(mode="json")) == stored


def test_of_a_key_that_is_written_twice_the_stored_form_has_one() -> None:
    read = RUN_CONFIG.validate_json('{"kind": "grpo", "budget": {"steps": 3}, "budget": {"steps": 4}}')
    assert to_json(read.model_dump(mode="json")).count('"budget"') == 1
    assert set(MODELS) >= {"grpo", "dpo", "reward_model", "sample"}
