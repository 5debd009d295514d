"""Files that the writers of verifiers, prime-rl, ART, tinker-cookbook and OpenEnv made, and NeMo-RL's by the fields of its source
(scripts/foreign_files.py), are imported as what was given to them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from importing import FOREIGN, groups_of, imported, opened
from long_conversation import write_long_training
from serving import Backend

from backend.contract.conversation import stretches
from backend.contract.groups import CompletionRecord, Group
from groupscope.files.catalog import FORMATS
from groupscope.files.format import Run, Unreadable

RUNS = {
    "prime-rl": FOREIGN / "verifiers" / "prime-rl",
    "verifiers": FOREIGN / "verifiers" / "verifiers",
    "art": FOREIGN / "art",
    "tinker": FOREIGN / "tinker",
    "openenv": FOREIGN / "openenv",
    "nemo-rl": FOREIGN / "nemo-rl",
    "verl": FOREIGN / "verl" / "v1",
}
EPISODES = json.loads((FOREIGN / "verifiers" / "expected.json").read_text())
VALUES = {"sampling_logprob": "sampling", "logprob": "trainer", "reference_logprob": "reference", "entropy": "entropy"}
Written = Mapping[str, Any]


def written(name: str) -> Any:
    return json.loads((FOREIGN / name / "expected.json").read_text())


def split(groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
    """Those of the training, and those of an evaluation."""
    evaluated = [group for group in groups if group.state == "probe"]
    return [group for group in groups if group not in evaluated], evaluated


def asked(group: Written) -> str:
    return "\n".join(one["content"] for one in group["prompt"])


def paired(groups: Sequence[Group], expected: Sequence[Written]) -> Iterator[tuple[CompletionRecord, Written]]:
    """Each completion with the rollout that was written, by the prompts and within a group in its order."""
    by_prompt = {asked(group): group for group in expected}
    assert len(groups) == len(by_prompt) == len(expected)
    for group in groups:
        yield from zip(group.completions, by_prompt[group.prompt]["rollouts"], strict=True)


def completions_of(run: Run, start: int = 0, *, final: bool) -> tuple[int, list[str]]:
    """How many completions are read, and what could not be."""
    steps = list(run.steps(start, final=final))
    groups = [group for step in steps for group in step.groups]
    return sum(len(group.completions) for group in groups), [one for step in steps for one in step.unreadable]


def spoken(one: CompletionRecord) -> list[tuple[Any, ...]]:
    return [(turn.role, turn.tool, text, turn.trained) for turn, text in stretches(one.text, one.turns)]


def as_turns(rollout: Written) -> list[tuple[Any, ...]]:
    return [
        (
            turn["role"],
            turn.get("tool"),
            f"{turn['tool']}({turn['text']})" if turn["role"] == "assistant" and "tool" in turn else turn["text"],
            turn["role"] == "assistant",
        )
        for turn in rollout["turns"]
    ]


def require_tokens(backend: Backend, one: CompletionRecord, rollout: Written, names: Mapping[str, str]) -> None:
    """All tokens from the first that the model wrote, and the values of those that it wrote."""
    trace = backend.client.tokens(one.id)
    turns = rollout["turns"]
    ids = [each for turn in turns for each in turn["ids"]]
    mask = [each for turn in turns for each in turn["mask"]]
    skip = len(ids) - len(trace.token_ids)
    assert (trace.token_ids, trace.trained or [True] * len(trace.token_ids)) == (ids[skip:], mask[skip:])
    assert not any(mask[:skip])
    for ours, theirs in names.items():
        found = getattr(trace, ours)
        assert found is not None, ours
        values = [value for value in found if value is not None]
        assert values == pytest.approx([value for turn in turns for value in turn[theirs]], abs=1e-6), ours


def test_each_format_recognises_its_own_files_and_no_others() -> None:
    for name, path in RUNS.items():
        assert [one.name for one in FORMATS if one.recognises(path)] == [name]
    for path in (FOREIGN, FOREIGN / "art" / "expected.json", FOREIGN / "nothing"):
        assert not [one.name for one in FORMATS if one.recognises(path)]


def test_a_training_of_prime_rl_has_its_groups_token_values_and_policies(backend: Backend) -> None:
    run, said = imported(backend, RUNS["prime-rl"])
    assert said[-1] == f"run {run.id}: 3 steps, 11 groups, 47 completions"
    assert (run.config["trainer"], run.config["theirs"]) == (
        {"name": "prime-rl", "version": ""},
        {"max_steps": 3, "orchestrator": {"batch_size": 12}},
    )
    for step in range(3):
        trained, evaluated = split(groups_of(backend, run.id, step))
        for of, kind in ((trained, "training"), (evaluated, "evaluation")):
            by_reward_order = EPISODES[kind].get(str(step + 1), [])
            require_episodes(backend, of, by_reward_order, scored=kind == "training", policy=["0", "1", "2 to 3"][step])
    series = backend.client.metrics(run.id).series
    assert series["reward/all/mean"].value == [0.25, 0.5, 0.75]
    assert (series["eval/sums/pass@1"].step, series["eval/sums/pass@1"].value) == ([1], [0.75])


def require_episodes(
    backend: Backend, groups: Sequence[Group], expected: Sequence[Written], *, scored: bool, policy: str
) -> None:
    by_prompt = {asked(group): group for group in expected}
    assert {group.prompt for group in groups} == set(by_prompt)
    for group in groups:
        assert group.answer == "4"
        rollouts = {json.dumps(as_turns(one)): one for one in by_prompt[group.prompt]["rollouts"]}
        batch, failed = group.completions[:4], group.completions[4:]
        assert [(spoken(one), one.turns[0].failed, one.reward, one.advantage) for one in failed] == [
            ([("error", None, "SandboxError: no <b>room</b>", False)], True, None, None)
        ] * (scored and group.prompt.split(":")[0].endswith(".0"))
        for one in batch:  # in another order than they were written above
            said = [turn for turn in spoken(one) if turn[0] != "history"]
            rollout = rollouts.pop(json.dumps(said))
            assert one.reward == rollout["reward"]
            assert one.advantage == pytest.approx(rollout["advantage"] if scored else None, abs=1e-6)
            assert {score.name: score.raw for score in one.rewards if score.name != "turns"} == rollout["rewards"]
            assert {score.name: score.weight for score in one.rewards} == {"right": 2.0, "format": 1.0, "turns": 0.0}
            assert one.finish_reason == ("length" if rollout["turns"][-1].get("cut") else "stop")
            assert {turn.policy_version for turn in one.turns if turn.role == "assistant"} == {policy}
            rewritten = [turn["role"] for turn in rollout["turns"] if turn.get("rewritten")]
            assert [turn[0] for turn in spoken(one) if turn[0] == "history"] == ["history"] * len(rewritten)
            require_tokens(backend, one, rollout, VALUES if scored else {"sampling_logprob": "sampling"})
            if scored:
                found = [value for value in backend.client.tokens(one.id).advantage or () if value is not None]
                assert found == pytest.approx([rollout["advantage"]] * len(found), abs=1e-6)


def test_an_evaluation_with_verifiers_has_what_broke_off_and_what_was_not_scored(backend: Backend) -> None:
    run, said = imported(backend, RUNS["verifiers"])
    assert said[-1] == f"run {run.id}: 0 steps, 3 groups, 13 completions"
    written_by = json.loads((RUNS["verifiers"] / "traces.jsonl").open().readline())["traces"][0]["verifiers"]["version"]
    assert run.config["trainer"] == {"name": "verifiers", "version": written_by}
    trained, evaluated = split(groups_of(backend, run.id, 0))
    assert not trained
    broken = evaluated[1].completions.pop()
    assert spoken(broken) == [("error", None, "SandboxError: no <b>room</b>", False)]
    assert (broken.turns[0].failed, broken.reward, broken.has_trace) == (True, None, False)
    for one, rollout in paired(evaluated, EPISODES["alone"]):
        assert spoken(one) == as_turns(rollout)
        assert one.reward == rollout["reward"]
        scores = {score.name: score.raw for score in one.rewards if score.raw is not None and score.name != "turns"}
        assert scores == {name: value for name, value in rollout["rewards"].items() if value is not None}
        require_tokens(backend, one, rollout, {"sampling_logprob": "sampling"})


def test_arts_trajectories_are_those_of_the_update_that_they_were_for(backend: Backend) -> None:
    run, said = imported(backend, RUNS["art"])
    expected = written("art")
    assert said[-1] == f"run {run.id}: 3 steps, 13 groups, 52 completions"
    for step in range(3):
        trained, evaluated = split(groups_of(backend, run.id, step))
        of_step = [*paired(trained, expected["train"][str(step + 1)])]
        of_step += paired(evaluated, expected["val"].get(str(step), []))
        for one, rollout in of_step:
            assert spoken(one) == as_turns(rollout)
            assert (one.reward, one.advantage, one.has_trace) == (rollout["reward"], None, False)
            scores = {score.name: (score.raw, score.weight) for score in one.rewards}
            measured = {name: (value, 0.0) for name, value in rollout["rewards"].items()}
            assert scores == {"reward": (rollout["reward"], 1.0), **measured}
        assert {group.answer for group in trained} == {"4"}
    series = backend.client.metrics(run.id).series
    assert series["loss/policy"].value == [-0.25, -0.5, -0.75]
    assert (series["eval/val/reward"].step, series["eval/val/reward"].value) == ([0, 2], [0.0, 0.25])


def test_tinkers_summaries_have_rewards_and_lengths_and_say_that_there_is_no_text(backend: Backend) -> None:
    run, said = imported(backend, RUNS["tinker"])
    expected = written("tinker")
    assert said[-1] == f"run {run.id}: 3 steps, 11 groups, 44 completions"
    assert run.config["model"] == {"source": "some/model"}
    for step in range(3):
        trained, evaluated = split(groups_of(backend, run.id, step))
        for groups, base in ((trained, "train"), (evaluated, "eval_sums")):
            of_step = expected[base].get(str(step), [])
            assert len(groups) == len(of_step)
            for group, of_group in zip(groups, of_step, strict=True):
                assert "its prompt is not in the file" in group.prompt
                for one, rollout in zip(group.completions, of_group["rollouts"], strict=True):
                    require_summary(one, rollout, step)
    series = backend.client.metrics(run.id).series
    assert series["env/all/reward/total"].value == [0.0, 0.25, 0.5]
    assert series["eval/test/env/all/reward/total"].step == [1]


def require_summary(one: CompletionRecord, rollout: Written, step: int) -> None:
    said = [turn for turn in rollout["turns"] if turn["role"] == "assistant"]
    assert [turn.reward for turn in one.turns] == [turn["reward"] for turn in said]
    assert {turn.policy_version for turn in one.turns} == {str(step)}
    assert [text for _, text in stretches(one.text, one.turns)] == [
        json.dumps({"said": turn["text"]}, ensure_ascii=False) if at == 0 else f"[{len(turn['ids'])} tokens]"
        for at, turn in enumerate(said)
    ]
    assert one.token_count == sum(len(turn["ids"]) for turn in said)
    steps, final = sum(turn["reward"] for turn in said), rollout["reward"]
    assert {score.name: score.raw for score in one.rewards} == {"steps": steps, "final": final}
    assert one.reward == (None if final is None else pytest.approx(steps + final))


def test_openenvs_episodes_have_the_errors_of_their_tools_and_the_tokens_of_a_trace(backend: Backend) -> None:
    run, said = imported(backend, RUNS["openenv"])
    assert said[-1] == f"run {run.id}: 0 steps, 3 groups, 12 completions"
    assert run.config["theirs"] == {"model": "some/model", "env": "sums"}
    _, groups = split(groups_of(backend, run.id, 0))
    traced = 0
    for one, rollout in paired(groups, written("openenv")["groups"]):
        assert spoken(one) == as_turns(rollout)
        assert [turn.failed for turn in one.turns] == [turn.get("failed", False) for turn in rollout["turns"]]
        assert {score.name: score.raw for score in one.rewards} == {"reward": rollout["reward"], **rollout["rewards"]}
        assert one.has_trace == any("captured" in turn for turn in rollout["turns"])
        if one.has_trace:
            traced += 1
            trace = backend.client.tokens(one.id)
            assert trace.token_ids == [each for turn in rollout["turns"] for each in turn["ids"]]
            values = [value for value in trace.sampling_logprob or () if value is not None]
            assert values == [value for turn in rollout["turns"] for value in turn.get("captured", [])]
    assert traced == 2


def test_nemo_rls_samples_are_grouped_by_their_prompts_tokens(backend: Backend) -> None:
    run, said = imported(backend, RUNS["nemo-rl"])
    expected = written("nemo-rl")
    assert said[-1] == f"run {run.id}: 2 steps, 9 groups, 36 completions"
    for step in range(2):
        trained, evaluated = split(groups_of(backend, run.id, step))
        for one, rollout in paired(trained, expected["train"][str(step + 1)]):
            counts = any(any(turn["mask"]) for turn in rollout["turns"])
            between = [turn["text"] for turn in rollout["turns"] if turn["role"] != "assistant"]
            assert [text for _, _, text, _ in spoken(one)] == [turn["text"] for turn in rollout["turns"]]
            assert [text for role, _, text, _ in spoken(one) if role == "environment"] == between
            assert any(turn.trained for turn in one.turns) == counts
            assert (one.reward, one.advantage) == (rollout["reward"], pytest.approx(rollout["advantage"]))
            require_tokens(backend, one, rollout, {"sampling_logprob": "sampling", "old_logprob": "trainer"})
        for one, rollout in paired(evaluated, expected["val"].get(str(step), [])):
            assert spoken(one) == as_turns(rollout)
            assert one.reward == rollout["reward"]


LINES = {
    "prime-rl": "rollouts/step_3/train/effective/traces.jsonl",
    "verifiers": "traces.jsonl",
    "tinker": "iteration_000002/train_rollout_summaries.jsonl",
    "openenv": "results.jsonl",
    "nemo-rl": "train_data_step2.jsonl",
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_cannot_be_read_is_counted_and_a_torn_one_waited_for(name: str, tmp_path: Path) -> None:
    path = copytree(RUNS[name], tmp_path / "run")
    file = path / LINES[name]
    whole = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*whole[:3], '["something else"]\n', "\x00\n", *whole[3:-1], whole[-1][:40]]))

    written_there, _ = completions_of(opened(name, RUNS[name]), final=True)
    count, wrong = completions_of(opened(name, path), final=False)
    assert count == written_there - 1
    named = rf"{re.escape(file.name)}, line (\d+)"
    assert [re.findall(named, one) for one in sorted(wrong)] == [["4"], ["5"]]
    count, wrong = completions_of(opened(name, path), final=True)
    assert (count, len(wrong)) == (written_there - 1, 3)
    with file.open("a") as more:
        more.write(whole[-1][40:])
    assert completions_of(opened(name, path), final=False)[0] == written_there


def test_files_of_another_version_are_refused_with_what_to_do(tmp_path: Path) -> None:
    for name, of in (("verifiers", '"version":1'), ("tinker", '"schema_version": 1')):
        path = copytree(RUNS[name], tmp_path / name)
        for file in path.rglob("*.jsonl"):
            file.write_text(file.read_text().replace(of, of.replace("1", "7")))
        with pytest.raises(
            Unreadable, match=r"of version 7, and this program reads version 1, .*: install a later release$"
        ):
            opened(name, path)


def test_a_parquet_file_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    path = copytree(RUNS["art"], tmp_path / "model")
    file = path / "trajectories" / "train" / "0003.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    last = [step for step in opened("art", path).steps(2, final=False) if not step.metrics]
    assert (any(step.open for step in last), [one for step in last for one in step.unreadable]) == (True, [])
    [wrong] = [one for step in opened("art", path).steps(2, final=True) for one in step.unreadable]
    assert wrong.startswith("train/0003.parquet cannot be read: ")
    file.write_bytes(whole)
    assert sum(len(step.groups) for step in opened("art", path).steps(2, final=False)) == 5


def test_episodes_that_prime_rl_has_not_trained_on_yet_are_waited_for(tmp_path: Path) -> None:
    path = copytree(RUNS["prime-rl"], tmp_path / "run")
    (path / "rollouts" / "step_3" / "train" / "effective" / "traces.jsonl").unlink()
    newest = list(opened("prime-rl", path).steps(2, final=False))
    assert (any(step.open for step in newest), any(step.groups for step in newest)) == (True, False)
    assert completions_of(opened("prime-rl", path), 2, final=True)[0] == 13  # and the one that broke off


@pytest.mark.thorough
def test_a_conversation_of_fifty_turns_and_twenty_thousand_tokens_is_read_whole(
    backend: Backend, tmp_path: Path
) -> None:
    first = write_long_training(tmp_path / "run", turns=50, tokens=20_000)
    run, said = imported(backend, tmp_path / "run")
    assert said[-1] == f"run {run.id}: 1 step, 1 group, 4 completions"
    [group] = groups_of(backend, run.id, 0)
    one = group.completions[0]
    assert [text for _, text in stretches(one.text, one.turns)] == first["texts"]
    assert [turn.trained for turn in one.turns] == [turn.role == "assistant" for turn in one.turns]
    trace = backend.client.tokens(one.id)
    assert (len(trace.token_ids), trace.token_ids, trace.trained) == (20_000, first["ids"], first["mask"])
