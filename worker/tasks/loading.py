"""From a task's configuration to its items."""

from collections.abc import Callable

from backend.contract.task import Arithmetic, Countdown, Dataset, ReasoningGym, SinglePrompt, Task
from worker.tasks import arithmetic, countdown, reasoning_gym
from worker.tasks.items import Items, TaskError, prompt_item
from worker.tasks.rows import load_dataset


def load_items(task: Task, *, fetch_upload: Callable[[int], bytes]) -> Items:
    """The task's items, the same on every machine; `fetch_upload` gets an uploaded file's bytes by its id.

    Raises TaskError where there is nothing to train on, or nothing to evaluate although the task holds items out.
    """
    match task:
        case Arithmetic():
            items = arithmetic.load(task)
        case Countdown():
            items = countdown.load(task)
        case SinglePrompt():
            item = prompt_item(task, task.prompt, task.answer)
            items = Items(train=[item], held_out=[item])
        case Dataset():
            items = load_dataset(task, fetch_upload=fetch_upload)
        case ReasoningGym():
            items = reasoning_gym.load(task)
    holds_out = not (isinstance(task, Dataset) and task.held_out == 0)
    if not items.train or (holds_out and not items.held_out):
        raise TaskError(
            "too_few_items",
            f"the task {task.kind} gives {len(items.train)} items to train on and {len(items.held_out)} for evaluation, "
            "and needs both; widen its settings",
        )
    return items
