"""What a worker trained, looked at in a browser: a checkpoint that is tried, groups that taught nothing."""

import re

import pytest
from on_page import Open, Worker, cards, field
from playwright.sync_api import expect
from processes import tiny_run
from stack import Stack

pytestmark = pytest.mark.thorough


def test_a_person_tries_a_checkpoint_on_a_prompt(open_page: Open, stack: Stack, worker: Worker) -> None:
    worker()
    run = stack.client.create_run(tiny_run(2))
    assert stack.site.wait_for_end(run.id).status == "finished"
    page = open_page(f"/run?id={run.id}&tab=checkpoints")
    field(page, "Prompt").fill("Calculate 2 + 2 x 6")
    field(page, "Reference answer").fill("14")
    field(page, "Completions").fill("3")
    page.get_by_role("button", name="Sample").click()
    shown = cards(page, 3)
    assert all(0 <= float(card.reward) <= 1 for card in shown)
    page.wait_for_url(re.compile(r"sample=\d+"))
    assert cards(open_page(page.url), 3) == shown


def test_the_minimal_run_says_why_most_of_its_groups_are_dead(open_page: Open, stack: Stack, worker: Worker) -> None:
    worker()
    recipe = next(card for card in stack.client.catalog().recipes if card.id == "grpo-notebook")
    small = {"model": {"source": "builtin:tiny-arithmetic"}, "budget": {"steps": 3, "eval_every": 0}}
    run = stack.client.create_run(recipe.config | small)
    assert stack.site.wait_for_end(run.id).status == "finished"
    page = open_page(f"/run?id={run.id}&tab=groups")
    expect(page.get_by_text(re.compile(r"^Step 2 · 2 groups: 2 dead"))).to_be_visible()
    why = page.get_by_text(re.compile("2 of 2 groups are dead"))
    expect(why).to_contain_text("every advantage is 0 and their rewards teach nothing")
    expect(why).to_contain_text("Every answer of this step is wrong; easier prompts")
