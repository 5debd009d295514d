"""Where a completion has no token values, the view says why, and what to change."""

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, Group, GroupState
from backend.contract.grpo import GrpoConfig
from dashboard.token_view.component import why_absent


def config(**telemetry: Json) -> dict[str, Json]:
    stored = GrpoConfig().model_dump(mode="json")
    return {**stored, "telemetry": {**stored["telemetry"], **telemetry}}


def group(step: int = 13, traced: tuple[int, ...] = (), state: GroupState = "live") -> Group:
    completions = [
        CompletionRecord(id=index, index=index, text="", token_count=1, finish_reason="stop", has_trace=index in traced)
        for index in range(4)
    ]
    return Group(
        id=1, run_id=1, attempt=1, step=step, index=0, prompt_id="a", prompt_text="a", state=state, scored=4,
        completions=completions,
    )  # fmt: skip


def test_a_run_that_keeps_no_traces_says_what_to_set() -> None:
    assert "set Token traces (under Records) to all" in why_absent(config(token_traces="none"), group())


def test_a_run_that_keeps_the_extremes_names_them() -> None:
    assert "here 1 and 4." in why_absent(config(), group(traced=(0, 3)))


def test_a_run_that_keeps_some_steps_names_the_nearest() -> None:
    told = why_absent(config(token_traces="periodic", trace_every=10), group(step=13))
    assert "every 10th step, and this is step 13: see step 10 or 20" in told


def test_a_trace_that_should_be_there_was_too_large() -> None:
    for kept, step in (("all", 13), ("periodic", 20), ("extremes", 13)):
        assert "larger than a report can carry" in why_absent(config(token_traces=kept), group(step))


def test_a_group_that_was_never_trained_on_says_so() -> None:
    assert "replaced before the update" in why_absent(config(), group(state="filtered"))
    assert "probe prompt" in why_absent(config(), group(state="probe"))
    assert "keeps no token values: nothing is trained" in why_absent({"kind": "sample"}, group())
