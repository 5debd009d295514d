"""What a browser asks of a page: in which order, and what counts no more."""

import asyncio

import pytest
from clock import Clock
from starlette.types import Message
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequests
from streamlit.runtime.scriptrunner_utils.script_run_context import RunLocation, ThreadState

from dashboard import requests as asked_of_pages
from dashboard.requests import finish_callbacks, let_people_go_first, worth_an_answer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(asked_of_pages, "monotonic", clock)
    return clock


def asks(page: str, part: str = "", *, tick: bool = False) -> bytes:
    state = ClientState(page_script_hash=page, fragment_id=part, is_auto_rerun=tick)
    return BackMsg(rerun_script=state).SerializeToString()


def passed_on(*sent: bytes | float, clock: Clock) -> list[bytes]:
    """What of it reaches Streamlit; a number is how many seconds go by."""
    messages = iter(sent)

    async def receive() -> Message:
        for one in messages:
            if isinstance(one, bytes):
                return {"type": "websocket.receive", "bytes": one}
            clock.now += one
        return {"type": "websocket.disconnect"}

    async def read() -> list[bytes]:
        next_message, read = worth_an_answer(receive), []
        while (message := await next_message())["type"] == "websocket.receive":
            read.append(message["bytes"])
        return read

    return asyncio.run(read())


def test_neither_a_part_of_a_page_that_was_left_nor_a_tick_just_after_a_click_is_answered(clock: Clock) -> None:
    first = [asks(""), asks("run", "header"), asks("run", "chart")]
    second = [asks("sweep"), b"no message of Streamlit's", BackMsg(app_heartbeat=True).SerializeToString()]
    third = [asks("sweep", "values"), asks("run"), asks("run", "header")]
    late, later = asks("run", "header"), asks("sweep", "values")
    assert passed_on(*first, *second, late, *third, later, clock=clock) == first + second + third

    click, tick, other = asks("run", "groups"), asks("run", "header", tick=True), asks("run", "pulse", tick=True)
    alive = BackMsg(app_heartbeat=True).SerializeToString()
    assert passed_on(tick, click, tick, 1.9, other, 0.2, tick, other, clock=clock) == [tick, click, tick, other]
    assert passed_on(click, 1.5, alive, 0.6, tick, click, clock=clock) == [click, alive, tick, click]


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("on_scriptrunner_yield", "request_rerun"):
        monkeypatch.setattr(ScriptRequests, name, getattr(ScriptRequests, name))  # Streamlit's own again after the test
    finish_callbacks()
    let_people_go_first()


def taken(*asked: RerunData) -> RerunData:
    """What a page that is ready takes up, of what it was asked for in this order."""
    requests = ScriptRequests()
    for one in asked:
        requests.request_rerun(one)
    return requests.on_scriptrunner_ready().rerun_data


def switched(*, on: bool) -> WidgetStates:
    return WidgetStates(widgets=[WidgetState(id="follow", bool_value=on)])


@pytest.mark.usefixtures("ours")
def test_a_request_that_comes_during_a_callback_waits_for_its_end() -> None:
    requests = ScriptRequests()
    ThreadState.initialize()
    with ThreadState.scoped(run_location=RunLocation.CALLBACK):
        assert requests.request_rerun(RerunData("second"))
        assert requests.on_scriptrunner_yield() is None
    waited = requests.on_scriptrunner_yield()
    assert waited is not None
    assert waited.rerun_data.query_string == "second"


@pytest.mark.usefixtures("ours")
def test_a_tick_undoes_neither_a_click_before_or_behind_it_nor_what_the_server_has_just_written_into_the_address() -> (
    None
):
    tick = RerunData("id=1", switched(on=True), "run", fragment_id="pulse", is_auto_rerun=True)
    click = RerunData("id=1", switched(on=False), "run", fragment_id="groups")
    for asked, parts in (((click, tick), ["groups", "pulse"]), ((tick, click, tick, tick), ["pulse", "groups"])):
        one = taken(*asked)
        assert (one.widget_states, one.fragment_id_queue) == (switched(on=False), parts)
    assert taken(tick, RerunData("id=2", None, "run")).query_string == "id=2"


@pytest.mark.usefixtures("ours")
def test_a_link_leads_on_though_the_page_that_it_leaves_is_about_to_be_drawn_again() -> None:
    link = RerunData("id=2", switched(on=True), "run", is_history_navigation=True)
    for own in (
        RerunData("id=1", None, "list", is_auto_rerun=True, fragment_id="header"),
        RerunData("id=1", None, "list"),
    ):
        one = taken(link, own)
        assert (one.query_string, one.page_script_hash) == ("id=2", "run")
        assert one.widget_states == switched(on=True)
        assert one.is_history_navigation
