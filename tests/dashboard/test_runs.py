"""The list of runs against a real backend."""

import re
from collections.abc import Callable

import pytest
import recorded
import streamlit as st
from on_screen import Open, press, texts
from serving import Backend
from streamlit.testing.v1 import AppTest

from backend.contract import protocol as p
from backend.contract.client import Client
from backend.contract.grpo import GrpoConfig
from backend.contract.recipes import RECIPES
from backend.contract.records import Progress, Run, RunError, RunUpdate
from dashboard.charts.sparkline import sparkline
from dashboard.runs import filters

ROWS = 4  # of a page, instead of thirty
DEFAULT = GrpoConfig().model_dump(mode="json")


def queue(backend: Backend, name: str, **fields: object) -> Run:
    return backend.client.create_run(DEFAULT, name=name, **fields)  # type: ignore[arg-type]


def claimed(backend: Backend, name: str, **metrics: float) -> Run:
    """A run that is running, one step in; only it may be waiting."""
    run = queue(backend, name)
    recorded.claim(backend.client, run.id)
    backend.client.report(run.id, p.Report(attempt=1, seq=0, step=0, metrics={"eval/pass@1": 0.5}))
    backend.client.report(run.id, p.Report(attempt=1, seq=1, step=0, metrics={"reward": 0.6, **metrics}))
    return run


def ended(backend: Backend, name: str) -> Run:
    """A run that finished."""
    run = claimed(backend, name)
    backend.client.report(run.id, p.Report(attempt=1, seq=2, step=1, metrics={"eval/pass@1": 0.81}))
    backend.client.finish(run.id, p.Finish(attempt=1, outcome="finished"))
    return run


def names(at: AppTest) -> list[str]:
    """The runs listed, from the top."""
    return [
        link.label.replace("\\", "") for link in at.get("page_link") if re.fullmatch(r"id=\d+", link.proto.query_string)
    ]


def links(at: AppTest) -> dict[str, str]:
    return {link.label.replace("\\", ""): link.proto.query_string for link in at.get("page_link")}


def test_a_recorded_run_that_does_not_say_how_long_it_is_to_be_has_no_bar_and_no_time_left(
    open_page: Open, backend: Backend
) -> None:
    """Also where an earlier attempt came further."""
    for attempt, steps in ((1, range(8)), (2, range(2, 5))):
        again = {} if attempt == 1 else {"key": "l" * 16, "run_id": 1}
        assert backend.client.record(recorded.THEIRS.model_copy(update=again)).attempt == attempt
        backend.client.start(1, p.Start(attempt=attempt, from_step=steps[0], device=""))
        for step in steps:
            sent = p.Report(attempt=attempt, seq=step, step=step, metrics={"reward": 0.5}, seconds=60.0 * step)
            backend.client.report(1, sent)
        backend.clock.now += 31
    assert backend.client.run(1).progress.eta_seconds == 180.0
    at = open_page("runs")
    assert not at.get("progress")
    said = [one.value for one in at.markdown]
    assert ":small[5 steps]" in said
    assert not any(" left" in one for one in said)


def test_an_empty_list_offers_the_first_run_and_a_backend_that_is_away_is_said_in_words(
    open_page: Open, dashboard_of: Callable[[str], None]
) -> None:
    at = open_page("runs")
    assert "No runs yet." in texts(at)
    assert "Start the first run" in links(at)

    dashboard_of("http://127.0.0.1:9")
    at.run()
    assert not at.exception
    assert "does not answer" in at.error[0].value


def test_running_and_waiting_runs_stand_first_in_the_order_they_run_and_the_last_moves_to_the_front(
    open_page: Open, backend: Backend
) -> None:
    ended(backend, "done")
    claimed(backend, "busy")
    later = queue(backend, "later")
    queue(backend, "sooner", priority=5)
    paused = queue(backend, "paused")
    backend.client.command(paused.id, "pause")
    at = open_page("runs")
    assert names(at) == ["busy", "sooner", "later", "paused", "done"]
    assert "starts next" in texts(at)
    assert "1 before it" in texts(at)
    at.button(key=f"first-{later.id}").click().run()
    assert names(at) == ["busy", "later", "sooner", "paused", "done"]


def test_the_first_that_waits_does_not_start_next_if_no_worker_can_take_it(open_page: Open, backend: Backend) -> None:
    claimed(backend, "busy")
    recorded.queue(backend.client, "three", compute={"processes": 3})
    at = open_page("runs")
    assert "waits for a worker that can take it" in texts(at)
    assert "starts next" not in texts(at)


