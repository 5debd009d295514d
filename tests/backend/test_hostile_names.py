"""Names of models, data sets, runs and files that want to be paths: refused at the edge, or never made into one."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from acting import GRPO, Actor, api_error
from serving import Backend

pytestmark = pytest.mark.usefixtures("read_here")

HOSTILE = [
    "../etc/passwd", "/etc/passwd", "..%2fetc", "%252e%252e/etc", "..\\etc", "\\\\host\\share", "//host/share",
    "C:\\Windows", "file:///etc/passwd", "hf://owner/name", "a\0b", "name\n", "owner/name\n../x", "．．/etc",
    "ｏｗｎｅｒ/ｎａｍｅ", "owner∕name", "./name", "~/name", ".hidden", "..", "owner/../name", "owner//name",
    "owner/name/", "owner/name/more", "owner name", "owner/na..me", "-name", "$(id)",
]  # fmt: skip
REWARD: dict[str, Any] = {"kind": "reward_model", "name": "r"}
PLACES: dict[str, Any] = {
    "model.source": lambda name: {"kind": "grpo", "model": {"source": name}},
    "model.source, below the root": lambda name: {"kind": "grpo", "model": {"source": f"local:{name}"}},
    "model.source, of a run": lambda name: {"kind": "grpo", "model": {"source": f"run:{name}@1"}},
    "model.source, that came along": lambda name: {"kind": "grpo", "model": {"source": f"builtin:{name}"}},
    "rewards.functions.0.source": lambda name: {"kind": "grpo", "rewards": {"functions": [{**REWARD, "source": name}]}},
    "task.source": lambda name: {"kind": "grpo", "task": {"kind": "dataset", "source": f"hub:{name}"}},
    "task.source, an upload": lambda name: {"kind": "grpo", "task": {"kind": "dataset", "source": f"upload:{name}"}},
    "task.source, as it stands": lambda name: {"kind": "grpo", "task": {"kind": "dataset", "source": name}},
    "task.subset": lambda name: {"kind": "grpo", "task": {"kind": "dataset", "source": "hub:a/b", "subset": name}},
    "task.split": lambda name: {"kind": "grpo", "task": {"kind": "dataset", "source": "hub:a/b", "split": name}},
    "task.dataset": lambda name: {"kind": "grpo", "task": {"kind": "reasoning_gym", "dataset": name}},
    "pairs.source": lambda name: {"kind": "dpo", "pairs": {"kind": "dataset", "source": f"hub:{name}"}},
}
# A folder below the model root may have any depth; the worker resolves it and looks where it leads.
NO_HARM = {("model.source, below the root", name) for name in ("owner/name/more", "owner/na..me")}


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_wants_to_be_a_path_is_refused_by_its_field(shared_backend: Backend, place: str, name: str) -> None:
    if (place, name) in NO_HARM:
        return
    with api_error(422) as caught:
        shared_backend.client.create_run(PLACES[place](name))
    details: Any = caught.value.details
    assert details[0]["field"] == place.partition(",")[0]


def test_names_of_runs_uploads_and_workers_are_never_part_of_a_path(backend: Backend, tmp_path: Path) -> None:
    outside = set(tmp_path.rglob("*")) - set(backend.home.rglob("*"))
    for name in HOSTILE:
        kept = name.replace("\0", "\ufffd")
        run = backend.client.create_run(GRPO, name=name, tags=[name])
        upload = backend.client.upload(name, b'{"a": 1}')
        assert (run.name, upload.name) == (kept, kept), "a name is a text, and is kept as it was written"
        export = backend.http.get(f"/api/v1/runs/{run.id}/export")
        content = backend.http.get(f"/api/v1/uploads/{upload.id}/content")
        assert export.headers["content-disposition"] == f'attachment; filename="run-{run.id}.jsonl"'
        assert content.headers["content-disposition"] == f'attachment; filename="{upload.id}.jsonl"'
    Actor(backend.client, name="../../worker", store="../..").begin().report(0)
    files = {str(path.relative_to(backend.home)) for path in backend.home.rglob("*") if path.is_file()}
    uploads = {f"uploads/{number}.jsonl" for number in range(1, len(HOSTILE) + 1)}
    # the reserve of the disk comes by itself
    assert {file for file in files if not file.startswith("groupscope.db")} - {"reserve"} == uploads
    assert set(tmp_path.rglob("*")) - set(backend.home.rglob("*")) == outside


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/uploads/..%2f..%2ftoken/content",
        "/api/v1/uploads/%2e%2e/content",
        "/api/v1/uploads/1%2f..%2f..%2ftoken",
        "/api/v1/uploads/1;/content",
        "/api/v1/uploads/1%00/content",
        "/api/v1/uploads/%EF%BC%91/content",
        "/api/v1/runs/1/checkpoints/..%2f1/model.zip",
        "/api/v1/../../etc/passwd",
        "/../../../../etc/passwd",
        "/api/v1/uploads/..\\..\\token/content",
    ],
)
def test_a_path_of_a_request_leads_to_no_file(shared_backend: Backend, path: str) -> None:
    shared_backend.client.upload("x", b'{"a": 1}')
    url = httpx.URL(shared_backend.url).copy_with(raw_path=path.encode())
    answer = shared_backend.http.get(url)
    assert answer.status_code in (400, 404, 422), answer.text
    assert set(answer.json()["error"]) == {"code", "message", "details"}
