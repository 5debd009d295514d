"""TRL's completions/*.parquet, written by a real GRPOTrainer with an evaluation in between, are imported as what TRL had."""

import json
import math
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from importing import groups_of, imported
from serving import Backend
from test_watch_trl import PROMPTS, SIZE, trainer

from backend.contract.groups import Group
from groupscope.files.format import Options, Unreadable
from groupscope.files.trl import FORMAT

pytestmark = pytest.mark.slow

STEPS, EVALUATED = 6, (4, 6)  # after 4 updates, and at the end


class Generation(NamedTuple):
    """What TRL had right after it made a batch."""

    done: int  # updates
    training: bool
    texts: list[str]
    rewards: dict[str, list[float]]
    advantages: list[float]


class Trained(NamedTuple):
    folder: Path
    history: list[dict[str, float]]
    made: list[Generation]


def train(folder: Path, **settings: Any) -> Trained:
    """A training that is evaluated twice, with as many rows as a step has."""
    of = trainer(folder, log_completions=True, save_strategy="steps", save_steps=2, max_steps=STEPS, **settings)
    of.args.eval_strategy, of.args.eval_steps = "steps", EVALUATED[0]
    of.eval_dataset = of.train_dataset.select(range(PROMPTS))
    made, generate = [], of._generate_and_score_completions

    def generating(inputs: Any) -> Any:
        output = generate(inputs)
        count, logs = len(output["completion_ids"]), of._logs
        made.append(
            Generation(
                of.state.global_step,
                of.model.training,
                list(logs["completion"])[-count:],
                {name: list(values)[-count:] for name, values in logs["rewards"].items()},
                list(logs["advantages"])[-count:],
            )
        )
        return output

    of._generate_and_score_completions = generating
    of.train()
    return Trained(folder, of.state.log_history, made)


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(tmp_path_factory.mktemp("weighted") / "out")


def require_same(groups: list[Group], made: Generation) -> None:
    rows = [one for group in groups for one in group.completions]
    assert [len(group.completions) for group in groups] == [SIZE] * PROMPTS
    assert [one.text for one in rows] == made.texts
    assert [one.advantage for one in rows] == pytest.approx(made.advantages, abs=1e-6)
    for name, values in made.rewards.items():
        raw = [score.raw for one in rows for score in one.rewards if score.name == name]
        assert raw == pytest.approx([None if math.isnan(value) else value for value in values], abs=1e-6)


def test_each_step_is_as_trl_had_it_an_evaluation_is_not_taken_for_training_and_weights_are_not_guessed(
    backend: Backend, weighted: Trained
) -> None:
    run, said = imported(backend, weighted.folder)
    assert (run.name, run.status, run.progress.step) == ("TRL, out", "finished", STEPS)
    config: Any = run.config
    assert config["sampling"]["group_size"] == SIZE
    trained = [one for one in weighted.made if one.training]
    evaluated = {one.done: one for one in weighted.made if not one.training}
    assert tuple(evaluated) == EVALUATED
    for step in range(STEPS + 1):
        groups = list(groups_of(backend, run.id, step))
        probes = [group for group in groups if group.state == "probe"]
        others = [group for group in groups if group.state != "probe"]
        if step in evaluated:
            require_same(probes, evaluated[step])
        assert bool(probes) == (step in evaluated)
        if step < STEPS and step + 1 not in evaluated:  # else the file was written again after the evaluation
            require_same(others, trained[step])
        assert bool(others) == (step < STEPS and step + 1 not in evaluated)
    logged = [line for line in weighted.history if "reward" in line]
    series = backend.client.metrics(run.id).series
    for name in ("reward", "kl", "loss", "rewards/right/mean"):
        assert (series[name].step, series[name].value) == (list(range(STEPS)), [line[name] for line in logged])
    assert series["eval/reward"].step == list(EVALUATED)
    assert not any("could not be read" in line for line in said)
    unweighed = [{"kind": "recorded", "name": name, "weight": None} for name in ("right", "short")]
    assert config["rewards"]["functions"] == unweighed
    for group in groups_of(backend, run.id, 0):  # none of them is called unscored
        advantages = [one.advantage or 0.0 for one in group.completions]
        assert group.state == ("live" if any(abs(one) > 1e-2 for one in advantages) else "zero_variance")
        assert (group.reward_mean, {one.reward for one in group.completions}, group.scored) == (None, {None}, SIZE)


