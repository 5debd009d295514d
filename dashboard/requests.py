"""What a browser asks of a page, and what goes first: a person before a tick, and the page that they see now before the one that they left.

Why each is needed: decisions 0023 and 0051.
"""

from dataclasses import replace
from time import monotonic

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

QUIET = 2.0  # seconds without ticks after what a person did; longer than a busy browser needs to show the answer


def worth_an_answer(receive: Receive) -> Receive:
    """What a browser's WebSocket brings, without what nobody waits for.

    That is what the parts of a page that was left still ask: it was under way already, or a chart came in sight. Streamlit would
    answer in the name of that page, and the browser would empty the new one for good. And the ticks just after a person did
    something: the page is drawn for that anyway, and a tick would bring the values that its widgets had before the answer.
    """
    page, acted = "", -QUIET

    async def next_message() -> Message:
        nonlocal page, acted
        while True:
            message = await receive()
            try:
                whole = BackMsg.FromString(message.get("bytes") or b"")
            except DecodeError:  # Streamlit answers it
                return message
            asked = whole.rerun_script
            left = page and asked.fragment_id and asked.page_script_hash != page
            if left or (asked.is_auto_rerun and monotonic() - acted < QUIET):
                continue
            if not asked.fragment_id:
                page = asked.page_script_hash or page
            if whole.HasField("rerun_script") and not asked.is_auto_rerun:
                acted = monotonic()
            return message

    return next_message


def finish_callbacks() -> None:
    """Have Streamlit carry out a widget's callback to its end before it turns to the next request.

    It looks for one at whatever a callback asks of `st`, and drops the rest of the callback for it: the widget went on showing what a
    person had chosen, and nothing else knew of it.
    """
    look = ScriptRequests.on_scriptrunner_yield

    def look_between_callbacks(self: ScriptRequests) -> ScriptRequest | None:
        waits = ThreadState.get().run_location is RunLocation.CALLBACK and self._state is not ScriptRequestType.STOP
        return None if waits else look(self)

    ScriptRequests.on_scriptrunner_yield = look_between_callbacks  # type: ignore[method-assign]  # Streamlit has no setting for it


def let_people_go_first() -> None:
    """Have Streamlit add to a request of a person that waits what a tick or `st.rerun` wants drawn, and nothing else of theirs.

    Of requests that wait together it takes the address and the values of the last one: a tick that the browser had sent as the page
    just put an older value into a widget undid a click, and `st.rerun` led back from a link.
    """
    ask = ScriptRequests.request_rerun

    def ask_behind_people(self: ScriptRequests, new_data: RerunData) -> bool:
        person = self._rerun_data
        waits = self._state is ScriptRequestType.RERUN and not person.is_auto_rerun
        if waits and (new_data.is_auto_rerun or new_data.widget_states is None):
            new_data = replace(
                new_data,
                widget_states=None,
                query_string=person.query_string,
                page_script_hash=person.page_script_hash,
                page_name=person.page_name,
                is_history_navigation=person.is_history_navigation,
                is_auto_rerun=False,  # the two together are a person's
            )
        return ask(self, new_data)

    ScriptRequests.request_rerun = ask_behind_people  # type: ignore[method-assign]  # Streamlit has no setting for it
