"""The page and the row of a run on preference pairs, against a real backend."""

from collections.abc import Callable
from functools import cache

import pytest
import recorded
from on_screen import Open, figures, press, shown, start_disabled
from serving import Backend, one_for_all
from streamlit.testing.v1 import AppTest

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.pairs import PairReport
from backend.contract.preference import DpoConfig, RewardModelConfig

backend = pytest.fixture(one_for_all)  # no test changes what another reads

PAIR = PairReport(
    index=0, prompt_id="p1", prompt="Calculate 1 + 1", chosen="*two*", rejected="<b>three</b>", margin=-0.25
)
LOGGED = {
    "reward_model": {"loss": 0.5, "accuracy": 0.9, "margin": 1.25, "mean_reward": 0.1, "grad_norm": 1.0},
    "dpo": {
        "loss": 0.5,
        "rewards/margins": 0.4,
        "rewards/accuracies": 0.9,
        "logps/chosen": -3.0,
        "logps/rejected": -4.0,
    },
}


def of_two_steps(backend: Backend, kind: str) -> int:
    """A finished run of two steps with a checkpoint."""
    models: dict[str, type[RewardModelConfig] | type[DpoConfig]] = {"reward_model": RewardModelConfig, "dpo": DpoConfig}
    config: dict[str, Json] = models[kind].model_validate({"budget": {"steps": 2}}).model_dump(mode="json")
    run_id = backend.client.create_run(config, name="on pairs").id
    claim = recorded.claim(backend.client, run_id)
    judged = [{"eval/accuracy": 0.5, "eval/margin": 0.0}, {"eval/accuracy": 0.96, "eval/margin": 2.0}]
    if kind == "dpo":
        judged = [one | {"eval/pass@1": rate} for one, rate in zip(judged, (0.5, 0.75), strict=True)]
    reports = [(0, judged[0]), (0, LOGGED[kind]), (1, LOGGED[kind]), (2, judged[1])]
    for seq, (step, metrics) in enumerate(reports):
        pairs = [PAIR] if "loss" in metrics else []
        sent = p.Report(attempt=claim.attempt, seq=seq, step=step, metrics=metrics, pairs=pairs)
        backend.client.report(run_id, sent)
    backend.client.checkpoint(run_id, recorded.checkpoint_of(claim.attempt, 2, run_id))
    recorded.finish(backend.client, run_id, claim)
    return run_id


@pytest.fixture(scope="module")
def of_kind(shared_backend: Backend) -> Callable[[str], int]:
    """The run of that kind, which tests only read."""
    return cache(lambda kind: of_two_steps(shared_backend, kind))


def links(at: AppTest) -> list[str]:
    return [link.proto.label for link in at.get("page_link")]


def test_a_reward_model_is_judged_by_held_out_pairs_and_leads_to_a_run_that_it_rewards(
    open_page: Open, backend: Backend, of_kind: Callable[[str], int]
) -> None:
    run_id = of_kind("reward_model")
    at = open_page("run", id=run_id)
    assert [tab.label for tab in at.tabs] == ["Overview", "Pairs", "Health", "Configuration", "Log", "Checkpoints"]
    assert figures(at) | {"Steps done": "2 of 2", "Margin": "1.25", "Held-out pairs": "50 % → 96 %"} == figures(at)
    assert "Use it as a reward" in links(at)
    saved = open_page("run", id=run_id, tab="checkpoints")
    assert "Start a run from it" not in links(saved)
    assert not saved.text_area
    form = open_page("new-run", reward=f"{run_id}@2")
    config = form.session_state["draft"].config
    assert config["kind"] == "grpo"
    assert [(one["name"], one["weight"]) for one in config["rewards"]["functions"]] == [
        ("reward-model", 1.0),
        ("correctness", 0.0),
    ]
    assert config["rewards"]["functions"][0]["source"] == f"run:{run_id}@2"
    assert not start_disabled(form)


def test_the_pairs_of_a_run_are_listed_with_their_margins_and_where_they_come_from_also_before_there_are_any(
    open_page: Open, backend: Backend, of_kind: Callable[[str], int]
) -> None:
    for kind in LOGGED:
        at = open_page("run", id=of_kind(kind), tab="pairs")
        said = shown(at).replace("\\", "")
        assert "of each group of 8 completions the best against the worst, by correctness, format" in said
        table = at.dataframe[0].value
        assert table["step"].tolist() == [1, 0]
        assert set(table["margin"]) == {"−0.250"}
        assert (table["chosen"][0], table["rejected"][0]) == ("*two*", "<b>three</b>")

    source: Json = {"kind": "dataset", "source": "hub:someone/pairs", "rejected_column": "worse"}
    config = DpoConfig.model_validate({"pairs": source}).model_dump(mode="json")
    run = backend.client.create_run(config)
    at = open_page("run", id=run.id, tab="pairs")
    backend.client.command(run.id, "stop")  # nobody claims it for one of the others
    assert "**From hub:someone/pairs**: the columns prompt, chosen, worse." in shown(at).replace("\\", "")
    assert "No pairs yet. They appear after the first step." in shown(at)


def test_a_dpo_runs_checkpoint_can_be_tried_and_started_from(
    open_page: Open, backend: Backend, of_kind: Callable[[str], int]
) -> None:
    run_id = of_kind("dpo")
    at = open_page("run", id=run_id)
    assert figures(at) | {"Held-out pairs": "50 % → 96 %", "Held-out pass@1": "50 % → 75 %"} == figures(at)
    assert "Use it as a reward" not in links(at)
    saved = open_page("run", id=run_id, tab="checkpoints")
    assert "Start a run from it" in links(saved)
    saved.text_area(key="try-prompt").set_value("Calculate 2 + 2 x 6")
    next(field for field in saved.text_input if field.label == "Reference answer").set_value("14")
    press(saved, "Sample")
    [sample] = backend.client.runs(kind="sample").items
    functions = sample.config["rewards"]["functions"]  # type: ignore[index,call-overload]
    assert [one["name"] for one in functions] == ["correctness", "format"]  # type: ignore[union-attr,index,call-overload]


def test_rows_tell_what_was_learned_and_runs_of_several_kinds_are_compared(
    open_page: Open, of_kind: Callable[[str], int]
) -> None:
    ids = [of_kind(kind) for kind in LOGGED]
    at = open_page("compare", runs=",".join(map(str, ids)))
    assert at.multiselect(key="metrics").value == ["eval/accuracy", "eval/margin", "loss", "eval/loss"]
    assert "Held-out pairs in the right order" in "".join(element.value for element in at.markdown)
    rows = "".join(element.value for element in open_page("runs").markdown)
    for result in ("held-out pairs] 50 % → **96 %**", "pass@1] 50 % → **75 %**"):
        assert result in rows
