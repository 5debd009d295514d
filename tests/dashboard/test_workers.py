"""The workers' page against a real backend."""

from on_screen import Open, texts
from serving import TOKEN, Backend

from backend.contract import protocol as p
from backend.contract.grpo import GrpoConfig


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


def test_without_workers_the_page_says_what_will_appear(open_page: Open) -> None:
    assert "No worker has connected yet" in texts(open_page("workers"))


def test_a_worker_is_shown_with_what_it_is_and_what_it_runs(open_page: Open, backend: Backend) -> None:
    run = backend.client.create_run(GrpoConfig().model_dump(mode="json"), name="mine")
    backend.client.ask(p.ClaimRequest(worker=worker("busy_one")))
    backend.client.ask(p.ClaimRequest(worker=worker("idle_one")))
    at = open_page("workers")
    shown = texts(at)
    assert "busy" in shown
    assert "idle" in shown
    assert "**busy_one**" in shown
    assert "NVIDIA H200 · 22 GiB" in shown
    assert "torch 2.13.0" in shown
    assert "judges: careful" in shown
    assert "reward functions: manners:is_polite" in shown
    assert "sampling engines besides native: transformers" in shown
    assert "last heartbeat just now" in shown
    [link] = [link for link in at.get("page_link") if link.label == "mine"]
    assert link.proto.query_string == f"id={run.id}"


def test_a_worker_whose_nodes_are_not_all_there_names_them(open_page: Open, backend: Backend) -> None:
    backend.client.create_run(GrpoConfig().model_dump(mode="json"), name="mine")
    waits = worker("led").model_copy(update={"missing_nodes": [1, 3]})
    assert backend.client.ask(p.ClaimRequest(worker=waits, kinds=[])).claim is None
    assert "waiting for the nodes 1, 3; it takes no run without" in texts(open_page("workers"))
    backend.client.ask(p.ClaimRequest(worker=worker("led"), kinds=[]))
    assert "waiting for a run" in texts(open_page("workers"))


def test_a_worker_that_went_away_is_said_to_be_away(open_page: Open, backend: Backend) -> None:
    backend.client.ask(p.ClaimRequest(worker=worker("gone")))
    backend.clock.now += 600
    shown = texts(open_page("workers"))
    assert "away" in shown
    assert "last heartbeat 10 m 00 s ago" in shown


def test_the_command_for_another_worker_hides_the_token_until_it_is_asked_for(
    open_page: Open, backend: Backend
) -> None:
    at = open_page("workers")
    assert at.code[0].value == f"GROUPSCOPE_TOKEN=TOKEN groupscope worker --backend {backend.url}"
    at.toggle(key="show-token").set_value(True).run()
    assert at.code[0].value == f"GROUPSCOPE_TOKEN={TOKEN} groupscope worker --backend {backend.url}"


def test_what_workers_held_is_drawn_with_the_share_of_the_time(open_page: Open, backend: Backend) -> None:
    backend.client.create_run(GrpoConfig().model_dump(mode="json"), name="mine")
    assert "How busy the workers were" not in texts(open_page("workers"))
    backend.client.ask(p.ClaimRequest(worker=worker("busy_one")))
    at = open_page("workers")
    assert (
        "Over the last 1 h 00 m, in your time zone. Grey: idle, away, or busy with a run that has been deleted. Share of the time that each was busy: busy_one (< 1 %)."
        in texts(at)
    )
    assert at.get("vega_lite_chart")
