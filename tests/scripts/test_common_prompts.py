"""Prompts that several runs have drawn, each trainer under an id and in a template of its own."""

from pathlib import Path

import pytest
from serving import TOKEN, Backend

import groupscope
from groupscope import Completion, Group


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    return tmp_path / "scripts"


def record(backend: Backend, home: Path, name: str, steps: list[list[Group]]) -> int:
    with groupscope.start_run(name, backend=backend.url, home=home) as run:
        for step, groups in enumerate(steps):
            run.log_groups(groups, step)
    assert run.run_id is not None
    return run.run_id


def drawn(prompt: str, reward: float, **options: str) -> Group:
    return Group(prompt, [Completion("a", reward=reward), Completion("b", reward=reward)], **options)


def test_the_same_text_is_the_same_prompt_whatever_its_id_its_template_and_the_spaces_around_it(
    backend: Backend, home: Path
) -> None:
    first = [drawn("What is 2 + 2?", 0.0, prompt_id="task-7", prompt_text="<user>What is 2 + 2?</user>")]
    second = [drawn("What is 2 + 2?", 1.0, prompt_id="task-7"), drawn("Only here", 0.5)]
    ours = record(backend, home, "ours", [first, second])
    theirs = record(backend, home, "theirs", [[drawn("What is 2 + 2?\n", 0.25), drawn("Only there", 0.5)]])
    [found] = backend.client.common_prompts(runs=[ours, theirs]).items
    mine, other = found.draws[ours], found.draws[theirs]
    assert (mine.prompt_id, mine.draws, mine.reward_first, mine.reward_last) == ("task-7", 2, 0.0, 1.0)
    assert (other.draws, other.reward_first, other.prompt_id != "task-7") == (1, 0.25, True)
    assert backend.client.common_prompts(runs=[ours, theirs], search="2 + 2").items == [found]
    assert backend.client.common_prompts(runs=[ours, theirs], search="Only").items == []
    assert len(backend.client.common_prompts(runs=[ours]).items) == 2  # of one run all that it drew


def test_more_runs_share_a_prompt_further_up_and_of_two_ids_of_a_text_the_one_drawn_most_counts(
    backend: Backend, home: Path
) -> None:
    few = record(backend, home, "few", [[drawn("A", 1.0), drawn("B", 1.0)]])
    rows = [[drawn("A", 0.0, prompt_id="row 1")], [drawn("A", 0.5, prompt_id="row 2")] * 2]
    twice = record(backend, home, "twice", rows)
    third = record(backend, home, "third", [[drawn("A", 0.0), drawn("B", 0.0)]])
    first, second = backend.client.common_prompts(runs=[few, twice, third]).items
    assert (set(first.draws), set(second.draws)) == ({few, twice, third}, {few, third})
    assert (first.draws[twice].prompt_id, first.draws[twice].draws) == ("row 2", 2)


def test_of_a_prompt_in_messages_the_question_is_what_the_user_says() -> None:
    from groupscope.trl import question

    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 2?"}
    assert question([system, user]) == question([user]) == question("What is 2 + 2?") == "What is 2 + 2?"
    asked_again = [user, {"role": "assistant", "content": "5"}, user]
    assert question(asked_again) == "What is 2 + 2?\n5\nWhat is 2 + 2?"
