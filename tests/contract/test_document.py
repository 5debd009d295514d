"""The OpenAPI document says of every route what can really happen."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from serving import Backend

from backend.app import create_app
from backend.document import ERRORS, OPEN, document
from backend.settings import Settings

SCHEMAS = "#/components/schemas/"


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home: Path = tmp_path_factory.mktemp("home")
    return document(create_app(Settings(home=home, token=SecretStr("t" * 40))))


def test_every_route_says_each_error_in_the_one_shape(described: dict[str, Any]) -> None:
    for path, methods in described["paths"].items():
        for operation in methods.values() if path != OPEN else ():
            errors = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
            assert set(errors) == {str(status) for status in ERRORS}, path
            for answer in errors.values():
                assert answer["content"] == {"application/json": {"schema": {"$ref": f"{SCHEMAS}ErrorAnswer"}}}
            assert operation["security"] == [{"token": []}], path


def test_every_reference_is_defined_once_in_the_document_and_no_word_is_about_how_it_is_made(
    described: dict[str, Any],
) -> None:
    defined = described["components"]["schemas"]
    assert set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(described))) <= {f"{SCHEMAS}{name}" for name in defined}
    assert "$defs" not in str(described)
    assert "FastAPI" not in str(described)


def test_a_route_that_reads_its_body_itself_says_what_it_expects(described: dict[str, Any]) -> None:
    for path, media_type in (("worker/runs/{run_id}/report", "application/json"), ("uploads", "application/x-ndjson")):
        content = described["paths"][f"/api/v1/{path}"]["post"]["requestBody"]["content"]
        assert list(content) == [media_type]
        assert content[media_type]["schema"]["type"] in ("object", "string")


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/api/v1/runs/{run_id}/checkpoints/{step}/model.zip", "application/zip"),
        ("/api/v1/uploads/{upload_id}/content", "application/x-ndjson"),
        ("/api/v1/runs/{run_id}/preferences", "application/x-ndjson"),
        ("/api/v1/runs/{run_id}/export", "application/x-ndjson"),
        ("/api/v1/runs/{run_id}/export/groups.parquet", "application/vnd.apache.parquet"),
        ("/api/v1/runs/{run_id}/export/metrics.parquet", "application/vnd.apache.parquet"),
        ("/api/v1/runs/{run_id}/events", "text/event-stream"),
        ("/api/v1/runs/{run_id}", "application/json"),
        ("/metrics", "text/plain; version=1.0.0; charset=utf-8"),
    ],
)
def test_the_type_of_an_answer_is_the_one_that_is_sent(described: dict[str, Any], path: str, media_type: str) -> None:
    assert list(described["paths"][path]["get"]["responses"]["200"]["content"]) == [media_type]


def test_the_document_is_served_behind_the_token(shared_backend: Backend) -> None:
    served = shared_backend.http.get("/api/v1/openapi.json")
    assert served.json()["openapi"].startswith("3.")
    assert shared_backend.http.get("/api/v1/openapi.json", headers={"Authorization": ""}).status_code == 401
