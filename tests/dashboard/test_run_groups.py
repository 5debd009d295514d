"""A run's groups, step by step, against a real backend."""

import pytest
import recorded
from following import follow
from on_screen import Open, shown
from scored import one_step
from serving import Backend

from backend.contract import protocol as p
from backend.contract.base import Json
from dashboard.components import synced
from dashboard.downloads.report import gather


def test_groups_show_their_rewards_their_rows_open_them_and_the_arrows_go_step_by_step(
    open_page: Open, backend: Backend, trained: int
) -> None:
    at = open_page("run", id=trained, tab="groups", step=1)
    table = at.dataframe[0].value
    groups = backend.client.groups(trained, step=1).items
    assert table["prompt"].tolist() == [group.prompt for group in groups]
    assert table["rewards"].str.startswith("data:image/svg+xml;base64,").all()
    assert "**Step 1** · 4 groups:" in shown(at)

    at.button(key="step-forth").click().run()
    assert at.select_slider[0].value == 2
    assert at.button(key="step-forth").disabled
    at.button(key="step-back").click().run()
    assert at.select_slider[0].value == 1

    at.session_state[f"groups-{trained}"] = {"selection": {"rows": [], "columns": [], "cells": [(2, "prompt")]}}
    follow(at.run())
    assert at.query_params == {"id": str(backend.client.groups(trained, step=1).items[2].id)}

    at = open_page("run", id=trained, tab="groups", step=1, show="live")
    [first, *_] = backend.client.groups(trained, step=1, state="live").items
    at.session_state[f"groups-{trained}"] = {"selection": {"rows": [], "columns": [], "cells": [(0, "prompt")]}}
    follow(at.run())
    assert at.query_params == {"id": str(first.id)}


def test_the_newest_step_is_followed_until_a_person_chooses_one(
    open_page: Open, backend: Backend, trained: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synced, "_HEARD", 0.0)  # a person takes longer from the slider to the toggle than this test
    at = open_page("run", id=trained, tab="groups")
    assert at.select_slider[0].value == 2
    recorded.report(backend.client, trained, 1, 3, [recorded.group_of(0, [1.0, 0.1])])
    at.run()
    assert at.select_slider[0].value == 3

    at.select_slider[0].set_value(1).run()
    assert at.query_params["step"] == "1"
    recorded.report(backend.client, trained, 1, 4, [recorded.group_of(0, [1.0, 0.1])])
    at.run()
    assert at.select_slider[0].value == 1

    at.toggle(key="follow").set_value(True).run()
    assert at.select_slider[0].value == 4
    assert "step" not in at.query_params


def test_a_filter_that_is_chosen_as_the_run_moves_on_does_not_end_the_following(
    open_page: Open, backend: Backend, trained: int
) -> None:
    at = open_page("run", id=trained, tab="groups")
    recorded.report(backend.client, trained, 1, 3, [recorded.group_of(0, [1.0, 0.1])])
    at.run()
    at.select_slider[0].set_value(2)  # the browser has not heard of step 3 yet, and sends what all its widgets show
    at.segmented_control(key="show").set_value("live").run()
    assert at.select_slider[0].value == 3
    assert "step" not in at.query_params


def test_dead_groups_are_explained_with_the_numbers_of_the_step_and_not_called_0_where_a_penalty_tells_them_apart(
    open_page: Open, backend: Backend
) -> None:
    groups = [recorded.group_of(index, [1.0] * 4) for index in range(3)] + [recorded.group_of(3, [1.0, 0.1, 1.0, 1.0])]
    rate = {"rewards/correctness/mean": 0.9375}
    run_id = one_step(backend.client, groups, rate, sampling={"group_size": 4})
    page = shown(open_page("run", id=run_id, tab="groups"))
    assert "4 groups: 1 live · 3 dead (all correct)" in page
    assert "0.938^4 + 0.0625^4 = 77 %" in page

    in_reward: Json = {"beta": 0.1, "placement": "reward", "estimator": "k1"}
    run_id = one_step(backend.client, [recorded.group_of(0, [1.0, 1.0])], algorithm={"kl": in_reward})
    page = shown(open_page("run", id=run_id, tab="groups"))
    assert "got the same reward from the task, and only the KL penalty in the reward tells them apart" in page
    assert "every advantage is 0" not in page


