"""Rows in the layouts of public data sets train as they are: nothing in the form is changed but the file and the steps."""

import json
from pathlib import Path
from typing import Any

import pytest
from on_page import Open, Worker, drawn, fill, start
from playwright.sync_api import expect
from stack import Stack

from backend.contract.base import Json
from worker.tasks.arithmetic import problems

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

STEPS, CORRECT = 10, "rewards/correctness/mean"
SUMS = [(f"Calculate {one.expression}", one.answer) for one in problems(3, 1, 9, ("+", "-", "x"), True)[:200]]


def turns(
    *texts: str, role: str = "role", content: str = "content", names: tuple[str, str] = ("user", "assistant")
) -> Json:
    return [{role: names[place % 2], content: text} for place, text in enumerate(texts)]


def hh(asked: str, answer: str) -> str:
    return f"\n\nHuman: {asked}\n\nAssistant: Shall I be brief?\n\nHuman: Yes.\n\nAssistant: {answer}"


ROWS: dict[str, Any] = {
    "our own": lambda asked, value: {"prompt": asked, "answer": str(value)},
    "GSM8K's": lambda asked, value: {"question": asked, "answer": f"It is <<{asked[10:]}={value}>>{value}.\n#### {value}"},
    "MATH's": lambda asked, value: {"problem": asked, "level": "Level 1", "type": "Prealgebra", "solution": f"So it is $\\boxed{{{value}}}$."},
    "DAPO's": lambda asked, value: {
        "data_source": "math_dapo", "prompt": turns(asked), "ability": "MATH",
        "reward_model": {"ground_truth": str(value), "style": "rule-lighteval/MATH_v2"}, "extra_info": {"index": asked},
    },
    "ShareGPT's": lambda asked, value: {"id": asked[10:], "conversations": turns(asked, str(value), role="from", content="value", names=("human", "gpt"))},
    "OpenAI's": lambda asked, value: {"messages": turns(asked, str(value))},
}  # fmt: skip
PAIRS: dict[str, Any] = {
    "HH's": lambda asked, value: {"chosen": hh(asked, str(value)), "rejected": hh(asked, "No.")},
    "UltraFeedback's": lambda asked, value: {
        "prompt": asked, "prompt_id": str(hash(asked)), "messages": turns(asked, str(value)), "score_chosen": 8.0, "score_rejected": 2.0,
        "chosen": turns(asked, str(value)), "rejected": turns(asked, "No."),
    },
}  # fmt: skip


def queued(open_page: Open, folder: Path, name: str, rows: list[Any], recipe: str, what: str) -> int:
    """The number of a run of the form as it is, on a file with these rows."""
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = open_page(f"/new-run?recipe={recipe}")
    chooser = page.get_by_test_id("stSelectbox").filter(has=page.get_by_text(what, exact=True))
    chooser.get_by_role("combobox").click()
    page.get_by_role("option", name="dataset").click()
    drawn(page)
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_text("rows to train on")).to_be_visible()
    drawn(page)
    fill(page, "Steps", str(STEPS))
    page.screenshot(path=folder / f"{name}.png", full_page=True)
    return start(page)


def test_rows_of_public_layouts_train_as_they_are(
    open_page: Open, stack: Stack, worker: Worker, tmp_path: Path
) -> None:
    runs = {
        name: queued(open_page, tmp_path, name, [row(*one) for one in SUMS], "grpo", "Task")
        for name, row in ROWS.items()
    }
    nums = [{"target": one + two, "nums": [one, two, 7]} for one in range(3, 17) for two in range(2, 17)][:200]
    countdown = queued(open_page, tmp_path, "Countdown's", nums, "grpo", "Task")
    pairs = {
        name: queued(open_page, tmp_path, name, [row(*one) for one in SUMS], "dpo", "Pairs")
        for name, row in PAIRS.items()
    }
    worker()
    for name, run_id in runs.items():
        assert stack.site.wait_for_end(run_id).status == "finished", name
        values = stack.client.metrics(run_id, names=[CORRECT]).series[CORRECT].value
        assert max(value or 0.0 for value in values) > 0, name
    assert stack.site.wait_for_end(countdown).status == "finished"
    group = stack.client.group(stack.client.groups(countdown).items[0].id)
    assert "write an expression that equals" in group.prompt_text
    for name, run_id in pairs.items():
        assert stack.site.wait_for_end(run_id).status == "finished", name
        for pair in stack.client.pairs(run_id).items:
            assert (pair.rejected, pair.chosen == "No.") == ("No.", False)
            assert pair.prompt.endswith("Yes." if name == "HH's" else pair.prompt[pair.prompt.rindex("Calculate") :])
