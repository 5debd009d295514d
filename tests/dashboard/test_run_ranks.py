"""The processes of a run on its page and on the page of workers: as a worker describes them, and in a real run of two."""

import os
import re
import signal
from collections.abc import Callable

import pytest
import recorded
import streamlit as st
from on_screen import Open, shown, texts
from processes import TOKEN as SITES
from processes import Site, ranks_of, tiny_run, wait_until
from processes import site as start_site
from serving import Backend
from streamlit.testing.v1 import AppTest

from backend.contract import protocol as p
from backend.contract.records import Progress, Rank, Ranks

site = pytest.fixture(start_site)

TWO_CARDS = recorded.WORKER.model_copy(update={"name": "two_cards", "processes": 4})
DOING = {"rank": 0, "pid": 4711, "step": 3, "phase": "update", "done": 4, "total": 8, "phase_seconds": 12.0}
MEASURED = {"waits_seconds": 9.0, "memory_bytes": 2 * 2**30, "peak_bytes": 3 * 2**30, "step_seconds": 1.7}
AT_WORK = Rank.model_validate({**DOING, **MEASURED, "worked": {"rollout": 1.2, "update": 0.5}})


def begun(backend: Backend, **metrics: float) -> tuple[int, p.Claim]:
    run_id, claim = recorded.started(backend.client, "together", compute={"processes": 2}, worker=TWO_CARDS)
    if metrics:
        backend.client.report(run_id, p.Report(attempt=1, seq=0, step=0, metrics={"step_time": 2.0} | metrics))
    return run_id, claim


def beat(backend: Backend, run_id: int, *ranks: Rank) -> None:
    described = Ranks(
        count=2, items=list(ranks), memory_bytes=sum(one.memory_bytes or 0 for one in ranks) or None, step_seconds=1.7
    )
    progress = Progress(step=3, total_steps=100, phase="rollout", done=1, total=8)
    message = p.Heartbeat(attempt=1, worker=TWO_CARDS.name, progress=progress, ranks=described)
    backend.client.heartbeat(run_id, message)


def table(at: AppTest) -> list[dict[str, object]]:
    found: list[dict[str, object]] = at.dataframe[0].value.to_dict("records")
    return found


def test_each_process_is_listed_with_what_it_does_and_the_one_that_the_others_wait_for_is_named_on_the_overview_too(
    open_page: Open, backend: Backend, trained: int
) -> None:
    run_id, _ = begun(backend)
    at = open_page("run", id=run_id, tab="processes")
    assert "The processes are starting" in texts(at)
    beat(backend, run_id, AT_WORK.model_copy(update={"waits_seconds": 0.0}), AT_WORK.model_copy(update={"rank": 1}))
    at = open_page("run", id=run_id, tab="processes")
    assert "No process holds the others up." in texts(at)
    assert "All together hold 4.0 GiB." in texts(at)
    working, waiting = table(at)
    now = {"process": 0, "pid": 4711, "now": "updating the weights 4 / 8", "for": "12 s"}
    step = {"a step": "1.70 s", "sampling": "1.20 s", "updating": "0.50 s"}
    assert working == {**now, "memory": "2.0 GiB", "at most": "3.0 GiB", **step}
    assert (waiting["now"], waiting["for"]) == ("waits for the others", "9.0 s")
    assert "Processes" not in [tab.label for tab in open_page("run", id=trained).tabs]

    still = Rank(rank=1, phase="rollout", silent_seconds=12.0, slow="silent")
    beat(backend, run_id, AT_WORK, still)
    words = "Process 1 has not been heard for 12 s: the others wait for it."
    at = open_page("run", id=run_id, tab="processes")
    assert words in texts(at)
    assert (table(at)[1]["now"], table(at)[1]["for"]) == ("⚠ not heard since sampling", "12 s")
    assert words in texts(open_page("run", id=run_id))
    beat(backend, run_id, AT_WORK, AT_WORK.model_copy(update={"rank": 1, "step_seconds": 3.4, "slow": "slower"}))
    words = "Process 1 works 3.40 s in a step, the other one 1.70 s: the others wait for it."
    assert words in texts(open_page("run", id=run_id, tab="processes"))
    at = open_page("run", id=run_id)
    assert words in texts(at)
    at.button(key="see-ranks").click().run()
    assert at.query_params["tab"] == "processes"


