"""The typed HTTP client: one method for each route. The dashboard, the worker and the command line use nothing else."""

import io
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Concatenate, Literal, ParamSpec, TypeVar

from pydantic import BaseModel, ValidationError

from backend.contract import protocol as p
from backend.contract import queries as q
from backend.contract import records as r
from backend.contract.base import Json
from backend.contract.catalog import Catalog
from backend.contract.groups import Group, GroupSummary, StepSummary, TokenTrace
from backend.contract.health import Health
from backend.contract.inspection import (
    CommonPrompt,
    CompletionHit,
    Difference,
    Distribution,
    Lineage,
    PromptSummary,
    StepScores,
)
from backend.contract.model_choice import Models
from backend.contract.pairs import PairRecord
from backend.contract.people import PeopleClient
from backend.contract.preflight import Preflight
from backend.contract.properties import PaidFor
from backend.contract.replay import ReplayCreate, Replayed, ReplayOutlook
from backend.contract.survey import Survey, SurveyQuery
from backend.contract.task import LONGEST_NAME
from backend.contract.transport import ApiError, M, Transport, Unreachable

__all__ = ["ApiError", "Client", "Unreachable"]

UPLOAD_CHUNK = 2**20
UPLOAD_SECONDS = 3600.0
P = ParamSpec("P")
Message = TypeVar("Message", p.Start, p.Heartbeat, p.Report, p.CheckpointReport, p.Finish, p.Fail)


def _checked(query: Callable[P, BaseModel], *args: P.args, **filters: P.kwargs) -> BaseModel:
    """The query, refused here as the backend would refuse it. Raises ApiError."""
    try:
        return query(*args, **filters)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)]
        raise ApiError(422, "invalid", "; ".join(wrong)) from None


def _list(path: str, answer: type[M], query: Callable[P, BaseModel]) -> Callable[Concatenate["Client", P], M]:
    """A method that asks for a list; its keywords are the query's fields."""

    def ask(self: "Client", /, *args: P.args, **filters: P.kwargs) -> M:
        return self._to.get(answer, path, _checked(query, *args, **filters))

    return ask


def _list_of_run(
    what: str, answer: type[M], query: Callable[P, BaseModel]
) -> Callable[Concatenate["Client", int, P], M]:
    """The same for a list of one run, whose number comes first."""

    def ask(self: "Client", run_id: int, /, *args: P.args, **filters: P.kwargs) -> M:
        return self._to.get(answer, f"/api/v1/runs/{run_id}/{what}", _checked(query, *args, **filters))

    return ask


def _one(path: str, answer: type[M]) -> Callable[["Client", int], M]:
    """A method that asks for the thing with a number, which has its place in the path."""
    return lambda self, number: self._to.get(answer, f"/api/v1/{path.format(number)}")


def _message(verb: str, _kind: type[Message], answer: type[M]) -> Callable[["Client", int, Message], M]:
    """A method that sends a worker's message of this kind about a run, with the secret of the claim."""

    def send(self: "Client", run_id: int, message: Message) -> M:
        path = f"/api/v1/worker/runs/{run_id}/{verb}"
        return self._to.post(answer, path, message, **self._headers(run_id, message.attempt))

    return send


def _weighed(config: Mapping[str, Json], config_json: Mapping[str, Json] | None) -> dict[str, Json]:
    """A configuration to be weighed, with its model's config.json if that was given."""
    given: dict[str, Json] = {} if config_json is None else {"config_json": dict(config_json)}
    return {"config": dict(config), **given}


@contextmanager
def _about(file: str) -> Iterator[None]:
    """Puts the name of a file before a refusal."""
    try:
        yield
    except ApiError as refusal:
        raise ApiError(refusal.status, refusal.code, f"{file}: {refusal.message}", refusal.details) from None


_SHARD, _WITHOUT_ROWS = (
    re.compile(r".+-of-(\d{5})\.arrow"),
    re.compile(r"state\.json|dataset_info\.json|cache-.+\.arrow"),
)
NamedFile = tuple[str, Path | BinaryIO]


