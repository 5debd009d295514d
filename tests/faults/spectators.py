"""Browsers at the dashboard without their windows: they speak Streamlit's protocol over its WebSocket, as its own page does.

Each opens an address, asks for its parts at the beat that the page sets, and keeps what came: the steps that it showed, how many
charts, and whatever went wrong. A browser also draws, and sends the places of its widgets; these do neither.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from streamlit.proto.Alert_pb2 import Alert
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Element_pb2 import Element
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

LATE = 60.0  # seconds for which they stay on a machine that has other work, until their page has followed
KEPT = 2  # runs of a page that a message outlives in the browser's store, unless it is used


@dataclass
class Seen:
    """What one of them saw."""

    steps: dict[int, float] = field(default_factory=dict)  # done, by the page's head -> when it first said so
    charts: list[float] = field(default_factory=list)  # when each came
    pages: int = 0  # drawn whole
    parts: int = 0
    broken_off: int = 0  # to be drawn again at once
    bytes: int = 0
    wrong: list[str] = field(default_factory=list)


class Spectator:
    """One session on one page."""

    def __init__(self, url: str, page: str, query: str) -> None:
        self._url, self._page, self._query = url, page, query
        self._script = ""
        self._beats: dict[str, asyncio.Task[None]] = {}
        self._kept: dict[str, tuple[int, bool, str]] = {}  # of large messages: hash -> run, part, kind
        self._runs = 0
        self._of_parts = False  # whether what comes now belongs to parts of the page
        self.seen = Seen()

    async def watch(self, until: float, after: int) -> Seen:
        """Open the page, and stay until then and until the page has shown a step after this one."""
        address = self._url.replace("http", "ws", 1) + "/_stcore/stream"
        try:
            async with connect(address, origin=self._url, subprotocols=["streamlit"], max_size=None) as connection:  # type: ignore[arg-type,list-item]
                await self._ask(connection)
                with suppress(TimeoutError):
                    async with asyncio.timeout(until + LATE - time.monotonic()):
                        async for content in connection:
                            self._take(connection, bytes(content))  # type: ignore[arg-type]
                            if time.monotonic() > until and max(self.seen.steps, default=0) > after:
                                return self.seen
                        self.seen.wrong.append("the dashboard closed the connection")
        except (OSError, ConnectionClosed) as error:
            self.seen.wrong.append(f"connection: {error!r}")
        finally:
            self._stop_beats(list(self._beats))
        return self.seen

    async def _ask(self, connection: ClientConnection, part: str = "") -> None:
        message = BackMsg()
        state = message.rerun_script
        state.query_string = self._query
        state.page_script_hash = self._script
        state.page_name = "" if self._script else self._page
        state.fragment_id, state.is_auto_rerun = part, bool(part)
        state.cached_message_hashes.extend(self._kept)
        state.context_info.url = f"{self._url}/{self._page}?{self._query}"
        state.context_info.timezone, state.context_info.locale = "UTC", "en"
        await connection.send(message.SerializeToString())

    def _take(self, connection: ClientConnection, content: bytes) -> None:
        self.seen.bytes += len(content)
        message = ForwardMsg.FromString(content)
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self._of_parts = bool(message.metadata.run.fragment_ids)
            if not self._of_parts:
                self._script = message.new_session.page_script_hash
                self._stop_beats(list(self._beats))
        elif kind == "navigation":
            self._script = message.navigation.page_script_hash
        elif kind == "auto_rerun":
            part, pause = message.auto_rerun.fragment_id, message.auto_rerun.interval
            if part not in self._beats:
                self._beats[part] = asyncio.create_task(self._beat(connection, part, pause))
        elif kind == "stop_auto_rerun":
            self._stop_beats(message.stop_auto_rerun.fragment_ids)
        elif kind == "script_finished":
            self._finished(message.script_finished)
        elif kind == "ref_hash":
            if message.ref_hash not in self._kept:
                self.seen.wrong.append("a message was left out that this browser did not have")
            elif self._kept[message.ref_hash][2] == "vega_lite_chart":
                self.seen.charts.append(time.monotonic())
        elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
            self._show(message.delta.new_element)
            if message.metadata.cacheable:
                part_of_page = self._of_parts, str(message.delta.new_element.WhichOneof("type"))
                self._kept[message.hash] = (self._runs, *part_of_page)
        elif kind == "page_not_found":
            self.seen.wrong.append("the page was not found")

    async def _beat(self, connection: ClientConnection, part: str, pause: float) -> None:
        with suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(pause)
                await self._ask(connection, part)

    def _stop_beats(self, parts: Iterable[str]) -> None:
        for part in parts:
            if part in self._beats:
                self._beats.pop(part).cancel()

    def _finished(self, how: int) -> None:
        if how == ForwardMsg.FINISHED_EARLY_FOR_RERUN:
            self.seen.broken_off += 1
            return
        if how == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
            self.seen.wrong.append("the page's script does not compile")
        self._runs += 1
        if self._of_parts:
            self.seen.parts += 1
        else:
            self.seen.pages += 1
            self._kept = {name: one for name, one in self._kept.items() if self._runs - one[0] <= KEPT}

    def _show(self, element: Element) -> None:
        kind = element.WhichOneof("type")
        if kind == "exception":
            self.seen.wrong.append(f"{element.exception.type}: {element.exception.message}")
        elif kind == "alert" and element.alert.format == Alert.ERROR:
            self.seen.wrong.append(element.alert.body)
        elif kind == "vega_lite_chart":
            self.seen.charts.append(time.monotonic())
        elif kind == "metric" and element.metric.label == "Steps done":
            self.seen.steps.setdefault(int(element.metric.body.split()[0].replace(",", "")), time.monotonic())


def watch(url: str, page: str, query: str, number: int, arriving: float, until: float, after: int) -> list[Seen]:
    """That number of them, who come one after the other within `arriving` seconds and stay as `Spectator.watch` says."""

    async def come(place: int) -> Seen:
        await asyncio.sleep(arriving * place / number)
        return await Spectator(url, page, query).watch(until, after)

    async def crowd() -> list[Seen]:
        return list(await asyncio.gather(*(come(place) for place in range(number))))

    return asyncio.run(crowd())
