"""The typed client and the routes are two sides of one thing: each method has its route, each route its method."""

import inspect
import io
import re
from collections.abc import Callable, Mapping

import uvicorn
from fastapi.routing import APIRoute
from recorded import THEIRS
from serving import Backend

from backend.app import ROUTERS
from backend.contract import protocol as p
from backend.contract import queries as q
from backend.contract import records as r
from backend.contract.client import ApiError, Client
from backend.contract.people import PeopleClient
from backend.contract.survey import SurveyQuery
from backend.contract.transport import IDLE_SECONDS

DIGEST = "0" * 64
WORKER = p.WorkerInfo(name="one", device="cpu", store="/store")
# How each method is called; what the backend then thinks of it (that there is no run 1, say) does not matter here.
CALLS: Mapping[str, Callable[[Client], object]] = {
    "healthy": lambda c: c.healthy(),
    "catalog": lambda c: c.catalog(),
    "preflight": lambda c: c.preflight({}),
    "models": lambda c: c.models({}),
    "create_run": lambda c: c.create_run({"kind": "grpo"}),
    "runs": lambda c: c.runs(),
    "run": lambda c: c.run(1),
    "update_run": lambda c: c.update_run(1, r.RunUpdate(name="x")),
    "command": lambda c: [c.command(1, verb) for verb in ("pause", "resume", "stop")],
    "retry_with_changed_rewards": lambda c: c.retry_with_changed_rewards(1),
    "rewards": lambda c: c.rewards(1),
    "clone_run": lambda c: c.clone_run(1, {}),
    "create_sweep": lambda c: c.create_sweep("x", [{"config": {"kind": "grpo"}}]),
    "sweeps": lambda c: c.sweeps(),
    "sweep": lambda c: c.sweep(1),
    "stop_sweep": lambda c: c.stop_sweep(1),
    "metrics": lambda c: c.metrics(1),
    "compare_metrics": lambda c: c.compare_metrics(runs=[1], names=["reward"]),
    "steps": lambda c: c.steps(1),
    "groups": lambda c: c.groups(1),
    "group": lambda c: c.group(1),
    "all_groups": lambda c: c.all_groups(1),
    "tokens": lambda c: c.tokens(1),
    "logs": lambda c: c.logs(1),
    "checkpoints": lambda c: c.checkpoints(1),
    "download_checkpoint": lambda c: list(c.download_checkpoint(1, 1)),
    "export": lambda c: list(c.export(1)),
    "export_table": lambda c: [list(c.export_table(1, "groups")), list(c.export_table(1, "metrics"))],
    "groups_of_prompt": lambda c: c.groups_of_prompt(prompt_id="x", runs=[1]),
    "lineage": lambda c: c.lineage(runs=[1]),
    "difference": lambda c: c.difference(1, 2),
    "fork_run": lambda c: c.fork_run(1, 5),
    "common_prompts": lambda c: c.common_prompts(runs=[1]),
    "pairs": lambda c: c.pairs(1),
    "prompts": lambda c: c.prompts(1),
    "completions": lambda c: c.completions(1),
    "step_scores": lambda c: c.step_scores(1, 0),
    "step_groups": lambda c: c.step_groups(1, 0),
    "step_metrics": lambda c: c.step_metrics(1, 0),
    "replay_outlook": lambda c: c.replay_outlook(1, 0),
    "replay": lambda c: c.replay(1, 0),
    "replayed": lambda c: c.replayed(1),
    "distribution": lambda c: c.distribution(1, value="reward"),
    "properties": lambda c: c.properties(1),
    "health": lambda c: c.health(1),
    "ranks": lambda c: c.ranks(1),
    "upload": lambda c: c.upload("x.jsonl", b"{}\n"),
    "upload_progress": lambda c: c.upload_progress("key"),
    "join_uploads": lambda c: c.join_uploads("x", [1, 2]),
    "upload_files": lambda c: c.upload_files([(name, io.BytesIO(b"{}\n")) for name in "ab"]),
    "survey_upload": lambda c: c.survey_upload(1, SurveyQuery()),
    "split_upload": lambda c: c.split_upload(1, q.SplitQuery(prompt_column="prompt", held_out=0.1)),
    "keep_rows": lambda c: c.keep_rows("x", {"kind": "dataset", "source": "upload:1"}, ["one"]),
    "uploads": lambda c: c.uploads(),
    "preview_upload": lambda c: c.preview_upload(1),
    "upload_content": lambda c: c.upload_content(1),
    "delete_upload": lambda c: c.delete_upload(1),
    "workers": lambda c: c.workers(),
    "worker_use": lambda c: c.worker_use(),
    "ask": lambda c: c.ask(p.ClaimRequest(worker=WORKER)),
    "looked": lambda c: c.looked(p.LookFound(key="a", look=p.PromptsLook())),
    "record": lambda c: c.record(THEIRS.model_copy(update={"run_id": 1})),
    "start": lambda c: c.start(1, p.Start(attempt=1, from_step=0, device="cpu")),
    "heartbeat": lambda c: c.heartbeat(1, p.Heartbeat(attempt=1, worker="one")),
    "report": lambda c: c.report(1, p.Report(attempt=1, seq=0)),
    "reports": lambda c: c.reports(1, p.Reports(attempt=1, reports=[p.Report(attempt=1, seq=0)])),
    "checkpoint": lambda c: c.checkpoint(
        1, p.CheckpointReport(attempt=1, step=1, store="/store", path="1", sha256=DIGEST, size_bytes=0)
    ),
    "finish": lambda c: c.finish(1, p.Finish(attempt=1, outcome="finished")),
    "fail": lambda c: c.fail(1, p.Fail(attempt=1, error=r.RunError(code="x", message="x"))),
    "retry": lambda c: c.command(1, "retry"),
    "deletions": lambda c: c.deletions(),
    "delete_run": lambda c: c.delete_run(1),
}
PEOPLE: Mapping[str, Callable[[PeopleClient], object]] = {
    "bookmark": lambda c: c.bookmark(1, "note"),
    "remove_bookmark": lambda c: c.remove_bookmark(1),
    "thumb": lambda c: c.thumb(1, "up"),
    "choose": lambda c: c.choose(1, better=1, worse=2),
    "choices": lambda c: c.choices(1),
    "remove_choice": lambda c: c.remove_choice(1),
    "agreement": lambda c: c.agreement(1),
    "preferences": lambda c: list(c.preferences(1)),
    "keep_preferences": lambda c: c.keep_preferences(1),
}
STREAMED = {"GET /api/v1/runs/{run_id}/events"}  # for browsers and other readers of event streams


