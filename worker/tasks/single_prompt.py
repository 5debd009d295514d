"""One prompt, again and again; and the prompts that a person types to try a model."""

from backend.contract.task import SinglePrompt
from worker.tasks.items import Item, Items, Prompted, chat, item_id


def load(task: SinglePrompt) -> Items:
    """The one item, to train on and to evaluate."""
    item = prompt_item(task, task.prompt, task.answer)
    return Items(train=[item], held_out=[item])


def prompt_item(prompted: Prompted, prompt: str, answer: str | None) -> Item:
    """A prompt that somebody wrote, with the answer that they expect, if any."""
    return Item(
        id=item_id("prompt", prompt),
        question=prompt,
        messages=chat(prompted, prompt),
        answer=answer,
        verifier={"kind": "exact"},
    )
