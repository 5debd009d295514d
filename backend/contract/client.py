"""The typed HTTP client: one method for each route. The dashboard, the worker and the command line use nothing else."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter

from backend.contract import protocol as p
from backend.contract import records as r
from backend.contract.base import Json
from backend.contract.catalog import Catalog
from backend.contract.groups import Group, GroupSummary, StepSummary, TokenTrace
from backend.contract.preflight import Preflight

M = TypeVar("M", bound=BaseModel)
Query = Mapping[str, str | int | float | None]


class ApiError(Exception):
    """The backend refused: `code` for programs, the message for people, `details` as it sent them."""

    def __init__(self, status: int, code: str, message: str, details: Json = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.details = status, code, message, details


class Unreachable(Exception):
    """The backend did not answer: it is down, restarting, or the address is wrong."""


class Client:
    """Speaks to one backend. Thread-safe; close it, or use it as a context manager.

    Raises ApiError where the backend refuses and Unreachable where it does not answer.
    """

    def __init__(self, base_url: str, token: str, *, timeout: float = 30.0) -> None:
        self._http = httpx.Client(
            base_url=base_url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout,
            follow_redirects=False,
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # ---- plumbing

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: BaseModel | Json = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        params = {key: value for key, value in (query or {}).items() if value is not None}
        sent = dict(headers or {})
        if content is None and body is not None:
            content = (
                body.model_dump_json().encode() if isinstance(body, BaseModel) else TypeAdapter(Json).dump_json(body)
            )
            sent["Content-Type"] = "application/json"
        try:
            response = self._http.request(method, path, params=params, content=content, headers=sent)
        except httpx.TransportError as error:
            raise Unreachable(f"the backend at {self._http.base_url} does not answer: {error}") from error
        if response.is_success:
            return response
        raise _refusal(response)

    def _get(self, model: type[M], path: str, query: Query | None = None) -> M:
        return model.model_validate_json(self._send("GET", path, query=query).content)

    def _post(self, model: type[M], path: str, body: BaseModel | Json = None, **headers: str) -> M:
        return model.model_validate_json(self._send("POST", path, body=body, headers=headers).content)

    # ---- people's side

    def healthy(self) -> bool:
        """Whether the backend answers."""
        try:
            return self._send("GET", "/healthz").is_success
        except (Unreachable, ApiError):
            return False

    def catalog(self) -> Catalog:
        """Recipes, models and the JSON Schemas."""
        return self._get(Catalog, "/api/v1/catalog")

    def preflight(self, config: Mapping[str, Json]) -> Preflight:
        """What a configuration would do; also for one that is wrong: the messages say what to mend."""
        return self._post(Preflight, "/api/v1/runs/preflight", {"config": dict(config)})

    def create_run(
        self,
        config: Mapping[str, Json],
        *,
        name: str | None = None,
        tags: Iterable[str] = (),
        notes: str = "",
        priority: int = 0,
        parent_id: int | None = None,
        idempotency_key: str | None = None,
    ) -> r.Run:
        """Store and queue a run."""
        body: dict[str, Json] = {
            "config": dict(config),
            "name": name,
            "tags": list(tags),
            "notes": notes,
            "priority": priority,
            "parent_id": parent_id,
        }
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._post(r.Run, "/api/v1/runs", body, **headers)

    def runs(
        self,
        *,
        status: str | None = None,
        kind: str | None = "training",
        tag: str | None = None,
        recipe: str | None = None,
        model: str | None = None,
        search: str | None = None,
        sweep: int | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> r.Page[r.Run]:
        """Runs, newest first; `training` is every kind but samples, `kind=None` lists those too.

        `recipe` and `model` (its source) are the configuration's.
        """
        query = {
            "status": status,
            "kind": kind,
            "tag": tag,
            "recipe": recipe,
            "model": model,
            "search": search,
            "sweep": sweep,
            "limit": limit,
            "cursor": cursor,
        }
        return self._get(r.Page[r.Run], "/api/v1/runs", query)

    def run(self, run_id: int) -> r.Run:
        """One run."""
        return self._get(r.Run, f"/api/v1/runs/{run_id}")

    def update_run(self, run_id: int, update: r.RunUpdate) -> r.Run:
        """Change name, tags, notes or priority."""
        response = self._send("PATCH", f"/api/v1/runs/{run_id}", body=update.model_dump(exclude_unset=True))
        return r.Run.model_validate_json(response.content)

    def delete_run(self, run_id: int) -> None:
        """Delete a run that is not running, with all its records."""
        self._send("DELETE", f"/api/v1/runs/{run_id}")

    def command(self, run_id: int, verb: str) -> r.Run:
        """Pause, resume, stop or retry a run."""
        return self._post(r.Run, f"/api/v1/runs/{run_id}/{verb}")

    def clone_run(self, run_id: int, overrides: Mapping[str, Json], name: str | None = None) -> r.Run:
        """Queue a copy with some fields changed, by dotted path."""
        return self._post(r.Run, f"/api/v1/runs/{run_id}/clone", {"overrides": dict(overrides), "name": name})

    def create_sweep(
        self, name: str, runs: Iterable[Mapping[str, Json]], *, idempotency_key: str | None = None
    ) -> r.Sweep:
        """Queue several runs, all or none; each is the body of a RunCreate."""
        body: dict[str, Json] = {"name": name, "runs": [dict(run) for run in runs]}
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._post(r.Sweep, "/api/v1/sweeps", body, **headers)

    def sweeps(self, *, limit: int = 50, cursor: str | None = None) -> r.Page[r.SweepSummary]:
        """Sweeps, newest first."""
        return self._get(r.Page[r.SweepSummary], "/api/v1/sweeps", {"limit": limit, "cursor": cursor})

    def sweep(self, sweep_id: int) -> r.Sweep:
        """One sweep with its runs."""
        return self._get(r.Sweep, f"/api/v1/sweeps/{sweep_id}")

    def stop_sweep(self, sweep_id: int) -> r.Sweep:
        """Stop every run of it that has not ended."""
        return self._post(r.Sweep, f"/api/v1/sweeps/{sweep_id}/stop")

    def metrics(
        self,
        run_id: int,
        *,
        names: Iterable[str] = (),
        after_step: int | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int | None = None,
    ) -> r.Metrics:
        """Live series of a run; all of them where no name is given."""
        query = {
            "names": ",".join(names) or None,
            "after_step": after_step,
            "from_step": from_step,
            "to_step": to_step,
            "max_points": max_points,
        }
        return self._get(r.Metrics, f"/api/v1/runs/{run_id}/metrics", query)

    def compare_metrics(
        self, run_ids: Iterable[int], names: Iterable[str], *, max_points: int | None = None
    ) -> list[r.Metrics]:
        """The same series of several runs."""
        query = {"runs": ",".join(map(str, run_ids)), "names": ",".join(names) or None, "max_points": max_points}
        content = self._send("GET", "/api/v1/metrics", query=query).content
        return TypeAdapter(r.Page[r.Metrics]).validate_json(content).items

    def steps(self, run_id: int, *, after_step: int | None = None) -> list[StepSummary]:
        """The steps that have groups, and the states of those."""
        query = {"after_step": after_step}
        content = self._send("GET", f"/api/v1/runs/{run_id}/steps", query=query).content
        return TypeAdapter(r.Page[StepSummary]).validate_json(content).items

    def groups(
        self,
        run_id: int,
        *,
        step: int | None = None,
        prompt_id: str | None = None,
        state: str | None = None,
        search: str | None = None,
        sort: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> r.Page[GroupSummary]:
        """Groups of a run; sort is index, reward_mean, reward_std or step, with a leading minus for descending."""
        query = {
            "step": step,
            "prompt_id": prompt_id,
            "state": state,
            "search": search,
            "sort": sort,
            "limit": limit,
            "cursor": cursor,
        }
        return self._get(r.Page[GroupSummary], f"/api/v1/runs/{run_id}/groups", query)

    def group(self, group_id: int) -> Group:
        """A group with its completions."""
        return self._get(Group, f"/api/v1/groups/{group_id}")

    def tokens(self, completion_id: int) -> TokenTrace:
        """The token trace of a completion; ApiError `not_found` where none was kept."""
        return self._get(TokenTrace, f"/api/v1/completions/{completion_id}/tokens")

    def logs(self, run_id: int, *, after_id: int | None = None, limit: int = 500) -> r.Page[r.LogRecord]:
        """Log lines, oldest first."""
        return self._get(r.Page[r.LogRecord], f"/api/v1/runs/{run_id}/logs", {"after_id": after_id, "limit": limit})

    def checkpoints(self, run_id: int) -> list[r.Checkpoint]:
        """Checkpoints of the live history, by step."""
        return self._get(r.Page[r.Checkpoint], f"/api/v1/runs/{run_id}/checkpoints").items

    def download_checkpoint(self, run_id: int, step: int) -> bytes:
        """A zip of the model directory that `from_pretrained` opens, where the backend reaches the store."""
        return self._send("GET", f"/api/v1/runs/{run_id}/checkpoints/{step}/model.zip").content

    def export(self, run_id: int) -> Iterator[bytes]:
        """The whole run as JSON lines, in chunks as they arrive."""
        path = f"/api/v1/runs/{run_id}/export"
        try:
            with self._http.stream("GET", path) as response:
                if not response.is_success:
                    response.read()
                    raise _refusal(response)
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise Unreachable(f"the backend at {self._http.base_url} broke off: {error}") from error

    def upload(self, name: str, content: bytes) -> r.Upload:
        """Store a JSONL file; each line must be an object."""
        response = self._send(
            "POST",
            "/api/v1/uploads",
            query={"name": name},
            content=content,
            headers={"Content-Type": "application/x-ndjson"},
        )
        return r.Upload.model_validate_json(response.content)

    def uploads(self) -> list[r.Upload]:
        """All uploads, newest first."""
        return self._get(r.Page[r.Upload], "/api/v1/uploads", {"limit": 200}).items

    def preview_upload(self, upload_id: int) -> r.UploadPreview:
        """The first rows of an upload."""
        return self._get(r.UploadPreview, f"/api/v1/uploads/{upload_id}")

    def upload_content(self, upload_id: int) -> bytes:
        """The file as it was uploaded."""
        return self._send("GET", f"/api/v1/uploads/{upload_id}/content").content

    def delete_upload(self, upload_id: int) -> None:
        """Delete an upload that no waiting run needs."""
        self._send("DELETE", f"/api/v1/uploads/{upload_id}")

    def workers(self) -> list[r.Worker]:
        """Every worker seen in the last day."""
        return self._get(r.Page[r.Worker], "/api/v1/workers").items

    # ---- the worker's side

    def claim(self, request: p.ClaimRequest) -> p.Claim | None:
        """Ask for a run; None when nothing waits."""
        return self._post(p.ClaimReply, "/api/v1/worker/claim", request).claim

    def start(self, run_id: int, start: p.Start) -> p.Accepted:
        """Say where the attempt begins."""
        return self._post(p.Accepted, f"/api/v1/worker/runs/{run_id}/start", start)

    def heartbeat(self, run_id: int, beat: p.Heartbeat) -> p.HeartbeatReply:
        """Renew the lease; learn what was asked for."""
        return self._post(p.HeartbeatReply, f"/api/v1/worker/runs/{run_id}/heartbeat", beat)

    def report(self, run_id: int, report: p.Report) -> p.Accepted:
        """Deliver one report."""
        return self._post(p.Accepted, f"/api/v1/worker/runs/{run_id}/report", report)

    def checkpoint(self, run_id: int, checkpoint: p.CheckpointReport) -> p.Accepted:
        """Register a checkpoint."""
        return self._post(p.Accepted, f"/api/v1/worker/runs/{run_id}/checkpoint", checkpoint)

    def finish(self, run_id: int, finish: p.Finish) -> p.Accepted:
        """End the attempt as finished, stopped, paused or released."""
        return self._post(p.Accepted, f"/api/v1/worker/runs/{run_id}/finish", finish)

    def fail(self, run_id: int, fail: p.Fail) -> p.Accepted:
        """End the attempt as failed."""
        return self._post(p.Accepted, f"/api/v1/worker/runs/{run_id}/fail", fail)


def _refusal(response: httpx.Response) -> ApiError:
    """The error shape of every route; a proxy's page or an empty body becomes one too."""
    try:
        error = response.json()["error"]
        return ApiError(response.status_code, error["code"], error["message"], error.get("details"))
    except (ValueError, KeyError, TypeError):
        return ApiError(
            response.status_code, "unexpected_answer", f"HTTP {response.status_code} from {response.url.path}"
        )
