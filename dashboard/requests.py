"""What a browser asks of a page, and what goes first: a person before a tick, and the page that they see now before the one that they left.

Streamlit has no setting for any of it (decisions 0023 and 0051).
"""

from dataclasses import replace
from urllib.parse import parse_qs

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # the library has no types
from starlette.types import Message, Receive
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.runtime.scriptrunner_utils.script_requests import (
    RerunData,
    ScriptRequest,
    ScriptRequests,
    ScriptRequestType,
)
from streamlit.runtime.scriptrunner_utils.script_run_context import RunLocation, ThreadState


def of_the_place_asked_last(receive: Receive) -> Receive:
    """What a browser's WebSocket brings, without what the parts of a page that it has left still ask: it was under way already, or
    a chart came in sight. Streamlit would answer in the name of that page, and the browser would empty the new one for good; or, where
    the page is another run's, draw the run that was left once more.
    """
    here = left = nowhere = "", ""  # the page, and the id in its address

    async def next_message() -> Message:
        nonlocal here, left
        while True:
            message = await receive()
            try:
                asked = BackMsg.FromString(message.get("bytes") or b"").rerun_script
            except DecodeError:  # Streamlit answers it
                return message
            page = asked.page_script_hash
            place = page, parse_qs(asked.query_string).get("id", [""])[0]
            if asked.fragment_id:
                if here[0] and (page != here[0] or place == left):
                    continue
                here, left = place, nowhere  # the page itself may have changed its address
            elif page and place != here:
                here, left = place, here
            return message

    return next_message


def let_people_go_first() -> None:
    """Have Streamlit take what people do in turn, and ticks for what they are.

    It looks for the next request at whatever a widget's callback asks of `st`, and drops the rest of the callback for it: the widget
    went on showing what a person had chosen, and nothing else knew of it. And of requests that wait together it takes the address and
    the values of the last one: a tick, sent while the page had just put an older value into a widget, undid a click that waited, and
    `st.rerun` led back from a link. Who does something sends a request for it, so that a tick brings no news of any widget.
    """
    look, ask = ScriptRequests.on_scriptrunner_yield, ScriptRequests.request_rerun

    def look_between_callbacks(self: ScriptRequests) -> ScriptRequest | None:
        waits = ThreadState.get().run_location is RunLocation.CALLBACK and self._state is not ScriptRequestType.STOP
        return None if waits else look(self)

    def ask_behind_people(self: ScriptRequests, new_data: RerunData) -> bool:
        if new_data.is_auto_rerun:
            new_data = replace(new_data, widget_states=None)
        if new_data.widget_states is None and self._state is ScriptRequestType.RERUN:
            waiting = self._rerun_data
            new_data = replace(
                new_data,
                query_string=waiting.query_string,
                page_script_hash=waiting.page_script_hash,
                page_name=waiting.page_name,
                is_history_navigation=waiting.is_history_navigation,
            )
        return ask(self, new_data)

    ScriptRequests.on_scriptrunner_yield = look_between_callbacks  # type: ignore[method-assign]  # it has no setting for that
    ScriptRequests.request_rerun = ask_behind_people  # type: ignore[method-assign]  # nor for that