def test_a_row_tells_what_came_out_or_reward_and_phase_and_leads_to_the_form_filled_in(
    open_page: Open, backend: Backend
) -> None:
    run = ended(backend, "done")
    at = open_page("runs")
    for words in ("pass@1] 50 % → **81 %**", ":gray[#1 · ", "\n1 step · ", " · just now"):
        assert words in texts(at)
    assert f"clone={run.id}" in [link.proto.query_string for link in at.get("page_link")]

    run = claimed(backend, "busy")
    progress = Progress(step=1, total_steps=100, phase="rollout", done=3, total=8)
    backend.client.heartbeat(run.id, p.Heartbeat(attempt=1, worker="recorder", progress=progress))
    at = open_page("runs")
    assert [bar.proto.text for bar in at.get("progress") if "sampling 3 of 8" in bar.proto.text]
    assert "reward, last 10] **0.600**" in texts(at)
    backend.client.command(run.id, "pause")
    assert "pausing" in texts(at.run())


def test_a_row_of_a_run_that_stops_says_no_time_of_steps_that_it_will_not_do(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client, "busy")
    recorded.train(backend.client, run_id, steps=2, total=100, prompts=1, group_size=2)
    assert backend.client.run(run_id).progress.eta_seconds

    def bars() -> str:
        return "".join(bar.proto.text for bar in open_page("runs").get("progress"))

    assert " left" in bars()
    backend.client.command(run_id, "stop")
    assert " left" not in bars()


def test_a_row_tells_why_a_run_failed_and_a_refused_action_is_said_in_the_backends_words(
    open_page: Open, backend: Backend
) -> None:
    run = claimed(backend, "broken")
    at = open_page("runs")
    error = RunError(code="dataset", message="The column *answer* is missing in rows 3, 17.")
    backend.client.fail(run.id, p.Fail(attempt=1, error=error))
    at.button(key=f"pause-{run.id}").click().run()
    assert "only a queued or running run can be paused" in at.toast[0].value.replace("\\", "")
    assert ":red[The column *answer* is missing in rows 3, 17.]" in texts(at)
    at.button(key=f"retry-{run.id}").click().run()
    assert backend.client.run(run.id).status == "queued"


def cut(backend: Backend, name: str, share: float) -> int:
    """A run of which this share of the completions was cut at the limit, still running."""
    run_id = queue(backend, name).id
    recorded.claim(backend.client, run_id)
    for step in range(12):
        metrics = {"reward": 0.5, "completions/clipped_ratio": share}
        backend.client.report(run_id, p.Report(attempt=1, seq=step, step=step, metrics=metrics))
    return run_id


def ways_to_health(at: AppTest) -> dict[str, tuple[str, str]]:
    """Of each row that has warnings: how many, and which."""
    shown = (link.proto for link in at.get("page_link") if link.proto.query_string.endswith("tab=health"))
    return {link.query_string: (link.label, link.help) for link in shown}


def test_a_row_counts_the_warnings_of_its_run_and_leads_to_them(open_page: Open, backend: Backend) -> None:
    short = cut(backend, "short", 0.4)
    backend.client.finish(short, p.Finish(attempt=1, outcome="finished"))
    cut(backend, "healthy", 0.0)
    queue(backend, "waiting")
    at = open_page("runs")
    assert ways_to_health(at) == {f"id={short}&tab=health": ("1", "Many completions are cut")}


def test_the_list_checks_each_run_in_sight_once_however_often_it_is_drawn(
    open_page: Open, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "ROWS", ROWS)
    for number in range(ROWS + 2):
        run_id = cut(backend, f"run {number}", 0.4)
        backend.client.finish(run_id, p.Finish(attempt=1, outcome="finished"))
    asked: list[int] = []
    check = Client.health
    monkeypatch.setattr(Client, "health", lambda client, run_id: asked.append(run_id) or check(client, run_id))
    at = open_page("runs")
    assert len(ways_to_health(at)) == ROWS
    at.run()
    assert len(ways_to_health(at)) == ROWS
    assert sorted(asked) == sorted(set(asked))
    assert len(asked) == ROWS


def test_a_name_is_never_markup(open_page: Open, backend: Backend) -> None:
    queue(backend, ":red[x] *y* [z](http://a.example)", tags=["**t**"])
    at = open_page("runs")
    assert "\\:red\\[x\\] \\*y\\* \\[z\\]" in next(link.label for link in at.get("page_link") if "red" in link.label)
    assert ":gray-badge[\\*\\*t\\*\\*]" in "".join(element.value for element in at.markdown)


