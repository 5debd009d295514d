"""A run's page against a real backend."""

import json
import re
from collections.abc import Callable, Sequence
from html import unescape

import pytest
import recorded
from following import follow
from serving import Backend
from streamlit.testing.v1 import AppTest

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.groups import GroupReport
from backend.contract.records import Progress, RunError
from dashboard.downloads import model_address
from dashboard.report.gather import gather

# Whole pages, or processes that have to die: right, but too slow for `make check`.
pytestmark = pytest.mark.slow

Open = Callable[..., AppTest]


def shown(at: AppTest) -> str:
    """All sentences of the page."""
    return "\n".join(element.value for kind in (at.markdown, at.caption, at.info, at.text) for element in kind)


def figures(at: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in at.metric}


def report(backend: Backend, run_id: int, attempt: int, step: int, groups: Sequence[GroupReport]) -> None:
    backend.client.report(run_id, p.Report(attempt=attempt, seq=1000 + step, step=step, groups=list(groups)))


@pytest.fixture
def trained(backend: Backend) -> int:
    """A run that stands at step 3 of 100."""
    run_id = recorded.queue(backend.client, "quick **one**")
    recorded.train(backend.client, run_id, steps=3, total=100, prompts=4, group_size=4)
    return run_id


def test_the_header_says_how_the_run_stands(open_page: Open, trained: int) -> None:
    at = open_page("run", id=trained)
    assert at.text[0].value == "quick **one**"
    assert "running" in shown(at)
    assert figures(at)["Steps done"] == "3 of 100"
    assert figures(at)["Time left"].endswith(" s")
    assert figures(at)["Now"] == "sampling 96 / 16"
    assert figures(at)["Held-out pass@1"] == "52 %"


def charts(at: AppTest) -> int:
    return len(at.get("vega_lite_chart"))


def scroll_down(at: AppTest, run_id: int) -> AppTest:
    """As far as what a browser is given at first."""
    at.session_state[f"below-{run_id}"] = True
    return at.run()


def test_the_main_metrics_are_on_charts_and_the_others_one_choice_away(
    open_page: Open, backend: Backend, trained: int
) -> None:
    at = open_page("run", id=trained)
    assert charts(at) == 9
    assert "Below: Clipped tokens · Loss ·" in shown(at)
    scroll_down(at, trained)
    assert charts(at) == 15
    assert "Below:" not in shown(at)
    assert "About 0 is expected" in shown(at)
    assert "0.04 × the KL aggregated as the loss is (sequence mean)" in shown(at)


def test_where_long_completions_weigh_more_the_loss_is_not_said_to_be_near_0(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client, algorithm={"aggregation": "sequence_sum"})
    recorded.train(backend.client, run_id, steps=2, total=10, prompts=2, group_size=2)
    at = open_page("run", id=run_id)
    scroll_down(at, run_id)
    assert "It need not be near 0: under sequence sum longer completions weigh more" in shown(at)
    assert "About 0 is expected" not in shown(at)
    assert "Time per step (step_time)" in at.multiselect(key="more").options

    at.multiselect(key="more").set_value(["step_time"]).run()
    assert charts(at) == 16
    assert "**Time per step**" in shown(at)


def test_a_metric_that_only_this_run_knows_is_listed_and_its_name_is_no_markup(
    open_page: Open, backend: Backend, trained: int
) -> None:
    backend.client.report(trained, p.Report(attempt=1, seq=900, step=3, metrics={"my/**own**": 1.0}))
    at = scroll_down(open_page("run", id=trained, more="my/**own**"), trained)
    assert charts(at) == 16
    assert "my\\/\\*\\*own\\*\\*" in shown(at)


def test_a_range_of_steps_in_the_address_is_all_that_the_charts_show(open_page: Open, trained: int) -> None:
    at = open_page("run", id=trained, range="1-2")
    assert at.button(key="zoom-out").label == "Steps 1 to 2: show all"
    spec = json.loads(at.get("vega_lite_chart")[0].proto.spec)
    assert spec["layer"][0]["encoding"]["x"]["scale"]["domain"] == [1, 2]

    at.button(key="zoom-out").click().run()
    assert "range" not in at.query_params
    spec = json.loads(at.get("vega_lite_chart")[0].proto.spec)
    assert spec["layer"][0]["encoding"]["x"]["scale"]["domain"] == [0, 100]


