"""A run's checkpoints against a real backend."""

import re
from html import unescape

import pytest
import recorded
from on_screen import Open, shown
from serving import Backend

from backend.contract import protocol as p
from dashboard.downloads.routes import model_address


@pytest.fixture
def saved(backend: Backend, trained: int) -> int:
    """The run with a checkpoint at step 3."""
    backend.client.checkpoint(trained, recorded.checkpoint_of(1, 3, trained))
    return trained


def test_a_checkpoint_can_be_downloaded_and_says_where_it_lies_and_a_run_which_it_keeps_if_not_all(
    open_page: Open, saved: int, backend: Backend
) -> None:
    at = open_page("run", id=saved, tab="checkpoints")
    assert at.dataframe[0].value["step"].tolist() == [3]
    assert at.code[0].value == f"recorded/run-{saved}/3"
    link = at.get("link_button")[0].proto  # type: ignore[attr-defined]
    assert (link.label, link.url) == ("Download model", model_address(saved, 3))
    assert "This run keeps" not in shown(at)

    run_id = recorded.queue(backend.client, budget={"keep": {"last": 2, "every": 30, "best": False}})
    recorded.claim(backend.client, run_id)
    for step in (10, 20, 30, 40, 50):
        backend.client.checkpoint(run_id, recorded.checkpoint_of(1, step, run_id))
    at = open_page("run", id=run_id, tab="checkpoints")
    assert at.dataframe[0].value["step"].tolist() == [30, 40, 50]
    assert "This run keeps the newest 2, those at multiples of 30 steps, those that other runs use" in shown(at)


def test_a_checkpoint_is_tried_with_the_runs_own_rewards_and_without_an_answer_it_is_not_scored(
    open_page: Open, backend: Backend, saved: int
) -> None:
    at = open_page("run", id=saved, tab="checkpoints")
    assert at.text_area[0].value == backend.client.groups(saved, limit=1).items[0].prompt
    at.text_area[0].set_value("Calculate 1 + 1 x 2")
    at.text_input[0].set_value("3")
    at.number_input[0].set_value(2)
    at.button[-1].click().run()
    sample_id = int(at.query_params["sample"])
    config = backend.client.run(sample_id).config
    assert config["model"] == backend.client.run(saved).config["model"] | {"source": f"run:{saved}@3"}
    assert config["rewards"] == backend.client.run(saved).config["rewards"]
    assert (config["prompts"], config["answer"], config["group_size"]) == (["Calculate 1 + 1 x 2"], "3", 2)
    assert "between two steps" in shown(at)

    backend.client.command(saved, "stop")
    backend.client.finish(saved, p.Finish(attempt=1, outcome="stopped"))
    claimed = recorded.claim(backend.client, sample_id)
    group = recorded.group_of(0, [1.0, 0.1])
    recorded.report(backend.client, sample_id, claimed.attempt, 0, [group])
    recorded.finish(backend.client, sample_id, claimed)
    at.run()
    cards = unescape(re.sub("<[^>]*>", "", "".join(html.value for html in at.get("html"))))
    assert all(completion.text in cards for completion in group.completions)

    at = open_page("run", id=saved, tab="checkpoints")
    at.button[-1].click().run()
    config = backend.client.run(int(at.query_params["sample"])).config
    assert config["rewards"] is None
    assert config["answer"] is None
