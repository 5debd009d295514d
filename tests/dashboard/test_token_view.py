"""What the token view is given for a trace, and what it says where there is none."""

import base64
import json
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, Group, GroupState, TokenTrace
from backend.contract.grpo import GrpoConfig
from dashboard.token_view.columns import NOT_TRAINED_ON, Drawn, View, view_of
from dashboard.token_view.component import why_absent

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


def test_a_value_arrives_as_it_was_recorded_and_what_was_not_computed_is_not_offered() -> None:
    view = view_of(trace("a", "b", entropy=[0.123456789, None]), completion(), CONFIG)
    entropy = numbers(columns(view)["entropy"])
    assert entropy[0] == np.float32(0.123456789)
    assert math.isnan(entropy[1])

    view = view_of(trace("a", "b", entropy=[0.1, 0.2], kl=[None, None]), completion(), CONFIG)
    assert set(columns(view)) == {"advantage", "entropy"}
    assert [name for name, column in columns(view).items() if column["offered"]] == ["entropy"]


def test_what_the_loss_does_not_count_or_leaves_out_or_clips_pulls_nothing() -> None:
    view = view_of(trace("a", "b", ratio=[1.1, 1.5], clipped=[False, True]), completion(advantage=0.5), CONFIG)
    first = view["columns"][0]
    assert first["name"] == "pull"
    assert numbers(first) == pytest.approx([0.55, 0.0])
    assert view["clipped"] == [1]

    measured = {"ratio": [1.1, None, None, 0.9, 1.0], "trained": [True, False, False, True, False]}
    view = view_of(trace("a", "b", "c", "d", "e", **measured), completion(advantage=0.5), CONFIG)
    assert view["untrained"] == [(1, 3), (4, 5)]
    assert numbers(columns(view)["pull"]) == pytest.approx([0.55, 0.0, 0.0, 0.45, 0.0])
    assert view_of(trace("a", ratio=[1.0]), completion(), CONFIG)["untrained"] == []

    config: dict[str, Json] = {**CONFIG, "algorithm": {**CONFIG["algorithm"], "truncated_completions": "mask"}}
    traced = trace("a", "b", ratio=[1.0, 1.0])
    pulled = columns(view_of(traced, completion(finish_reason="length"), config))["pull"]
    assert numbers(pulled).tolist() == [0, 0]
    assert "left" in pulled["about"] or "leaves" in pulled["about"]
    assert numbers(columns(view_of(traced, completion(), config))["pull"]).tolist() == [0.5, 0.5]


def test_the_view_opens_on_the_first_value_that_is_not_the_same_for_every_token() -> None:
    on_policy = {"ratio": [1.0, 1.0], "kl": [0.1, 0.2], "entropy": [0.3, 0.4]}
    assert view_of(trace("a", "b", **on_policy), completion(), CONFIG)["opens_on"] == "kl"
    assert view_of(trace("a", "b", **on_policy), completion(advantage=0.0), CONFIG)["opens_on"] == "kl"
    assert view_of(trace("a", "b", **(on_policy | {"kl": [None, None]})), completion(), CONFIG)["opens_on"] == "entropy"
    assert view_of(trace("a", "b", **(on_policy | {"ratio": [1.0, 0.9]})), completion(), CONFIG)["opens_on"] == "pull"
    assert view_of(trace("a", ratio=[1.0], kl=[0.1]), completion(), CONFIG)["opens_on"] == "pull"
    assert view_of(trace("a"), completion(), CONFIG)["opens_on"] == ""


def test_a_critics_advantage_is_the_tokens_own_and_the_change_is_from_before_the_update_to_after_it() -> None:
    traced = trace("a", "b", advantage=[0.1, -0.2], value=[0.5, 0.25], returns=[0.6, 0.05], ratio=[1.0, 1.0])
    found = columns(view_of(traced, completion(advantage=-0.05), CONFIG))
    assert numbers(found["pull"]) == pytest.approx([0.1, -0.2], rel=1e-6)
    assert found["advantage"]["offered"]
    assert {"value", "returns"} <= set(found)

    traced = trace("a", "b", old_logprob=[-1.0, -2.0], logprob=[-0.9, -2.1], logprob_after=[-0.5, -2.5])
    found = columns(view_of(traced, completion(), CONFIG))
    assert numbers(found["change"]).tolist() == [0.5, -0.5]
    assert "change" not in columns(view_of(trace("a", "b", old_logprob=[-1.0, -2.0]), completion(), CONFIG))


def test_colours_have_two_sides_only_where_values_have_two_signs_and_an_outlier_moves_them_little() -> None:
    traced = trace("a", "b", kl=[0.1, 0.2], logprob=[-0.1, -3.0], ratio=[0.9, 1.3])
    found = columns(view_of(traced, completion(), CONFIG))
    assert not found["kl"]["signed"]
    assert not found["logprob"]["signed"]
    assert found["logprob"]["reach"] == -3
    assert found["ratio"]["signed"]
    assert (found["ratio"]["middle"], found["ratio"]["reach"]) == (1, pytest.approx(0.3))
    assert columns(view_of(trace("a", "b", kl=[-0.1, 0.2]), completion(), CONFIG))["kl"]["signed"]

    entropy = [place / 1000 for place in range(999)] + [50.0]
    found = columns(view_of(trace(*"a" * 1000, entropy=entropy), completion(), CONFIG))
    assert 0.9 < found["entropy"]["reach"] <= 1.0


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


def recording(**telemetry: Json) -> dict[str, Json]:
    return CONFIG | {"telemetry": {**CONFIG["telemetry"], **telemetry}}


def group(step: int = 13, traced: tuple[int, ...] = (), state: GroupState = "live") -> Group:
    records = [completion().model_copy(update={"index": index, "has_trace": index in traced}) for index in range(4)]
    of: dict[str, object] = {
        "id": 1,
        "run_id": 1,
        "attempt": 1,
        "step": step,
        "index": 0,
        "prompt_id": "a",
        "scored": 4,
    }
    return Group.model_validate(of | {"prompt_text": "a", "state": state, "completions": records})


def test_where_a_completion_has_no_token_values_the_view_says_why_and_what_to_change() -> None:
    assert "set Token traces (under Records) to all" in why_absent(recording(token_traces="none"), group())
    assert "here 1 and 4." in why_absent(CONFIG, group(traced=(0, 3)))
    told = why_absent(recording(token_traces="periodic", trace_every=10), group(step=13))
    assert "every 10th step, and this is step 13: see step 10 or 20" in told
    for kept, step in (("all", 13), ("periodic", 20), ("extremes", 13)):
        assert "larger than a report can carry" in why_absent(recording(token_traces=kept), group(step))
    assert "replaced before the update" in why_absent(CONFIG, group(state="filtered"))
    assert "probe prompt" in why_absent(CONFIG, group(state="probe"))
    assert "keeps no token values: nothing is trained" in why_absent({"kind": "sample"}, group())