def test_pause_resume_and_stop_are_clicks_and_stopping_asks_first(open_page: Open, backend: Backend) -> None:
    run = claimed(backend, "busy")
    at = open_page("runs")
    at.button(key=f"pause-{run.id}").click().run()
    assert backend.client.run(run.id).requested == "pause"
    at.button(key=f"resume-{run.id}").click().run()
    assert backend.client.run(run.id).requested == "nothing"
    for answer, requested in (("no", "nothing"), ("yes", "stop")):
        at.button(key=f"stop-{run.id}").click().run()
        assert backend.client.run(run.id).requested == "nothing"
        assert "Stop it?" in texts(at)
        at.button(key=f"stop-{run.id}-{answer}").click().run()
        assert backend.client.run(run.id).requested == requested
        assert "Stop it?" not in texts(at)


def test_chosen_runs_are_compared_by_an_address(open_page: Open, backend: Backend) -> None:
    first, second = ended(backend, "one"), claimed(backend, "two")
    at = open_page("runs")
    at.checkbox(key=f"pick-{second.id}").check().run()
    at.checkbox(key=f"pick-{first.id}").check().run()
    assert links(at)["Compare 2 selected"] == f"runs={first.id}%2C{second.id}"
    backend.client.finish(second.id, p.Finish(attempt=1, outcome="finished"))
    at.run()
    assert "Compare 2 selected" in links(at)


def test_deleting_asks_first_takes_the_row_away_and_out_of_the_comparison(open_page: Open, backend: Backend) -> None:
    runs = [ended(backend, name) for name in ("one", "two", "three")]
    at = open_page("runs")
    for run in runs:
        at.checkbox(key=f"pick-{run.id}").check().run()
    at.button(key=f"delete-{runs[0].id}").click().run()
    assert "one" in names(at)
    at.button(key=f"delete-{runs[0].id}-yes").click().run()
    assert links(at)["Compare 2 selected"] == f"runs={runs[1].id}%2C{runs[2].id}"
    assert names(at) == ["three", "two"]
    assert {run.name for run in backend.client.runs().items} == {"two", "three"}


def test_filters_stand_in_the_address_and_those_that_let_nothing_through_are_cleared_by_one_click(
    open_page: Open, backend: Backend
) -> None:
    ended(backend, "first quick one")
    queue(backend, "second quick one", tags=["slow"])
    queue(backend, "third")
    at = open_page("runs", named="quick")
    assert names(at) == ["second quick one", "first quick one"]
    at.selectbox(key="state").set_value("finished").run()
    assert names(at) == ["first quick one"]
    assert names(open_page("runs", named="quick", state="finished")) == ["first quick one"]
    assert names(open_page("runs", tag="slow")) == ["second quick one"]

    at = open_page("runs", state="failed", named="nothing")
    assert "No run matches these filters." in texts(at)
    press(at, "Show all runs")
    assert len(names(at)) == 3

    notebook = next(recipe for recipe in RECIPES if recipe.id == "grpo-notebook")
    backend.client.create_run(notebook.config, name="notebook")
    assert names(open_page("runs", recipe="grpo-notebook")) == ["notebook"]
    assert names(open_page("runs", model="builtin:tiny-arithmetic")) == ["second quick one", "third", "first quick one"]


def test_a_long_list_has_pages(open_page: Open, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "ROWS", ROWS)
    for number in range(ROWS + 2):
        run = queue(backend, f"run-{number}")
        backend.client.update_run(run.id, RunUpdate(priority=-number))
    at = open_page("runs")
    assert len(names(at)) == ROWS
    press(at, "Next")
    assert names(at) == ["run-0", "run-1"]
    assert "before" in at.query_params
    press(at, "First")
    assert len(names(at)) == ROWS


def test_the_header_counts_workers_and_waiting_runs(open_page: Open, backend: Backend) -> None:
    assert "no worker" in texts(open_page("runs"))
    claimed(backend, "busy")
    queue(backend, "next")
    st.cache_data.clear()  # instead of waiting for the line to grow old
    assert "1 worker, busy · 1 queued" in texts(open_page("runs"))


def test_who_only_looks_at_runs_is_not_told_of_workers(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPSCOPE_VIEWING", "true")
    st.cache_data.clear()
    st.cache_resource.clear()
    words = texts(open_page("runs"))
    assert "Nothing to import yet" in words
    assert not [word for word in ("worker", "New run") if word in words]


def test_a_sparkline_leaves_a_gap_where_a_value_was_not_finite_and_those_compared_share_their_scale() -> None:
    assert sparkline([0.5]) == ""
    assert sparkline([0.1, 0.2, 0.3]).count("M") == 1
    assert sparkline([0.1, 0.2, None, 0.3, 0.4]).count("M") == 2
    assert 'd="M2.0 18.0L94.0 18.0"' in sparkline([0.5, 0.5])

    assert 'd="M2.0 10.0L94.0 10.0"' in sparkline([0.5, 0.5], (0.0, 1.0))
    assert 'd="M2.0 18.0L94.0 10.0"' in sparkline([0.0, 0.5], (0.0, 1.0))