@pytest.mark.thorough
def test_rewards_that_add_up_in_the_log_are_known_to_weigh_one(backend: Backend, tmp_path: Path) -> None:
    plain = train(tmp_path / "out", reward_weights=[1.0, 1.0])
    run, _ = imported(backend, plain.folder)
    [first, *_] = groups_of(backend, run.id, 0)
    for one in first.completions:
        assert one.reward == pytest.approx(math.fsum(score.raw for score in one.rewards if score.raw is not None))


def copied(weighted: Trained, folder: Path) -> Path:
    """Its files of completions, without what lies beside them."""
    return copytree(weighted.folder / "completions", folder / "completions")


def test_the_size_of_a_group_can_be_said_where_prompts_do_not_tell_it(
    backend: Backend, weighted: Trained, tmp_path: Path
) -> None:
    folder = copied(weighted, tmp_path)
    for file in folder.iterdir():
        table = pq.read_table(file)
        prompts = pa.array([f"{place}" for place in range(table.num_rows)])
        pq.write_table(table.set_column(table.schema.get_field_index("prompt"), "prompt", prompts), file)
    with pytest.raises(Unreadable, match="say how many do with --group-size"):
        FORMAT.open(folder, Options())
    run, _ = imported(backend, folder, group_size=SIZE)
    assert [len(group.completions) for group in groups_of(backend, run.id, 0)] == [SIZE] * PROMPTS


def test_without_the_trainers_state_files_are_of_the_steps_in_their_names_and_one_that_is_not_whole_is_said(
    backend: Backend, weighted: Trained, tmp_path: Path
) -> None:
    folder = copied(weighted, tmp_path)
    torn = folder / "completions_00002.parquet"
    torn.write_bytes(torn.read_bytes()[:1000])
    run, said = imported(backend, folder)
    why = "completions_00002.parquet: not a whole Parquet file with TRL's columns"
    assert f"1 line could not be read:\n  {why}" in said[-1]
    assert [one.step for one in backend.client.steps(run.id)] == [0, 2, 3, 4, 5]
    require_same(list(groups_of(backend, run.id, 0)), next(one for one in weighted.made if one.training))
    assert not backend.client.metrics(run.id).series


def test_what_a_checkpoint_pickled_is_never_read(weighted: Trained, tmp_path: Path) -> None:
    folder = copytree(weighted.folder, tmp_path / "out")
    for file in folder.glob("checkpoint-*/*"):
        if file.name != "trainer_state.json":
            file.unlink() if file.is_file() else rmtree(file)
    run = FORMAT.open(folder, Options())
    assert sum(len(step.groups) for step in run.steps(0, final=True)) == STEPS * PROMPTS


def test_conversations_are_turns(backend: Backend, tmp_path: Path) -> None:
    """As pandas writes what TRL logs of conversations with tools."""
    import pandas as pd

    asked = [{"role": "user", "content": "Add 2 and 2."}]
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
    said = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "add", "content": "4"},
        {"role": "assistant", "content": "It is 4."},
    ]
    rows = [
        {"step": 1, "prompt": asked, "completion": said, "right": 1.0 * place, "advantage": place - 0.5}
        for place in (0, 1)
    ]
    (folder := tmp_path / "completions").mkdir()
    pd.DataFrame(rows).to_parquet(folder / "completions_00001.parquet")
    run, _ = imported(backend, tmp_path, group_size=2)
    [group] = groups_of(backend, run.id, 0)
    assert group.prompt == "Add 2 and 2."
    for one in group.completions:
        assert [(turn.role, turn.tool, turn.trained) for turn in one.turns] == [
            ("assistant", "add", True),
            ("tool", "add", False),
            ("assistant", None, True),
        ]
        assert one.text.endswith("It is 4.")
    assert [one.reward for one in group.completions] == [0.0, 1.0]


