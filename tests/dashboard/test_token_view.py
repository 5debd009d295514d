"""What the token view is given for a trace."""

import base64
import json
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, TokenTrace
from backend.contract.grpo import GrpoConfig
from dashboard.token_view.columns import NOT_TRAINED_ON, Drawn, View, view_of

CONFIG = GrpoConfig().model_dump(mode="json")
LONG = 4000


def completion(advantage: float | None = 0.5, finish_reason: str = "stop") -> CompletionRecord:
    fields = {"id": 3, "index": 1, "text": "", "token_count": 2, "finish_reason": finish_reason, "advantage": advantage}
    return CompletionRecord.model_validate(fields)


def trace(*texts: str, **lists: object) -> TokenTrace:
    ids = list(range(len(texts)))
    return TokenTrace.model_validate({"completion_id": 3, "token_ids": ids, "texts": list(texts), **lists})


def columns(view: View) -> dict[str, Drawn]:
    return {column["name"]: column for column in view["columns"]}


def numbers(column: Drawn) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(column["values"]), dtype="<f4")


def test_a_value_arrives_as_it_was_recorded_and_a_missing_one_as_no_number() -> None:
    view = view_of(trace("a", "b", entropy=[0.123456789, None]), completion(), CONFIG)
    entropy = numbers(columns(view)["entropy"])
    assert entropy[0] == np.float32(0.123456789)
    assert math.isnan(entropy[1])


def test_what_was_not_computed_is_not_offered() -> None:
    view = view_of(trace("a", "b", entropy=[0.1, 0.2], kl=[None, None]), completion(), CONFIG)
    assert set(columns(view)) == {"advantage", "entropy"}
    assert [name for name, column in columns(view).items() if column["offered"]] == ["entropy"]


def test_advantage_times_weight_comes_first_and_is_zero_where_the_ratio_is_clipped() -> None:
    view = view_of(trace("a", "b", ratio=[1.1, 1.5], clipped=[False, True]), completion(advantage=0.5), CONFIG)
    first = view["columns"][0]
    assert first["name"] == "pull"
    assert numbers(first) == pytest.approx([0.55, 0.0])
    assert view["clipped"] == [1]


def test_the_view_opens_on_the_first_value_that_is_not_the_same_for_every_token() -> None:
    on_policy = {"ratio": [1.0, 1.0], "kl": [0.1, 0.2], "entropy": [0.3, 0.4]}
    assert view_of(trace("a", "b", **on_policy), completion(), CONFIG)["opens_on"] == "kl"
    assert view_of(trace("a", "b", **on_policy), completion(advantage=0.0), CONFIG)["opens_on"] == "kl"
    assert view_of(trace("a", "b", **(on_policy | {"kl": [None, None]})), completion(), CONFIG)["opens_on"] == "entropy"
    assert view_of(trace("a", "b", **(on_policy | {"ratio": [1.0, 0.9]})), completion(), CONFIG)["opens_on"] == "pull"
    assert view_of(trace("a", ratio=[1.0], kl=[0.1]), completion(), CONFIG)["opens_on"] == "pull"
    assert view_of(trace("a"), completion(), CONFIG)["opens_on"] == ""


def test_a_critics_advantage_is_the_tokens_own() -> None:
    traced = trace("a", "b", advantage=[0.1, -0.2], value=[0.5, 0.25], returns=[0.6, 0.05], ratio=[1.0, 1.0])
    found = columns(view_of(traced, completion(advantage=-0.05), CONFIG))
    assert numbers(found["pull"]) == pytest.approx([0.1, -0.2], rel=1e-6)
    assert found["advantage"]["offered"]
    assert {"value", "returns"} <= set(found)


def test_a_completion_that_is_left_out_of_the_loss_is_not_pulled_at() -> None:
    config: dict[str, Json] = {**CONFIG, "algorithm": {**CONFIG["algorithm"], "truncated_completions": "mask"}}
    traced = trace("a", "b", ratio=[1.0, 1.0])
    pulled = columns(view_of(traced, completion(finish_reason="length"), config))["pull"]
    assert numbers(pulled).tolist() == [0, 0]
    assert "left" in pulled["about"] or "leaves" in pulled["about"]
    assert numbers(columns(view_of(traced, completion(), config))["pull"]).tolist() == [0.5, 0.5]