def test_harder_prompts_are_asked_for_where_every_answer_is_right_and_easier_ones_where_none_ever_was(
    open_page: Open, backend: Backend
) -> None:
    groups = [recorded.group_of(0, [1.0, 1.0])]
    run_id = one_step(backend.client, groups, {"rewards/correctness/mean": 1.0}, sampling={"group_size": 2})
    page = shown(open_page("run", id=run_id, tab="groups"))
    assert "Every answer of this step is right; harder prompts would teach more." in page
    assert "p^G" not in page

    steps: Json = [{"name": "steps", "kind": "python", "function": "mine:steps"}]  # 0 to 4, say
    run_id = recorded.queue(backend.client, rewards={"functions": steps}, sampling={"group_size": 2})
    worker = recorded.WORKER.model_copy(update={"reward_functions": ["mine:steps"]})
    claimed = recorded.claim(backend.client, run_id, worker=worker)
    mean = {"rewards/steps/mean": 1.0}
    backend.client.report(run_id, p.Report(attempt=claimed.attempt, seq=0, step=0, groups=groups, metrics=mean))
    page = shown(open_page("run", id=run_id, tab="groups"))
    assert "1 dead (all at 1.00)" in page
    assert "answer of this step is right" not in page
    opened = shown(open_page("group", id=backend.client.groups(run_id).items[0].id))
    assert "all 2 scored completions got 1.00, so no completion is better than the mean" in opened

    run_id, claimed = recorded.started(backend.client, sampling={"group_size": 2})
    groups = [recorded.group_of(index, [0.0, 0.0]) for index in range(8)]
    for step, rate in enumerate((0.0, 0.02, 0.0, 0.5, 0.625, 0.5, 0.5, 0.0, 0.0)):
        metrics = {"rewards/correctness/mean": rate}
        sent = p.Report(attempt=claimed.attempt, seq=step, step=step, groups=groups, metrics=metrics)
        backend.client.report(run_id, sent)
    collapsed, hard = (shown(open_page("run", id=run_id, tab="groups", step=step)) for step in (8, 2))
    assert "Every answer of this step is wrong, though 62 % were right at step 4" in collapsed
    assert "easier prompts" not in collapsed
    assert "Every answer of this step is wrong; easier prompts" in hard


def test_groups_are_filtered_by_state_and_probes_can_be_shown_alone(open_page: Open, backend: Backend) -> None:
    groups = [recorded.group_of(index, rewards) for index, rewards in enumerate(([1.0, 0.1], [1.0, 1.0], [None, 1.0]))]
    at = open_page("run", id=one_step(backend.client, groups), tab="groups")
    assert at.dataframe[0].value["state"].tolist() == ["live", "dead", "unscored"]
    at.segmented_control[0].set_value("unscored").run()
    assert at.dataframe[0].value["group"].tolist() == [3]

    probe = recorded.group_of(1, [1.0, 0.1]).model_copy(update={"state": "probe"})
    run_id = one_step(backend.client, [recorded.group_of(0, [1.0, 0.1]), probe])
    at = open_page("run", id=run_id, tab="groups")
    assert "1 group: 1 live · and 1 probe, not trained on" in shown(at)
    for one in backend.client.groups(run_id, sort="index").items:
        kind = "Probe" if one.state == "probe" else "Group"
        assert f"**{kind} 1** of 1" in shown(open_page("group", id=one.id))
    at.segmented_control[0].set_value("probe").run()
    assert at.dataframe[0].value["group"].tolist() == [2]


def test_bookmarked_groups_are_found_across_steps_also_one_that_a_resume_took_back(
    open_page: Open, backend: Backend, trained: int
) -> None:
    marked = [backend.client.groups(trained, step=step).items[step].id for step in (0, 2)]
    for group_id in marked:
        backend.client.people.bookmark(group_id, "look again")
    at = open_page("run", id=trained, tab="groups", bookmarked="true")
    assert at.dataframe[0].value[["star", "step", "group"]].values.tolist() == [["★", 0, 1], ["★", 2, 3]]

    at.toggle(key="bookmarked").set_value(False).run()
    assert at.dataframe[0].value["star"].tolist() == ["", "", "★", ""]

    run_id, first = recorded.started(backend.client)
    recorded.report(backend.client, run_id, first.attempt, 0, [recorded.group_of(0, [1.0, 0.1])])
    kept = backend.client.groups(run_id).items[0].id
    backend.client.people.bookmark(kept, "look again")
    recorded.finish(backend.client, run_id, first, "released")
    second = recorded.claim(backend.client, run_id)
    recorded.report(backend.client, run_id, second.attempt, 0, [recorded.group_of(0, [1.0, 1.0])])
    at = open_page("run", id=run_id, tab="groups", bookmarked="true")
    assert at.dataframe[0].value[["star", "state"]].values.tolist() == [["★", "live, superseded"]]
    assert "above the mean it is reinforced" in shown(open_page("group", id=kept))
    [chosen] = gather(backend.client, run_id, ["bookmarked"]).groups
    assert chosen.why == "bookmarked, of a step done again after a resume"


def test_a_resumed_run_shows_what_was_until_the_new_attempt_begins_and_then_the_steps_that_it_took_again(
    open_page: Open, backend: Backend, trained: int
) -> None:
    at = open_page("run", id=trained, tab="groups")
    backend.client.command(trained, "pause")
    backend.client.finish(trained, p.Finish(attempt=1, outcome="paused"))
    backend.client.command(trained, "resume")
    claimed = backend.client.ask(p.ClaimRequest(worker=recorded.WORKER)).claim
    assert claimed is not None
    at.run()
    assert at.select_slider[0].options == ["0", "1", "2"]
    backend.client.start(trained, p.Start(attempt=claimed.attempt, from_step=1, device="cpu"))
    at.run()
    assert not at.select_slider
    assert "Step 0" in [element.value for element in at.text]
    recorded.report(backend.client, trained, claimed.attempt, 1, [recorded.group_of(0, [1.0, 0.1])])
    at.run()
    assert at.select_slider[0].options == ["0", "1"]
