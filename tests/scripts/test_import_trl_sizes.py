"""Which rows of TRL's files make a group, by their prompts and by what the person said."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupscope.files.format import Options, Unreadable
from groupscope.files.trl import TrlFormat


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
    steps = TrlFormat().open(folder, Options(said)).steps(0, final=True)
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
    [step] = TrlFormat().open(tmp_path, Options()).steps(0, final=False)
    assert (step.groups, step.open, len(step.unreadable)) == ([], False, 2)
    why = "completions_00001.parquet: 2 rows that make no group of TRL's"
    assert all(one.startswith(why) for one in step.unreadable)


def test_totals_of_a_followed_training_are_known_once_its_log_tells_the_weights(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, "ab", right=1.0, short=0.5)
    run = TrlFormat().open(tmp_path, Options())

    def totals() -> list[float | None]:
        groups = [group for step in run.steps(0, final=False) for group in step.groups]
        return [one.reward for group in groups for one in group.completions]

    assert totals() == [None] * 4
    log(tmp_path, {"step": 1, "reward": 1.5, "rewards/right/mean": 1.0, "rewards/short/mean": 0.5})
    assert totals() == [1.5] * 4
