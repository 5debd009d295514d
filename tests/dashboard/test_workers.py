"""The workers' page against a real backend."""

import recorded
from on_screen import Open, texts
from serving import TOKEN, Backend

from backend.contract import protocol as p


def worker(name: str) -> p.WorkerInfo:
    return p.WorkerInfo(
        name=name,
        device="NVIDIA H200",
        memory_bytes=22 * 2**30,
        store="/s",
        versions={"torch": "2.13.0"},
        judges=["careful"],
        reward_functions=["manners:is_polite"],
        engines=["native", "transformers"],
    )


def test_without_workers_the_page_has_the_command_for_one_which_hides_the_token_until_it_is_asked_for(
    open_page: Open, backend: Backend
) -> None:
    at = open_page("workers")
    assert "No worker has connected yet" in texts(at)
    assert at.code[0].value == f"GROUPSCOPE_TOKEN=TOKEN groupscope worker --backend {backend.url}"
    at.toggle(key="show-token").set_value(True).run()
    assert at.code[0].value == f"GROUPSCOPE_TOKEN={TOKEN} groupscope worker --backend {backend.url}"


def test_a_worker_is_shown_with_what_it_is_and_runs_its_share_of_the_time_and_when_it_went_away(
    open_page: Open, backend: Backend
) -> None:
    run_id = recorded.queue(backend.client, "mine")
    assert "How busy the workers were" not in texts(open_page("workers"))
    backend.client.ask(p.ClaimRequest(worker=worker("busy_one")))
    backend.client.ask(p.ClaimRequest(worker=worker("idle_one")))
    at = open_page("workers")
    shown = texts(at)
    said = (" busy]", " idle]", "**busy_one**", "NVIDIA H200 · 22 GiB", "torch 2.13.0", "judges: careful")
    offers = ("reward functions: manners:is_polite", "sampling engines besides native: transformers")
    for words in (*said, *offers, "last heartbeat just now"):
        assert words in shown
    [link] = [link for link in at.get("page_link") if link.label == "mine"]
    assert link.proto.query_string == f"id={run_id}"

    assert (
        "Over the last 1 h 00 m, in your time zone. Grey: idle, away, or busy with a run that has been deleted."
        in shown
    )
    assert "Share of the time that each was busy: busy_one (< 1 %)" in shown
    assert at.get("vega_lite_chart")

    backend.client.ask(p.ClaimRequest(worker=worker("gone")))
    backend.clock.now += 600
    shown = texts(open_page("workers"))
    assert "away" in shown
    assert "last heartbeat 10 m 00 s ago" in shown


def test_a_worker_whose_nodes_are_not_all_there_names_them(open_page: Open, backend: Backend) -> None:
    recorded.queue(backend.client)
    waits = worker("led").model_copy(update={"missing_nodes": [1, 3]})
    assert backend.client.ask(p.ClaimRequest(worker=waits, kinds=[])).claim is None
    assert "waiting for the nodes 1, 3; it takes no run without" in texts(open_page("workers"))
    backend.client.ask(p.ClaimRequest(worker=worker("led"), kinds=[]))
    assert "waiting for a run" in texts(open_page("workers"))