# Every route, as "GET /api/v1/runs".
ROUTES = {
    f"{method} {route.path}"
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in route.methods
}


def _methods(side: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(side, inspect.isfunction) if not name.startswith("_")}


def test_every_method_reaches_a_route_and_every_route_is_reached(backend: Backend) -> None:
    assert _methods(Client) == (CALLS.keys() | {"close"}) - {"retry"}
    assert _methods(PeopleClient) == PEOPLE.keys()
    asked: list[str] = []
    hooks = backend.client._to._http.event_hooks["request"]
    hooks.append(lambda request: asked.append(f"{request.method} {request.url.path}"))
    calls = [(name, backend.client.people, call) for name, call in PEOPLE.items()]
    refusals: dict[str, str] = {}
    for name, side, call in [*calls, *((name, backend.client, call) for name, call in CALLS.items())]:
        try:
            call(side)
        except ApiError as refusal:
            refusals[name] = refusal.message
    assert [name for name, message in refusals.items() if "no route" in message] == []
    missed = {
        route for route in ROUTES if not any(re.fullmatch(re.sub(r"{\w+}", r"\\d+", route), one) for one in asked)
    }
    assert missed == STREAMED


def test_the_client_gives_an_idle_connection_up_seconds_before_the_backend_does(backend: Backend) -> None:
    """With both at five seconds, a request now and then met the closing door: the backend did not answer, it was said."""
    pool = backend.client._to._http._transport._pool  # type: ignore[attr-defined]
    assert pool._keepalive_expiry == IDLE_SECONDS
    assert inspect.signature(uvicorn.Config).parameters["timeout_keep_alive"].default >= IDLE_SECONDS + 2
