"""Items, their ids, and the order in which they are drawn."""

import subprocess
import sys

import pytest

from backend.contract.task import Arithmetic, Countdown, SinglePrompt, Task
from worker.rewards.answers import reaches
from worker.tasks.countdown import problems
from worker.tasks.items import Item, Items, TaskError, draw, item_id
from worker.tasks.loading import load_items


def load(task: Task) -> Items:
    return load_items(task, fetch_upload=lambda _: pytest.fail("it needs no upload"))


def all_of(task: Task) -> list[Item]:
    items = load(task)
    return [*items.train, *items.held_out]


def numbered(count: int) -> list[Item]:
    return [Item(f"item:{number}", "q", None, None, {"kind": "exact"}) for number in range(count)]


# ---- draw


def test_every_epoch_draws_every_item_once_in_an_order_of_its_own() -> None:
    items = numbered(50)
    epochs = [draw(items, cursor=50 * epoch, count=50, seed=3) for epoch in range(3)]
    assert all(sorted(item.id for item in epoch) == sorted(item.id for item in items) for epoch in epochs)
    assert len({tuple(item.id for item in epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("count", [1, 7])
def test_what_is_drawn_depends_on_the_place_and_the_seed_alone(count: int) -> None:
    items = numbered(count)
    at_once = draw(items, cursor=0, count=40, seed=1)
    assert [item for step in range(10) for item in draw(items, cursor=4 * step, count=4, seed=1)] == at_once
    assert draw(items, cursor=29, count=11, seed=1) == at_once[29:], "a resumed run draws what it would have drawn"
    assert (draw(items, cursor=0, count=40, seed=2) == at_once) is (count == 1)


def test_the_same_held_out_items_are_evaluated_every_time() -> None:
    first, again = (load(Arithmetic()).held_out[:500] for _ in range(2))
    assert first == again
    assert len({item.id for item in first}) == 500


# ---- ids


def test_an_id_holds_its_text_or_where_that_is_long_its_hash() -> None:
    assert item_id("prompt", "2 + 2") == "prompt:2 + 2"
    assert len(item_id("prompt", "x" * 1000)) <= 200
    assert item_id("prompt", "x" * 1000) != item_id("prompt", "x" * 1001)


@pytest.mark.parametrize("task", [Arithmetic(), Countdown()])
def test_ids_name_one_item_each_and_do_not_depend_on_the_wording(task: Task) -> None:
    ids = [item.id for item in all_of(task)]
    assert len(set(ids)) == len(ids)
    assert all(len(one) <= 200 for one in ids)
    reworded = task.model_copy(update={"template": "{expression}{numbers}{target}", "prompt_format": "raw"})
    assert [item.id for item in all_of(reworded)] == ids


# ---- the tasks


@pytest.mark.parametrize(
    "task", [Arithmetic(), Countdown(), Countdown(numbers=2, high=5), Countdown(numbers=6, high=100)]
)
def test_no_held_out_item_is_ever_trained_on(task: Task) -> None:
    items = load(task)
    assert items.train
    assert items.held_out
    assert {item.question for item in items.train}.isdisjoint(item.question for item in items.held_out)


def test_an_arithmetic_item_is_the_documents_example() -> None:
    (item,) = [item for item in all_of(Arithmetic()) if item.id == "arithmetic:2 + 2 x 6"]
    assert item.question == "Calculate 2 + 2 x 6"
    assert item.messages == ({"role": "user", "content": "Calculate 2 + 2 x 6"},)
    assert (item.answer, item.verifier) == ("14", {"kind": "numeric"})


def test_the_single_prompt_is_trained_on_and_evaluated_as_a_chat_with_its_system_prompt_or_raw() -> None:
    items = load(SinglePrompt())
    assert items.train == items.held_out
    assert [(item.question, item.answer) for item in items.train] == [("Solve y = 2x + 1 for x = 2, y = ", "5")]
    chat = load(SinglePrompt(prompt="Hi", system_prompt="Be brief.")).train[0]
    assert chat.messages == ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"})
    assert load(SinglePrompt(prompt="Hi", prompt_format="raw")).train[0].messages is None


def test_countdown_problems_have_room_for_500_evaluated_items() -> None:
    items = load(Countdown())
    assert len(items.train) > 3000
    assert len(items.held_out) > 500


@pytest.mark.slow
@pytest.mark.parametrize(("count", "high"), [(2, 5), (4, 20), (6, 100)])
def test_every_countdown_problem_is_solved_by_its_reference_and_never_by_a_given_number(count: int, high: int) -> None:
    for problem in problems(count=count, high=high):
        assert reaches(problem.solution, problem.numbers, problem.target), problem
        assert problem.target not in problem.numbers
        assert len(problem.numbers) == count
        assert all(1 <= number <= high for number in problem.numbers)


@pytest.mark.slow
def test_the_countdown_problems_are_the_same_in_every_process() -> None:
    program = "from worker.tasks.countdown import problems; print(problems(count=4, high=20)[-1])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(problems(count=4, high=20)[-1])


def test_a_task_that_gives_too_few_items_says_so() -> None:
    with pytest.raises(TaskError, match=r"gives [01] items to train on and [01] for evaluation") as caught:
        load(Arithmetic(operands=2, low=1, high=1, operators=["+"], precedence=False))
    assert caught.value.code == "too_few_items"