class Client:
    """Speaks to one backend. Thread-safe; close it, or use it as a context manager.

    Raises ApiError if the backend refuses and Unreachable if it does not answer. The keywords of each list are the fields of
    its query in `queries.py`.
    """

    def __init__(self, base_url: str, token: str, *, timeout: float = 30.0) -> None:
        self._to = Transport(base_url, token, timeout=timeout)
        self.people = PeopleClient(self._to)
        # of the claims that it made, by run and attempt; each request about a run carries its own
        self.secrets: dict[tuple[int, int], str] = {}
        # by run and attempt: how it ended is known, and waits behind its reports
        self.ending: set[tuple[int, int]] = set()
        self._unanswered: dict[str, str] = {}  # keys of claims, by worker, until an answer comes

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._to.close()

    # ---- people's side

    def healthy(self) -> bool:
        """Whether the backend answers."""
        try:
            return self._to.send("GET", "/healthz").is_success
        except (Unreachable, ApiError):
            return False

    def preflight(
        self,
        config: Mapping[str, Json],
        config_json: Mapping[str, Json] | None = None,
        *,
        parent_id: int | None = None,
        fork_at: int | None = None,
    ) -> Preflight:
        """What a configuration would do; also for a wrong one: the messages say what to correct.

        `config_json` is the content of its model's config.json, for a model that is not known there. With `fork_at` it is to go on from
        that step of the parent.
        """
        body = _weighed(config, config_json) | {"parent_id": parent_id, "fork_at": fork_at}
        return self._to.post(Preflight, "/api/v1/runs/preflight", body)

    def models(self, config: Mapping[str, Json], config_json: Mapping[str, Json] | None = None) -> Models:
        """The models that a run of a configuration can begin with, each weighed with its settings, and settings to start with."""
        return self._to.post(Models, "/api/v1/models", _weighed(config, config_json))

    def create_run(
        self,
        config: Mapping[str, Json],
        *,
        name: str | None = None,
        tags: Iterable[str] = (),
        notes: str = "",
        priority: int = 0,
        parent_id: int | None = None,
        fork_at: int | None = None,
        idempotency_key: str | None = None,
    ) -> r.Run:
        """Store and queue a run; with `fork_at` one that goes on from the parent's state after that step."""
        body: dict[str, Json] = {
            "config": dict(config),
            "name": name,
            "tags": list(tags),
            "notes": notes,
            "priority": priority,
            "parent_id": parent_id,
            "fork_at": fork_at,
        }
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._to.post(r.Run, "/api/v1/runs", body, **headers)

    def fork_run(self, run_id: int, step: int, overrides: Mapping[str, Json] = {}, name: str | None = None) -> r.Run:
        """Queue a run that goes on from a run's state after a step, with some fields (by dotted paths) changed."""
        body: dict[str, Json] = {"step": step, "overrides": dict(overrides), "name": name}
        return self._to.post(r.Run, f"/api/v1/runs/{run_id}/fork", body)

    runs = _list("/api/v1/runs", r.Page[r.Run], q.RunQuery)
    sweeps = _list("/api/v1/sweeps", r.Page[r.SweepSummary], q.PageQuery)
    groups_of_prompt = _list("/api/v1/groups", r.Page[GroupSummary], q.PromptGroupQuery)
    compare_metrics = _list("/api/v1/metrics", r.Page[r.Metrics], q.ComparedMetricQuery)
    common_prompts = _list("/api/v1/prompts", r.Page[CommonPrompt], q.CommonPromptQuery)
    groups = _list_of_run("groups", r.Page[GroupSummary], q.GroupQuery)
    pairs = _list_of_run("pairs", r.Page[PairRecord], q.PairQuery)
    prompts = _list_of_run("prompts", r.Page[PromptSummary], q.PromptQuery)
    completions = _list_of_run("completions", r.Page[CompletionHit], q.CompletionQuery)
    metrics = _list_of_run("metrics", r.Metrics, q.MetricQuery)
    distribution = _list_of_run("distribution", Distribution, q.DistributionQuery)
    properties = _list_of_run("properties", PaidFor, q.PropertyQuery)
    logs = _list_of_run("logs", r.Page[r.LogRecord], q.LogQuery)

    run = _one("runs/{}", r.Run)
    """A run as it is now."""
    sweep = _one("sweeps/{}", r.Sweep)
    """A sweep with its runs."""
    ranks = _one("runs/{}/ranks", r.Ranks)
    """The processes that train a run now; none unless there are several."""
    health = _one("runs/{}/health", Health)
    """What looks unusual in a run (`items`, empty if nothing does), and every rule that was checked."""
    lineage = _list("/api/v1/lineage", r.Page[Lineage], q.LineageQuery)
    group = _one("groups/{}", Group)
    """A group with its completions."""
    tokens = _one("completions/{}/tokens", TokenTrace)
    """The token trace of a completion; ApiError `not_found` if none was kept."""
    replayed = _one("runs/{}/replayed", Replayed)
    """What a replay found of its step; ApiError `not_found` before it has."""
    preview_upload = _one("uploads/{}", r.UploadPreview)
    """The first rows of an upload."""

    def difference(self, run_id: int, other_id: int) -> Difference:
        """From where on two runs differ."""
        return self._to.get(Difference, f"/api/v1/runs/{run_id}/difference/{other_id}")

    def catalog(self) -> Catalog:
        """Recipes, models and the JSON Schemas."""
        return self._to.get(Catalog, "/api/v1/catalog")

    def update_run(self, run_id: int, update: r.RunUpdate) -> r.Run:
        """Change name, tags, notes or priority."""
        response = self._to.send("PATCH", f"/api/v1/runs/{run_id}", body=update.model_dump(exclude_unset=True))
        return r.Run.model_validate_json(response.content)

    def delete_run(self, run_id: int, *, keep_trunk: bool = False) -> None:
        """Delete a run that is not running: it is gone at once, its records and files a little later, or, to keep the trunk of its
        forks, once these are deleted."""
        self._to.send("DELETE", f"/api/v1/runs/{run_id}", query=q.DeleteQuery(keep_trunk=keep_trunk))

    def deletions(self) -> list[r.Deletion]:
        """Deleted runs whose rows are still being removed."""
        return self._to.get(r.Page[r.Deletion], "/api/v1/runs/deletions").items

    def command(self, run_id: int, verb: str) -> r.Run:
        """Pause, resume, stop or retry a run."""
        return self._to.post(r.Run, f"/api/v1/runs/{run_id}/{verb}")

    def retry_with_changed_rewards(self, run_id: int) -> r.Run:
        """Retry a run although files of rewards differ from those that scored it so far."""
        query = q.RetryQuery(with_changed_rewards=True)
        return r.Run.model_validate_json(self._to.send("POST", f"/api/v1/runs/{run_id}/retry", query=query).content)

    def rewards(self, run_id: int) -> list[r.RewardVersion]:
        """The person's own files that scored a run, with their texts, the newest attempt first."""
        return self._to.get(r.Page[r.RewardVersion], f"/api/v1/runs/{run_id}/rewards").items

    def clone_run(self, run_id: int, overrides: Mapping[str, Json], name: str | None = None) -> r.Run:
        """Queue a copy with some fields changed, by dotted path."""
        return self._to.post(r.Run, f"/api/v1/runs/{run_id}/clone", {"overrides": dict(overrides), "name": name})

    def create_sweep(
        self, name: str, runs: Iterable[Mapping[str, Json]], *, idempotency_key: str | None = None
    ) -> r.Sweep:
        """Queue several runs, all or none; each is the body of a RunCreate."""
        body: dict[str, Json] = {"name": name, "runs": [dict(run) for run in runs]}
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._to.post(r.Sweep, "/api/v1/sweeps", body, **headers)

    def stop_sweep(self, sweep_id: int) -> r.Sweep:
        """Stop every run of it that has not ended."""
        return self._to.post(r.Sweep, f"/api/v1/sweeps/{sweep_id}/stop")

    def steps(self, run_id: int, *, after_step: int | None = None) -> list[StepSummary]:
        """The steps that have groups, and the states of those."""
        query = q.StepQuery(after_step=after_step)
        return self._to.get(r.Page[StepSummary], f"/api/v1/runs/{run_id}/steps", query).items

    def all_groups(self, run_id: int, step: int | None = None) -> list[Group]:
        """Every live group of a run, or of a step of it, with its completions."""
        groups: list[Group] = []
        cursor: str | None = None
        while True:
            page = self.groups(run_id, step=step, limit=200, cursor=cursor)
            groups += [self.group(one.id) for one in page.items]
            cursor = page.next_cursor
            if cursor is None:
                return groups

    def step_scores(self, run_id: int, step: int) -> StepScores:
        """Every number of a step's groups, without texts: what another estimator needs."""
        scores = StepScores(run_id=run_id, step=step, groups=[])
        cursor: str | None = "0"
        while cursor is not None:
            page = self._to.get(StepScores, f"/api/v1/runs/{run_id}/steps/{step}", q.StepScoresQuery(cursor=cursor))
            scores.groups.extend(page.groups)
            cursor = page.next_cursor
        return scores

    def checkpoints(self, run_id: int) -> list[r.Checkpoint]:
        """Checkpoints of the live history, by step."""
        return self._to.get(r.Page[r.Checkpoint], f"/api/v1/runs/{run_id}/checkpoints").items

    def download_checkpoint(self, run_id: int, step: int) -> Iterator[bytes]:
        """A zip of the model directory that `from_pretrained` opens, in chunks, if the backend can reach the store."""
        return self._to.chunks(f"/api/v1/runs/{run_id}/checkpoints/{step}/model.zip")

    def replay_outlook(self, run_id: int, step: int) -> ReplayOutlook:
        """Whether a step can be done again exactly: the replay's configuration, or why it cannot."""
        return self._to.get(ReplayOutlook, f"/api/v1/runs/{run_id}/steps/{step}/replay")

    def replay(
        self, run_id: int, step: int, *, group: int | None = None, other: Mapping[str, Json] = MappingProxyType({})
    ) -> r.Run:
        """Queue a replay of a step, which also takes apart a group, or computes the update of another algorithm."""
        asked = ReplayCreate(step=step, group=group, other=dict(other))
        return self._to.post(r.Run, f"/api/v1/runs/{run_id}/replays", asked)

    def step_groups(self, run_id: int, step: int) -> list[Group]:
        """Every live group of a step, with its completions."""
        return self.all_groups(run_id, step)

    def step_metrics(self, run_id: int, step: int) -> dict[str, float | None]:
        """The metrics of a step by name."""
        series = self.metrics(run_id, from_step=step, to_step=step).series
        return {name: one.value[-1] for name, one in series.items() if one.value}

    def export(self, run_id: int) -> Iterator[bytes]:
        """The whole run as JSON lines, in chunks as they arrive."""
        return self._to.chunks(f"/api/v1/runs/{run_id}/export")

    def export_table(self, run_id: int, table: Literal["groups", "tokens", "metrics"]) -> Iterator[bytes]:
        """All groups (a row for each completion), the same with their tokens, or all metrics of the live history as one Parquet file, in
        chunks."""
        if table == "tokens":
            return self._to.chunks(f"/api/v1/runs/{run_id}/export/groups.parquet?tokens=true")
        return self._to.chunks(f"/api/v1/runs/{run_id}/export/{table}.parquet")

    def upload(
        self,
        name: str,
        content: bytes | BinaryIO,
        *,
        suffix: str = "",
        note: str = "",
        progress: str = "",
        on_sent: Callable[[int], None] = lambda sent: None,
    ) -> r.Upload:
        """Store rows: CSV, TSV, JSON, JSON lines, Parquet or Arrow, from memory or from a file that is read as it is sent.

        The `suffix` is the file's own ending, if the name has another; the `note` is kept with what reading it brings up.
        `on_sent` hears how many bytes are on their way; how many rows were read then, `upload_progress` says under the key.
        """
        file = io.BytesIO(content) if isinstance(content, bytes) else content

        def chunks() -> Iterator[bytes]:
            sent = 0
            while chunk := file.read(UPLOAD_CHUNK):
                yield chunk
                sent += len(chunk)
                on_sent(sent)

        response = self._to.send(
            "POST",
            "/api/v1/uploads",
            query=q.UploadQuery(name=name, suffix=suffix, note=note, progress=progress),
            content=chunks(),
            headers={"Content-Type": "application/octet-stream"},
            timeout=UPLOAD_SECONDS,
        )
        return r.Upload.model_validate_json(response.content)

    def upload_progress(self, key: str) -> int | None:
        """How many rows of an upload that is under way were read; None while no file of it is read."""
        return self._to.get(r.UploadProgress, "/api/v1/uploads/progress", q.ProgressQuery(key=key)).rows

    def join_uploads(self, name: str, uploads: Iterable[int], *, source_column: str | None = None) -> r.Upload:
        """One upload of several, whose rows follow each other; a new column may say from which of them a row is."""
        body = r.UploadJoin(name=name, uploads=list(uploads), source_column=source_column)
        response = self._to.send("POST", "/api/v1/uploads/join", body=body, timeout=UPLOAD_SECONDS)
        return r.Upload.model_validate_json(response.content)

    def upload_files(
        self,
        files: Sequence[NamedFile],
        name: str | None = None,
        *,
        progress: str = "",
        on_sent: Callable[[str, int, int], None] = lambda file, whole, sent: None,
    ) -> r.Upload:
        """One upload of named files; if one is refused, or anything else ends it, nothing stays of it.

        Of a saved data set, the files that hold rows are taken. Unless one of several has a column `source`, or all are parts
        of such a data set, a new one has the name of each row's file. `on_sent` hears the name of a file, how many bytes it
        has, and how many are on their way.
        """
        shards = [int(found[1]) for one, _ in files if (found := _SHARD.fullmatch(one))]
        left = {one: None for one, _ in files if shards and _WITHOUT_ROWS.fullmatch(one)}
        files = [file for file in files if file[0] not in left]
        whole = max(shards, default=0)
        said = [f"Only {len(shards)} of the {whole} files of the data set are here"] if len(shards) < whole else []
        said += [f"Left out, since they hold no rows of their own: {', '.join(left):.300}"] if left else []
        with ExitStack() as parts_gone:
            parts: list[r.Upload] = []
            for file, where in files:
                with where.open("rb") if isinstance(where, Path) else nullcontext(where) as content, _about(file):
                    whole = content.seek(0, os.SEEK_END)
                    content.seek(0)
                    called = name if name and len(files) == 1 else file
                    part = self.upload(
                        called[:LONGEST_NAME],
                        content,
                        suffix=q.ending_of(file),
                        note="; ".join(said),
                        progress=progress,
                        on_sent=partial(on_sent, file, whole),
                    )
                if len(files) == 1:
                    return part
                parts_gone.callback(self._forget_upload, part.id)
                parts.append(part)
            is_one = len(shards) == len(files) or any("source" in part.columns for part in parts)
            column = None if is_one else "source"
            called = (name or f"{files[0][0][:100]} and {len(files) - 1} more")[:LONGEST_NAME]
            with _about(called):
                return self.join_uploads(called, [part.id for part in parts], source_column=column)

    def _forget_upload(self, upload_id: int) -> None:
        """Delete an upload, if the backend answers and nothing needs it."""
        with suppress(ApiError, Unreachable):
            self.delete_upload(upload_id)

    def split_upload(self, upload_id: int, query: q.SplitQuery) -> r.Split:
        """How many rows a task would train on and hold out. Raises ApiError for a large upload, of which only a worker counts them."""
        return self._to.get(r.Split, f"/api/v1/uploads/{upload_id}/split", query)

    def survey_upload(self, upload_id: int, query: SurveyQuery) -> Survey:
        """Which column is what, three rows as the model will read them, and what answers are compared with."""
        return self._to.get(Survey, f"/api/v1/uploads/{upload_id}/survey", query)

    def keep_rows(self, name: str, task: Mapping[str, Json], ids: Iterable[str]) -> r.Band:
        """An upload of those rows of the task's upload that have these prompt ids, and of all that it holds out."""
        body: dict[str, Json] = {"name": name, "task": dict(task), "ids": list(ids)}
        response = self._to.send("POST", "/api/v1/uploads/keep", body=body, timeout=UPLOAD_SECONDS)
        return r.Band.model_validate_json(response.content)

    def uploads(self) -> list[r.Upload]:
        """The newest 200 uploads, newest first."""
        return self._to.get(r.Page[r.Upload], "/api/v1/uploads", q.PageQuery(limit=200)).items

    def upload_content(self, upload_id: int) -> bytes:
        """Its rows as JSON lines."""
        return self._to.send("GET", f"/api/v1/uploads/{upload_id}/content").content

    def delete_upload(self, upload_id: int) -> None:
        """Delete an upload that no waiting run needs."""
        self._to.send("DELETE", f"/api/v1/uploads/{upload_id}")

    def workers(self) -> list[r.Worker]:
        """Every worker seen in the last day."""
        return self._to.get(r.Page[r.Worker], "/api/v1/workers").items

    def worker_use(self) -> list[r.Held]:
        """What every worker held in the last day, the latest first."""
        return self._to.get(r.Page[r.Held], "/api/v1/workers/use").items

    # ---- the worker's side

    def ask(self, request: p.ClaimRequest) -> p.ClaimReply:
        """Ask for a run; where nothing waits, the reply says when to ask again."""
        key = self._unanswered.setdefault(request.worker.name, secrets.token_hex(16))
        asked = request.model_copy(update={"protocol": p.PROTOCOL, "key": key})
        reply = self._to.post(p.ClaimReply, "/api/v1/worker/claim", asked)
        self._unanswered.pop(request.worker.name, None)
        if reply.claim is not None:
            self.secrets[reply.claim.run_id, reply.claim.attempt] = reply.claim.secret
        return reply

    def looked(self, found: p.LookFound) -> p.Accepted:
        """Say what was found in the prompts that a reply to `ask` wished to be looked at."""
        return self._to.post(p.Accepted, "/api/v1/worker/looks", found)

    def record(self, recording: p.Recording) -> p.Claim:
        """Have a run stored that this program trains itself, and leased to it; with the same key again, the same attempt."""
        asked = recording.model_copy(update={"protocol": p.PROTOCOL})
        claim = self._to.post(p.Claim, "/api/v1/worker/recordings", asked)
        self.secrets[claim.run_id, claim.attempt] = claim.secret
        return claim

    start = _message("start", p.Start, p.Accepted)
    """Report the step from which the attempt begins."""
    heartbeat = _message("heartbeat", p.Heartbeat, p.HeartbeatReply)
    """Renew the lease; the reply says what a person asked of the run."""
    report = _message("report", p.Report, p.Accepted)
    """Deliver one report; delivered twice it changes nothing."""

    def reports(self, run_id: int, together: p.Reports) -> p.Accepted:
        """Deliver several reports in one request; all are stored or none is, and delivered twice they change nothing."""
        attempt = {"attempt": together.attempt}
        lines = [report.model_copy(update=attempt).model_dump_json() for report in together.reports]
        answer = self._to.send(
            "POST",
            f"/api/v1/worker/runs/{run_id}/reports",
            content="\n".join(lines).encode(),
            headers={"Content-Type": "application/x-ndjson", **self._headers(run_id, together.attempt)},
        )
        return p.Accepted.model_validate_json(answer.content)

    def _headers(self, run_id: int, attempt: int) -> dict[str, str]:
        """What shows that a message is of the claim."""
        secret = self.secrets.get((run_id, attempt))
        headers = {} if secret is None else {p.SECRET_HEADER: secret}
        return headers | ({p.ENDING_HEADER: "true"} if (run_id, attempt) in self.ending else {})

    checkpoint = _message("checkpoint", p.CheckpointReport, p.Accepted)
    """Register a checkpoint."""
    finish = _message("finish", p.Finish, p.Accepted)
    """End the attempt as finished, stopped, paused or released."""
    fail = _message("fail", p.Fail, p.Accepted)
    """End the attempt as failed."""
