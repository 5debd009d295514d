"""What a browser asks of a page: in which order, and what counts no more."""

import asyncio
from collections.abc import Iterator

import pytest
from starlette.types import Message
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequests
from streamlit.runtime.scriptrunner_utils.script_run_context import RunLocation, ThreadState

from dashboard.requests import let_people_go_first, of_the_place_asked_last


def asks(page: str, part: str = "", id: int | None = None) -> bytes:
    query = "" if id is None else f"tab=groups&id={id}"
    state = ClientState(page_script_hash=page, fragment_id=part, query_string=query)
    return BackMsg(rerun_script=state).SerializeToString()


def passed_on(*sent: bytes) -> list[bytes]:
    """What of it reaches Streamlit."""

    async def read() -> list[bytes]:
        messages: Iterator[Message] = iter([{"type": "websocket.receive", "bytes": one} for one in sent])

        async def receive() -> Message:
            return next(messages, {"type": "websocket.disconnect"})

        next_message, read = of_the_place_asked_last(receive), []
        while (message := await next_message())["type"] == "websocket.receive":
            read.append(message["bytes"])
        return read

    return asyncio.run(read())


def test_what_a_part_of_a_page_asks_after_the_page_was_left_goes_nowhere() -> None:
    first = [asks(""), asks("run", "header"), asks("run", "chart")]
    second = [asks("sweep"), b"no message of Streamlit's", BackMsg(app_heartbeat=True).SerializeToString()]
    third = [asks("sweep", "values"), asks("run"), asks("run", "header")]
    late, later = asks("run", "header"), asks("sweep", "values")
    assert passed_on(*first, *second, late, *third, later) == first + second + third


def test_nor_what_a_part_of_another_runs_page_asks_after_a_link_led_from_that_run() -> None:
    before, link, tick = asks("run", "header", 1), asks("run", "", 2), asks("run", "header", 1)
    after = [asks("run", "header", 2), asks("run", "header", 2)]
    assert passed_on(before, link, tick, *after) == [before, link, *after]
    back = asks("run", "", 1)
    assert passed_on(before, link, back, after[0], tick) == [before, link, back, tick]


def test_a_page_that_says_itself_which_group_it_shows_now_goes_on_asking() -> None:
    shown = [asks("group", "keys", 1), asks("group", "", 2), asks("group", "keys", 2), asks("group", "keys", 1)]
    assert passed_on(*shown, asks("group", "keys", 3)) == [*shown, asks("group", "keys", 3)]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> ScriptRequests:
    for name in ("on_scriptrunner_yield", "request_rerun"):
        monkeypatch.setattr(ScriptRequests, name, getattr(ScriptRequests, name))  # Streamlit's own again after the test
    let_people_go_first()
    return ScriptRequests()


def switched(*, on: bool) -> WidgetStates:
    return WidgetStates(widgets=[WidgetState(id="follow", bool_value=on)])


def test_a_request_that_comes_during_a_callback_waits_for_its_end(requests: ScriptRequests) -> None:
    ThreadState.initialize()
    with ThreadState.scoped(run_location=RunLocation.CALLBACK):
        assert requests.request_rerun(RerunData("second"))
        assert requests.on_scriptrunner_yield() is None
    taken = requests.on_scriptrunner_yield()
    assert taken is not None
    assert taken.rerun_data.query_string == "second"


def test_a_tick_that_the_browser_sent_with_what_the_page_put_into_a_widget_does_not_undo_a_click_that_waits(
    requests: ScriptRequests,
) -> None:
    requests.request_rerun(RerunData("id=1", switched(on=False), fragment_id="groups"))
    requests.request_rerun(RerunData("id=1", switched(on=True), fragment_id="header", is_auto_rerun=True))
    taken = requests.on_scriptrunner_ready().rerun_data
    assert taken.widget_states == switched(on=False)
    assert taken.fragment_id_queue == ["groups", "header"]


def test_a_tick_brings_no_news_of_widgets(requests: ScriptRequests) -> None:
    requests.request_rerun(RerunData("id=1", switched(on=True), fragment_id="header", is_auto_rerun=True))
    assert requests.on_scriptrunner_ready().rerun_data.widget_states is None


@pytest.mark.parametrize("own", [{"is_auto_rerun": True, "fragment_id": "header"}, {}], ids=["tick", "st.rerun"])
def test_a_link_leads_on_though_the_page_that_it_leaves_is_about_to_be_drawn_again(
    requests: ScriptRequests, own: dict[str, object]
) -> None:
    requests.request_rerun(RerunData("id=2", switched(on=True), "run", is_history_navigation=True))
    requests.request_rerun(RerunData("id=1", None, "list", **own))  # type: ignore[arg-type]
    taken = requests.on_scriptrunner_ready().rerun_data
    assert (taken.query_string, taken.page_script_hash) == ("id=2", "run")
    assert taken.widget_states == switched(on=True)
    assert taken.is_history_navigation
