"""Files of a run, passed on from the backend to the browser piece by piece, and pictures of charts.

Streamlit's own download button holds a file in the dashboard's memory; a run's groups may be gigabytes, and so may a model.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from secrets import compare_digest
from typing import Literal, NamedTuple
from urllib.parse import urlencode

import yaml
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.home import load
from backend.contract.trl_script import script_of
from dashboard.components.pictures import TICKET, find, png, svg
from dashboard.downloads.report import gather, report
from dashboard.settings import Settings

What = Literal["report", "groups", "tokens", "metrics", "lines", "configuration", "trl"]
_EARLIER = "This link was made before the dashboard restarted: open the run's page again."
_ALONE = 560  # pixels: the plot of a downloaded picture


class _File(NamedTuple):
    ending: str
    media_type: str
    chunks: Callable[[Client, int, str], Iterator[bytes]]


def _report(client: Client, run_id: int, chosen: str) -> Iterator[bytes]:
    yield report(gather(client, run_id, chosen.split(","))).encode()


def _configuration(client: Client, run_id: int, _: str) -> Iterator[bytes]:
    yield yaml.safe_dump(client.run(run_id).config, sort_keys=False, allow_unicode=True).encode()


def _trl_script(client: Client, run_id: int, _: str) -> Iterator[bytes]:
    yield script_of(client, run_id).encode()


_PARQUET = "application/vnd.apache.parquet"
_FILES: dict[str, _File] = {
    "report": _File(".html", "text/html; charset=utf-8", _report),
    "groups": _File("-groups.parquet", _PARQUET, lambda client, run_id, _: client.export_table(run_id, "groups")),
    "tokens": _File("-tokens.parquet", _PARQUET, lambda client, run_id, _: client.export_table(run_id, "tokens")),
    "metrics": _File("-metrics.parquet", _PARQUET, lambda client, run_id, _: client.export_table(run_id, "metrics")),
    "lines": _File(".jsonl", "application/x-ndjson", lambda client, run_id, _: client.export(run_id)),
    "configuration": _File(".yaml", "application/yaml", _configuration),
    "trl": _File("-trl.py", "text/x-python; charset=utf-8", _trl_script),
}


# kind -> its media type, and what draws it
_PICTURES: dict[str, tuple[str, Callable[..., str | bytes]]] = {
    "png": ("image/png", png),
    "svg": ("image/svg+xml", svg),
}


def address(run_id: int, what: What, **query: str) -> str:
    """Where this dashboard serves the file."""
    path = f"/downloads/{TICKET}/{run_id}/{what}"
    return f"{path}?{urlencode(query)}" if query else path


def model_address(run_id: int, step: int) -> str:
    """Where this dashboard serves the model of a checkpoint."""
    return f"/downloads/{TICKET}/{run_id}/checkpoint/{step}"


def _serve(request: Request) -> Response:
    """The file, as a download."""
    file, run_id = _FILES.get(request.path_params["what"]), request.path_params["run_id"]
    if file is None or not _ours(request):
        return PlainTextResponse(_EARLIER, 404)
    chosen = request.query_params.get("groups", "")
    return _passed_on(lambda client: file.chunks(client, run_id, chosen), f"run-{run_id}{file.ending}", file.media_type)


def _serve_model(request: Request) -> Response:
    """The zip of a checkpoint's model, as a download."""
    if not _ours(request):
        return PlainTextResponse(_EARLIER, 404)
    run_id, step = request.path_params["run_id"], request.path_params["step"]
    return _passed_on(
        lambda client: client.download_checkpoint(run_id, step), f"run-{run_id}-step-{step}.zip", "application/zip"
    )


def _passed_on(chunks: Callable[[Client], Iterator[bytes]], name: str, media_type: str) -> Response:
    """The file under that name, piece by piece. An error before the first piece is answered in plain text."""
    pieces = _pieces(chunks)
    try:
        first = next(pieces, b"")
    except ApiError as refusal:
        return PlainTextResponse(refusal.message, refusal.status)
    except Unreachable:
        return PlainTextResponse("The backend does not answer; try again when it is back.", 503)
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        # Parquet is compressed already, weights do not shrink, and compressing a run's lines would cost a core
        "Content-Encoding": "identity",
        "Cache-Control": "no-store",
    }
    return StreamingResponse(chain([first], pieces), media_type=media_type, headers=headers)


def _pieces(chunks: Callable[[Client], Iterator[bytes]]) -> Iterator[bytes]:
    settings = load(Settings)
    with Client(settings.backend_url, settings.secret()) as client:
        yield from chunks(client)


def _serve_picture(request: Request) -> Response:
    """A picture of the chart as it was drawn last."""
    kind = request.path_params["kind"]
    chart = find(request.path_params["name"])
    if kind not in _PICTURES or chart is None or not _ours(request):
        return PlainTextResponse("This chart is no longer on a page: draw it again.", 404)
    media_type, draw = _PICTURES[kind]
    headers = {"Content-Disposition": f'attachment; filename="{chart.file}.{kind}"', "Cache-Control": "no-store"}
    return Response(draw(chart.figure, width=_ALONE, title=chart.title), media_type=media_type, headers=headers)


def _ours(request: Request) -> bool:
    return compare_digest(request.path_params["ticket"].encode(), TICKET.encode())


ROUTES = [
    Route("/downloads/{ticket}/{run_id:int}/{what}", _serve, methods=["GET"]),
    Route("/downloads/{ticket}/{run_id:int}/checkpoint/{step:int}", _serve_model, methods=["GET"]),
    Route("/downloads/{ticket}/chart/{name}.{kind}", _serve_picture, methods=["GET"]),
]