def test_metrics_of_a_later_checkpoint_find_their_steps(backend: Backend, weighted: Trained, tmp_path: Path) -> None:
    folder = copytree(weighted.folder, tmp_path / "out")
    later = [path.rename(tmp_path / path.name) for path in folder.glob("checkpoint-*") if path.name != "checkpoint-2"]
    run, _ = imported(backend, folder)
    assert backend.client.metrics(run.id).series["loss"].step == [0, 1]
    for path in later:
        path.rename(folder / path.name)
    for _ in range(2):
        run, _ = imported(backend, folder)
        logged = [line["loss"] for line in weighted.history if "reward" in line]
        series = backend.client.metrics(run.id).series
        assert (series["loss"].step, series["loss"].value) == (list(range(STEPS)), logged)
        assert series["eval/reward"].step == list(EVALUATED)
        assert (run.attempt, run.summary["loss"]) == (2, logged[-1])


# ---- which rows make a group, by their prompts and by what the person said


def write(folder: Path, done: int, size: int, prompts: Any, **rewards: float) -> None:
    """The file that TRL writes after `done` updates: `size` rows for each prompt."""
    (folder / "completions").mkdir(exist_ok=True)
    scores = rewards or {"right": 1.0}
    rows = [
        {"step": done, "prompt": prompt, "completion": str(at), **scores, "advantage": 0.0}
        for prompt in prompts
        for at in range(size)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "completions" / f"completions_{done:05d}.parquet")


def log(folder: Path, *lines: dict[str, float]) -> None:
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": lines, "max_steps": 10}))


def sizes(folder: Path, said: int | None = None) -> list[list[int]]:
    steps = FORMAT.open(folder, Options(said)).steps(0, final=True)
    return [[len(group.completions) for group in step.groups] for step in steps]


def test_an_evaluation_with_smaller_groups_leaves_those_of_the_training_whole(tmp_path: Path) -> None:
    for done, size in ((1, 8), (2, 4), (3, 8)):
        write(tmp_path, done, size, "ab")
    assert sizes(tmp_path) == [[8, 8], [4, 4], [8, 8]]
    log(tmp_path, {"step": 1, "reward": 1.0}, {"step": 2, "eval_reward": 1.0}, {"step": 3, "reward": 1.0})
    assert sizes(tmp_path) == [[8, 8], [8, 8, 4, 4]]


def test_different_prompts_are_never_one_group_and_one_that_comes_twice_in_a_row_is_two(tmp_path: Path) -> None:
    write(tmp_path, 0, 1, "abcdefgh")
    write(tmp_path, 1, 8, "ab")
    assert sizes(tmp_path, 8) == sizes(tmp_path) == [[8, 8] + [1] * 8]
    (later := tmp_path / "later").mkdir()
    for done, prompts in enumerate(("aab", "ccdd", "ef"), 1):
        write(later, done, 4, prompts)
    assert sizes(later) == [[4, 4, 4], [4, 4, 4, 4], [4, 4]]


def test_one_prompt_alone_tells_nothing_of_its_groups(tmp_path: Path) -> None:
    for done in (1, 2):
        write(tmp_path, done, 8, "aaaa")
    with pytest.raises(Unreadable, match=r"one prompt only.*--group-size"):
        sizes(tmp_path)
    assert sizes(tmp_path, 8) == [[8] * 4] * 2


def test_rows_that_are_none_of_trls_are_said_and_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, (5, 6))
    [step] = FORMAT.open(tmp_path, Options()).steps(0, final=False)
    assert (step.groups, step.open, len(step.unreadable)) == ([], False, 2)
    why = "completions_00001.parquet: 2 rows that make no group of TRL's"
    assert all(one.startswith(why) for one in step.unreadable)


def test_totals_of_a_followed_training_are_known_once_its_log_tells_the_weights(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, "ab", right=1.0, short=0.5)
    run = FORMAT.open(tmp_path, Options())

    def totals() -> list[float | None]:
        groups = [group for step in run.steps(0, final=False) for group in step.groups]
        return [one.reward for group in groups for one in group.completions]

    assert totals() == [None] * 4
    log(tmp_path, {"step": 1, "reward": 1.5, "rewards/right/mean": 1.0, "rewards/short/mean": 0.5})
    assert totals() == [1.5] * 4
