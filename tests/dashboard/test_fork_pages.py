"""Forks on the pages: their family, and where they part."""

import pytest
from acting import GRPO, Actor, group
from on_screen import Open, key, texts
from serving import Backend

from backend.contract.inspection import Difference
from backend.contract.records import Run
from dashboard.comparison.curves import parting
from dashboard.comparison.metrics import shared_steps
from dashboard.run.family import tree


@pytest.fixture
def family(backend: Backend) -> list[Run]:
    """A run, its fork at 3 that says something else from step 4 on, and a fork of that one at 5."""
    first = backend.client.create_run(GRPO, name="trunk")
    actor = Actor(backend.client).begin()
    for step in range(6):
        actor.report(step, metrics={"reward": 0.5})
        if step == 2:
            actor.save(3)
    actor.finish()
    second = backend.client.fork_run(first.id, 3, name="branch")
    actor = Actor(backend.client).begin(3)
    actor.report(3, metrics={"reward": 0.5})
    actor.report(4, metrics={"reward": 0.5}, groups=[group(rewards=(1.0, 0.0, 0.5))])
    actor.save(5)
    actor.finish()
    third = backend.client.fork_run(second.id, 5, name="twig")
    actor = Actor(backend.client).begin(5)
    actor.report(5, metrics={"reward": 0.5}, groups=[group(prompt_id="other")])
    actor.finish()
    return [backend.client.run(one.id) for one in (first, second, third)]


def test_the_tree_has_each_run_below_its_parent_and_each_fork_is_drawn_from_where_it_left_a_line_before_it(
    backend: Backend, family: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [(depth, one.name) for depth, one in tree(family[::-1])] == [(0, "trunk"), (1, "branch"), (2, "twig")]
    assert [depth for depth, _ in tree(family[1:])] == [0, 1]
    monkeypatch.setattr("dashboard.comparison.metrics.client", lambda: backend.client)
    first, second, third = family
    assert shared_steps(family) == {second.id: 3, third.id: 5}
    assert shared_steps([first, third]) == {third.id: 3}
    assert shared_steps([first]) == {}


def test_a_run_shows_where_it_comes_from_and_what_came_from_it(open_page: Open, family: list[Run]) -> None:
    first, second, third = family
    for run, label in ((second, f"Fork of run {first.id} at step 3 · its forks: 1"), (first, "Its forks: 2")):
        assert open_page("run", id=str(run.id)).expander[0].label == label
    at = open_page("compare", runs=f"{first.id},{second.id},{third.id}")
    said = "\n".join(one.value.replace("\\", "") for one in at.caption)
    assert "are the same up to step 3, which is drawn once" in said
    assert "the first completions that differ are of step 4, group 0" in said


def test_what_differs_first_is_said_in_words() -> None:
    assert parting(Difference(shared=3, compared=3), "a", "b").endswith("has no step after that yet.")
    assert parting(Difference(shared=3, compared=9), "a", "b").endswith("draw the same prompts and say the same.")
    other = Difference(shared=3, compared=6, step=5, group_index=2, what="prompt")
    assert "they draw other prompts" in parting(other, "a", "b")


def test_the_form_says_at_which_rates_a_fork_goes_on_before_it_is_launched(open_page: Open, backend: Backend) -> None:
    falling = {"schedule": "linear", "learning_rate": 1e-4}
    config = {**GRPO, "optimizer": falling, "budget": {"steps": 4}, "recipe": None}
    parent = backend.client.create_run(config)
    actor = Actor(backend.client).begin()
    for step in range(3):
        actor.report(step, metrics={"reward": 0.5})
    actor.save(3)
    at = open_page("new-run", fork=f"{parent.id}@3")
    assert "rate jumps" not in texts(at)
    at.number_input(key=key(at, "budget.steps")).set_value(100).run()
    assert "learning rate jumps from 2.5e-5, the parent's at this step, to 9.7e-5 (3.88 times)" in texts(at)