def test_the_change_by_the_update_is_from_before_it_to_after_it() -> None:
    traced = trace("a", "b", old_logprob=[-1.0, -2.0], logprob=[-0.9, -2.1], logprob_after=[-0.5, -2.5])
    found = columns(view_of(traced, completion(), CONFIG))
    assert numbers(found["change"]).tolist() == [0.5, -0.5]
    assert "change" not in columns(view_of(trace("a", "b", old_logprob=[-1.0, -2.0]), completion(), CONFIG))


def test_full_colour_is_where_the_values_are_and_an_outlier_moves_it_little() -> None:
    entropy = [place / 1000 for place in range(999)] + [50.0]
    found = columns(view_of(trace(*"a" * 1000, entropy=entropy), completion(), CONFIG))
    assert 0.9 < found["entropy"]["reach"] <= 1.0


def test_colours_have_two_sides_only_where_values_have_two_signs() -> None:
    traced = trace("a", "b", kl=[0.1, 0.2], logprob=[-0.1, -3.0], ratio=[0.9, 1.3])
    found = columns(view_of(traced, completion(), CONFIG))
    assert not found["kl"]["signed"]
    assert not found["logprob"]["signed"]
    assert found["logprob"]["reach"] == -3
    assert found["ratio"]["signed"]
    assert (found["ratio"]["middle"], found["ratio"]["reach"]) == (1, pytest.approx(0.3))
    assert columns(view_of(trace("a", "b", kl=[-0.1, 0.2]), completion(), CONFIG))["kl"]["signed"]


def test_a_group_that_taught_nothing_says_why_its_tokens_have_no_more_numbers() -> None:
    view = view_of(trace("a", sampling_logprob=[-1.0]), completion(advantage=0.0), CONFIG)
    assert view["note"] == NOT_TRAINED_ON
    assert columns(view)["sampling_logprob"]["offered"]


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("<script>", "<script>"),
        (" the", "·the"),
        ("·", "·"),
        ("'", "'"),
        ("\n", "⏎\n"),
        ("\x1b[31m", "␛[31m"),
        ("\u202eabc", "⟦RLO⟧abc"),
        ("\u200b", "⟦U+200B⟧"),
        ("\u0301", "◌\u0301"),
        ("", "⟨0⟩"),
    ],
)
def test_nothing_in_a_token_is_out_of_sight_or_in_power(text: str, drawn: str) -> None:
    view = view_of(trace(text, entropy=[0.1]), completion(), CONFIG)
    assert view["shown"] == [drawn]
    assert view["literal"].get(0, f"'{drawn.replace('·', ' ')}'") == repr(text)


def test_a_long_completion_travels_in_less_than_400_kilobytes() -> None:
    values = [-0.123456 * place for place in range(LONG)]
    names = (
        *("sampling_logprob", "old_logprob", "logprob", "logprob_after", "reference_logprob"),
        *("entropy", "ratio", "kl", "advantage", "value", "returns"),
    )
    traced = trace(*[" token"] * LONG, **dict.fromkeys(names, values), clipped=[False] * LONG)
    assert len(json.dumps(view_of(traced, completion(), CONFIG))) < 400_000


def test_what_the_loss_does_not_count_is_named_and_pulls_nothing() -> None:
    measured = {"ratio": [1.1, None, None, 0.9, 1.0], "trained": [True, False, False, True, False]}
    view = view_of(trace("a", "b", "c", "d", "e", **measured), completion(advantage=0.5), CONFIG)
    assert view["untrained"] == [(1, 3), (4, 5)]
    assert numbers(columns(view)["pull"]) == pytest.approx([0.55, 0.0, 0.0, 0.45, 0.0])
    assert view_of(trace("a", ratio=[1.0]), completion(), CONFIG)["untrained"] == []