def test_what_each_did_in_the_steps_is_drawn_also_when_the_run_has_ended_and_stands_in_no_list_of_metrics(
    open_page: Open, backend: Backend
) -> None:
    figures = {f"rank/{rank}/{name}": 1.0 + rank for rank in (0, 1) for name in ("seconds", "tokens")}
    run_id, claim = begun(backend, reward=0.5, grad_norm=1.0, **figures)
    recorded.finish(backend.client, run_id, claim)
    at = open_page("run", id=run_id, tab="processes")
    assert len(at.get("vega_lite_chart")) == 2
    assert "2 processes trained this run together" in shown(at)
    at = open_page("run", id=run_id)
    assert not [name for name in at.multiselect(key="more").options if "rank" in name.lower()]


def test_a_busy_worker_is_shown_with_the_processes_in_use_and_their_memory_and_what_is_old_says_so(
    open_page: Open, backend: Backend
) -> None:
    run_id, _ = begun(backend)
    assert "2 of 4 processes" in texts(open_page("workers"))
    beat(backend, run_id, AT_WORK)
    assert "2 of 4 processes, which hold 2.0 GiB" in texts(open_page("workers"))

    backend.clock.now += 40
    at = open_page("run", id=run_id, tab="processes")
    assert "This is how the worker described them 40 s ago." in texts(at)
    assert "No process holds" not in texts(at)
    assert "1 of 2 processes have spoken." in texts(at)


def test_the_form_says_how_a_worker_offers_processes_and_with_how_many_a_run_can_be_trained(
    open_page: Open, backend: Backend
) -> None:
    said = "Now no worker is connected. One that is started with `groupscope worker --processes 4` trains"
    assert said in texts(open_page("new-run", recipe="grpo"))

    backend.client.ask(p.ClaimRequest(worker=TWO_CARDS))
    st.cache_data.clear()  # instead of waiting for the list to grow old
    at = open_page("new-run", recipe="grpo")
    assert "Of the connected workers two_cards offers the most: 4 processes for one run." in texts(at)
    [field] = [one for one in at.number_input if "compute.processes" in str(one.key)]
    field.set_value(2).run()
    assert re.search(r"Memory\] about \*\*.* in each of 2 processes", texts(at))


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_run_of_two_shows_both_and_the_one_that_is_stopped(
    site: Site, dashboard_of: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, open_page_of_any: Open
) -> None:
    site.backend()
    worker = site.worker(GROUPSCOPE_PROCESSES="2")
    run = site.client.create_run(tiny_run(100_000, every=0, compute={"processes": 2}))
    site.wait_for_step(run.id, 6)
    wait_until(lambda: len(site.client.ranks(run.id).items) == 2, "both have spoken")
    ranks = ranks_of(worker.pid)
    dashboard_of(site.url)
    monkeypatch.setenv("GROUPSCOPE_TOKEN", SITES)
    at = open_page_of_any("run", id=run.id, tab="processes")
    assert [row["process"] for row in table(at)] == [0, 1]
    assert all(str(row["memory"]).endswith("iB") for row in table(at))
    os.kill(ranks[1], signal.SIGSTOP)
    try:
        wait_until(lambda: any(one.slow for one in site.client.ranks(run.id).items), "one holds the others up")
        first, second = site.client.ranks(run.id).items
        assert (first.slow, second.slow) == (None, "silent")
        assert "Process 1 has not been heard for" in texts(open_page_of_any("run", id=run.id, tab="processes"))
    finally:
        os.kill(ranks[1], signal.SIGCONT)
    wait_until(lambda: not any(one.slow for one in site.client.ranks(run.id).items), "both go on")
    wait_until(lambda: "process 1 was not heard for" in site.said(run.id), "the log says so")
    series = site.client.metrics(run.id, names=["rank/1/seconds", "step_time"]).series
    worked, took = (series[name].value[1:6] for name in ("rank/1/seconds", "step_time"))
    assert sum(filter(None, worked)) < sum(filter(None, took))  # but for the first step, which they begin apart
    site.client.command(run.id, "stop")
    assert site.wait_for_end(run.id).status == "stopped"