@pytest.mark.parametrize("range", ["", "7", "5-2", "a-b", "1-1", "-3", "99999999999999999999-3"])
def test_a_range_that_is_none_shows_the_whole_run(open_page: Open, trained: int, range: str) -> None:
    at = scroll_down(open_page("run", id=trained, range=range), trained)
    assert charts(at) == 15
    assert not [button for button in at.button if button.key == "zoom-out"]


def test_before_the_first_step_every_chart_has_its_place(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    at = scroll_down(open_page("run", id=run_id), run_id)
    assert charts(at) == 15
    assert figures(at)["Queue"] == "next"
    assert any("the lines begin with the first step" in said.value for said in at.caption)


def test_an_address_without_a_run_leads_back_to_the_list(open_page: Open) -> None:
    assert "names no run" in shown(open_page("run"))
    assert "names no run" in shown(open_page("run", id="x"))


def test_a_run_that_is_not_there_is_said_in_words_with_the_way_to_those_that_are(open_page: Open) -> None:
    at = open_page("run", id=999)
    assert [said.value for said in at.info] == ["There is no run 999; it may have been deleted."]
    assert [link.label for link in at.get("page_link")][-1] == "All runs"


@pytest.mark.parametrize(("verb", "status"), [("pause", "pausing"), ("stop", "stopping")])
def test_a_button_asks_and_the_page_says_so(
    open_page: Open, backend: Backend, trained: int, verb: str, status: str
) -> None:
    at = open_page("run", id=trained)
    at.button(key=f"command-{verb}").click().run()
    assert backend.client.run(trained).requested == verb
    assert status in shown(at)


def test_a_finished_run_offers_a_clone_and_no_command(open_page: Open, backend: Backend, trained: int) -> None:
    backend.client.finish(trained, p.Finish(attempt=1, outcome="finished"))
    at = open_page("run", id=trained)
    assert not at.button
    assert [link.label for link in at.get("page_link")] == ["Clone", "Sweep"]


def test_a_failed_run_says_why_and_what_to_do(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    claimed = recorded.claim(backend.client, run_id)
    error = RunError(code="reward_errors", message="6 of 8 completions unscored", details="Traceback: boom")
    recorded.fail(backend.client, run_id, claimed, error)
    at = open_page("run", id=run_id)
    assert [code.value for code in at.code] == ["6 of 8 completions unscored", "Traceback: boom"]
    assert at.expander[0].label == "Traceback"
    assert "mend the reward function" in shown(at)
    at.button(key="command-retry").click().run()
    assert backend.client.run(run_id).status == "queued"


def test_groups_show_their_rewards_and_advantages(open_page: Open, backend: Backend, trained: int) -> None:
    at = open_page("run", id=trained, tab="groups", step=1)
    table = at.dataframe[0].value
    groups = backend.client.groups(trained, step=1).items
    assert table["prompt"].tolist() == [group.prompt for group in groups]
    assert table["rewards"].str.startswith("data:image/svg+xml;base64,").all()
    assert "**Step 1** · 4 groups:" in shown(at)


def test_the_newest_step_is_followed_until_a_person_chooses_one(
    open_page: Open, backend: Backend, trained: int
) -> None:
    at = open_page("run", id=trained, tab="groups")
    assert at.select_slider[0].value == 2
    report(backend, trained, 1, 3, [recorded.group_of(0, [1.0, 0.1])])
    at.run()
    assert at.select_slider[0].value == 3

    at.select_slider[0].set_value(1).run()
    assert at.query_params["step"] == "1"
    report(backend, trained, 1, 4, [recorded.group_of(0, [1.0, 0.1])])
    at.run()
    assert at.select_slider[0].value == 1

    at.toggle(key="follow").set_value(True).run()
    assert at.select_slider[0].value == 4
    assert "step" not in at.query_params


def test_the_arrows_go_step_by_step(open_page: Open, trained: int) -> None:
    at = open_page("run", id=trained, tab="groups", step=1)
    at.button(key="step-forth").click().run()
    assert at.select_slider[0].value == 2
    assert at.button(key="step-forth").disabled
    at.button(key="step-back").click().run()
    assert at.select_slider[0].value == 1


def test_dead_groups_are_explained_with_the_numbers_of_the_step(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client, sampling={"group_size": 4})
    claimed = recorded.claim(backend.client, run_id)
    groups = [recorded.group_of(index, [1.0] * 4) for index in range(3)] + [recorded.group_of(3, [1.0, 0.1, 1.0, 1.0])]
    rate = {"rewards/correctness/mean": 0.9375}
    backend.client.report(run_id, p.Report(attempt=claimed.attempt, seq=0, step=0, groups=groups, metrics=rate))
    page = shown(open_page("run", id=run_id, tab="groups"))
    assert "4 groups: 1 live · 3 dead (all right)" in page
    assert "0.938^4 + 0.0625^4 = 77 %" in page


def test_where_a_kl_penalty_tells_completions_apart_their_advantages_are_not_called_0(
    open_page: Open, backend: Backend
) -> None:
    run_id = recorded.queue(backend.client, algorithm={"kl": {"beta": 0.1, "placement": "reward", "estimator": "k1"}})
    claimed = recorded.claim(backend.client, run_id)
    report(backend, run_id, claimed.attempt, 0, [recorded.group_of(0, [1.0, 1.0])])
    page = shown(open_page("run", id=run_id, tab="groups"))
    assert "got the same reward from the task, and only the KL penalty in the reward tells them apart" in page
    assert "every advantage is 0" not in page


def test_where_a_reward_has_no_bound_nothing_is_called_the_most_or_all_right(open_page: Open, backend: Backend) -> None:
    steps: Json = [{"name": "steps", "kind": "python", "function": "mine:steps"}]  # 0 to 4, say
    run_id = recorded.queue(backend.client, rewards={"functions": steps}, sampling={"group_size": 2})
    worker = recorded.WORKER.model_copy(update={"reward_functions": ["mine:steps"]})
    claimed = backend.client.claim(p.ClaimRequest(worker=worker))
    assert claimed is not None
    backend.client.start(run_id, p.Start(attempt=claimed.attempt, from_step=0, device="cpu"))
    groups = [recorded.group_of(0, [1.0, 1.0])]
    mean = {"rewards/steps/mean": 1.0}
    backend.client.report(run_id, p.Report(attempt=claimed.attempt, seq=0, step=0, groups=groups, metrics=mean))
    page = shown(open_page("run", id=run_id, tab="groups"))
    assert "1 dead (all at 1.00)" in page
    assert "answer of this step is right" not in page
    opened = shown(open_page("group", id=backend.client.groups(run_id).items[0].id))
    assert "all 2 scored completions got 1.00, so nobody is better than the mean" in opened


def test_where_every_answer_is_right_the_page_asks_for_harder_prompts(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client, sampling={"group_size": 2})
    claimed = recorded.claim(backend.client, run_id)
    groups = [recorded.group_of(0, [1.0, 1.0])]
    rate = {"rewards/correctness/mean": 1.0}
    backend.client.report(run_id, p.Report(attempt=claimed.attempt, seq=0, step=0, groups=groups, metrics=rate))
    page = shown(open_page("run", id=run_id, tab="groups"))
    assert "Every answer of this step is right; harder prompts would teach more." in page
    assert "p^G" not in page


def test_where_answers_were_right_before_the_page_does_not_ask_for_easier_prompts(
    open_page: Open, backend: Backend
) -> None:
    run_id = recorded.queue(backend.client, sampling={"group_size": 2})
    claimed = recorded.claim(backend.client, run_id)
    groups = [recorded.group_of(index, [0.0, 0.0]) for index in range(8)]
    for step, rate in enumerate((0.0, 0.02, 0.0, 0.5, 0.625, 0.5, 0.5, 0.0, 0.0)):
        metrics = {"rewards/correctness/mean": rate}
        sent = p.Report(attempt=claimed.attempt, seq=step, step=step, groups=groups, metrics=metrics)
        backend.client.report(run_id, sent)
    collapsed, hard = (shown(open_page("run", id=run_id, tab="groups", step=step)) for step in (8, 2))
    assert "Every answer of this step is wrong, though 62 % were right at step 4" in collapsed
    assert "easier prompts" not in collapsed
    assert "Every answer of this step is wrong; easier prompts" in hard


def test_groups_are_filtered_by_state(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    claimed = recorded.claim(backend.client, run_id)
    groups = [recorded.group_of(0, [1.0, 0.1]), recorded.group_of(1, [1.0, 1.0]), recorded.group_of(2, [None, 1.0])]
    report(backend, run_id, claimed.attempt, 0, groups)
    at = open_page("run", id=run_id, tab="groups")
    assert at.dataframe[0].value["state"].tolist() == ["live", "dead", "unscored"]
    at.segmented_control[0].set_value("unscored").run()
    assert at.dataframe[0].value["group"].tolist() == [3]


def test_probes_are_groups_that_can_be_shown_alone(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    claimed = recorded.claim(backend.client, run_id)
    probe = recorded.group_of(1, [1.0, 0.1]).model_copy(update={"state": "probe"})
    report(backend, run_id, claimed.attempt, 0, [recorded.group_of(0, [1.0, 0.1]), probe])
    at = open_page("run", id=run_id, tab="groups")
    assert "1 group: 1 live · and 1 probe, not trained on" in shown(at)
    at.segmented_control[0].set_value("probe").run()
    assert at.dataframe[0].value["group"].tolist() == [2]


def test_bookmarked_groups_are_found_across_steps(open_page: Open, backend: Backend, trained: int) -> None:
    marked = [backend.client.groups(trained, step=step).items[step].id for step in (0, 2)]
    for group_id in marked:
        backend.client.people.bookmark(group_id, "look again")
    at = open_page("run", id=trained, tab="groups", bookmarked="true")
    table = at.dataframe[0].value
    assert table[["star", "step", "group"]].values.tolist() == [["★", 0, 1], ["★", 2, 3]]

    at.toggle(key="bookmarked").set_value(False).run()
    assert at.dataframe[0].value["star"].tolist() == ["", "", "★", ""]


def test_a_bookmark_of_a_step_that_a_resume_took_back_stays_in_the_list_and_in_the_report(
    open_page: Open, backend: Backend
) -> None:
    run_id = recorded.queue(backend.client)
    first = recorded.claim(backend.client, run_id)
    report(backend, run_id, first.attempt, 0, [recorded.group_of(0, [1.0, 0.1])])
    kept = backend.client.groups(run_id).items[0].id
    backend.client.people.bookmark(kept, "look again")
    recorded.finish(backend.client, run_id, first, "released")
    second = recorded.claim(backend.client, run_id)
    report(backend, run_id, second.attempt, 0, [recorded.group_of(0, [1.0, 1.0])])
    at = open_page("run", id=run_id, tab="groups", bookmarked="true")
    assert at.dataframe[0].value[["star", "state"]].values.tolist() == [["★", "live, superseded"]]
    assert "above the mean it is reinforced" in shown(open_page("group", id=kept))
    [chosen] = gather(backend.client, run_id, ["bookmarked"]).groups
    assert chosen.why == "bookmarked, of a step that a resume took back"


def test_a_resumed_run_shows_the_steps_that_it_took_again(open_page: Open, backend: Backend, trained: int) -> None:
    at = open_page("run", id=trained, tab="groups")
    assert at.select_slider[0].options == ["0", "1", "2"]
    backend.client.command(trained, "pause")
    backend.client.finish(trained, p.Finish(attempt=1, outcome="paused"))
    backend.client.command(trained, "resume")
    claimed = backend.client.claim(p.ClaimRequest(worker=recorded.WORKER))
    assert claimed is not None
    backend.client.start(trained, p.Start(attempt=claimed.attempt, from_step=1, device="cpu"))
    report(backend, trained, claimed.attempt, 1, [recorded.group_of(0, [1.0, 0.1])])
    at.run()
    assert at.select_slider[0].options == ["0", "1"]


def test_a_page_that_is_drawn_before_the_new_attempt_begins_forgets_what_that_takes_back(
    open_page: Open, backend: Backend, trained: int
) -> None:
    at = open_page("run", id=trained, tab="groups")
    backend.client.command(trained, "pause")
    backend.client.finish(trained, p.Finish(attempt=1, outcome="paused"))
    backend.client.command(trained, "resume")
    claimed = backend.client.claim(p.ClaimRequest(worker=recorded.WORKER))
    assert claimed is not None
    at.run()
    assert at.select_slider[0].options == ["0", "1", "2"]
    backend.client.start(trained, p.Start(attempt=claimed.attempt, from_step=1, device="cpu"))
    at.run()
    assert not at.select_slider
    assert "Step 0" in [element.value for element in at.text]


def test_an_empty_run_says_what_will_appear(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    assert "No groups yet" in shown(open_page("run", id=run_id, tab="groups"))
    assert "No lines yet" in shown(open_page("run", id=run_id, tab="log"))
    assert "No checkpoint yet" in shown(open_page("run", id=run_id, tab="checkpoints"))


def test_the_configuration_is_the_stored_one(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client, optimizer={"learning_rate": 0.00123})
    at = open_page("run", id=run_id, tab="configuration")
    assert any("learning_rate: 0.00123" in code.value for code in at.code)
    assert {code.language for code in at.code} == {
        "plaintext"
    }  # null, true and false are painted like errors by a highlighter
    assert "16 prompts × 8 completions = 128 completions a step" in shown(at)


def test_the_log_has_the_newest_line_at_the_bottom_and_filters_by_level(
    open_page: Open, backend: Backend, trained: int
) -> None:
    lines = [p.LogLine(level="warning", message="first"), p.LogLine(message="second")]
    backend.client.report(trained, p.Report(attempt=1, seq=900, logs=lines))
    at = open_page("run", id=trained, tab="log")
    assert at.code[0].value.splitlines()[-1].endswith("info     second")
    at.pills(key="levels").set_value(["warning"]).run()
    assert at.code[0].value.splitlines()[-1].endswith("warning  first")
    at.pills(key="levels").set_value(["error"]).run()
    assert "No line of these levels among the newest: choose others above." in shown(at)
    assert "No lines yet" not in shown(at)


@pytest.fixture
def saved(backend: Backend, trained: int) -> int:
    """The run with a checkpoint at step 3."""
    backend.client.checkpoint(trained, recorded.checkpoint_of(1, 3, trained))
    return trained


def test_a_checkpoint_can_be_downloaded_and_says_where_it_lies(open_page: Open, saved: int) -> None:
    at = open_page("run", id=saved, tab="checkpoints")
    assert at.dataframe[0].value["step"].tolist() == [3]
    assert at.code[0].value == f"recorded/{saved}/3"
    link = at.get("link_button")[0].proto  # type: ignore[attr-defined]
    assert (link.label, link.url) == ("Download model", model_address(saved, 3))


def test_a_checkpoint_is_tried_with_the_runs_own_rewards(open_page: Open, backend: Backend, saved: int) -> None:
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
    claimed = backend.client.claim(
        p.ClaimRequest(worker=p.WorkerInfo(name="other", device="cpu", store="recorded"), kinds=["sample"])
    )
    assert claimed is not None
    backend.client.start(sample_id, p.Start(attempt=claimed.attempt, from_step=0, device="cpu"))
    group = recorded.group_of(0, [1.0, 0.1])
    report(backend, sample_id, claimed.attempt, 0, [group])
    backend.client.finish(sample_id, p.Finish(attempt=claimed.attempt, outcome="finished"))
    at.run()
    cards = unescape(re.sub("<[^>]*>", "", "".join(html.value for html in at.get("html"))))
    assert all(completion.text in cards for completion in group.completions)


def test_a_sample_without_an_answer_is_not_scored(open_page: Open, backend: Backend, saved: int) -> None:
    at = open_page("run", id=saved, tab="checkpoints")
    at.button[-1].click().run()
    config = backend.client.run(int(at.query_params["sample"])).config
    assert config["rewards"] is None
    assert config["answer"] is None


def test_progress_inside_a_step_moves(open_page: Open, backend: Backend, trained: int) -> None:
    at = open_page("run", id=trained)
    progress = Progress(step=3, total_steps=100, phase="update", done=1, total=2)
    backend.client.heartbeat(trained, p.Heartbeat(attempt=1, worker="recorder", progress=progress))
    at.run()
    assert figures(at)["Now"] == "updating the weights 1 / 2"


def test_a_row_that_is_clicked_opens_its_group(open_page: Open, backend: Backend, trained: int) -> None:
    at = open_page("run", id=trained, tab="groups", step=1)
    at.session_state[f"groups-{trained}"] = {"selection": {"rows": [], "columns": [], "cells": [(2, "prompt")]}}
    follow(at.run())
    assert at.query_params == {"id": str(backend.client.groups(trained, step=1).items[2].id)}


def test_a_row_of_a_filtered_table_opens_its_group(open_page: Open, backend: Backend, trained: int) -> None:
    at = open_page("run", id=trained, tab="groups", step=1, show="live")
    [first, *_] = backend.client.groups(trained, step=1, state="live").items
    at.session_state[f"groups-{trained}"] = {"selection": {"rows": [], "columns": [], "cells": [(0, "prompt")]}}
    follow(at.run())
    assert at.query_params == {"id": str(first.id)}


def test_a_sample_has_a_page_of_its_own_without_charts(open_page: Open, backend: Backend) -> None:
    config = {"kind": "sample", "prompts": ["Calculate 1 + 1"], "group_size": 2}
    at = open_page("run", id=backend.client.create_run(config).id)
    assert [tab.label for tab in at.tabs] == ["Groups", "Configuration", "Log"]
    assert "No groups yet" in shown(at)
