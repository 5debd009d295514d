"""A filter is one field of a list's query: the client's keyword, the route's parameter and nothing else."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from serving import Backend

from backend.contract import queries
from backend.contract.client import ApiError

SOME: Mapping[str, Any] = {
    "names": ["kl", "loss"],
    "runs": [1, 2],
    "cursor": "3",
    "kind": "training",
    "status": "failed",
    "state": "live",
    "finish_reason": "stop",
    "value": "advantage",
    "bookmarked": False,
    "width": 8,
}
OF_A_RUN = "/api/v1/runs/{run_id}/"
LISTS: Mapping[str, tuple[str, type[BaseModel]]] = {
    "runs": ("/api/v1/runs", queries.RunQuery),
    "sweeps": ("/api/v1/sweeps", queries.PageQuery),
    "groups_of_prompt": ("/api/v1/groups", queries.PromptGroupQuery),
    "compare_metrics": ("/api/v1/metrics", queries.ComparedMetricQuery),
    "common_prompts": ("/api/v1/prompts", queries.CommonPromptQuery),
    "groups": (f"{OF_A_RUN}groups", queries.GroupQuery),
    "prompts": (f"{OF_A_RUN}prompts", queries.PromptQuery),
    "completions": (f"{OF_A_RUN}completions", queries.CompletionQuery),
    "metrics": (f"{OF_A_RUN}metrics", queries.MetricQuery),
    "distribution": (f"{OF_A_RUN}distribution", queries.DistributionQuery),
    "properties": (f"{OF_A_RUN}properties", queries.PropertyQuery),
    "logs": (f"{OF_A_RUN}logs", queries.LogQuery),
}


def some(query: type[BaseModel]) -> dict[str, Any]:
    """A value for each field that is not the field's default."""
    values: dict[str, Any] = {}
    for name, field in query.model_fields.items():
        typed = "1" if "str" in str(field.annotation) else 7
        values[name] = f"-{field.default}" if name == "sort" else SOME.get(name, typed)
    return values


@pytest.mark.parametrize("name", LISTS)
def test_the_client_sends_every_field_of_the_query_and_the_route_takes_these_alone(
    shared_backend: Backend, name: str
) -> None:
    asked: list[httpx.URL] = []
    shared_backend.client._to._http.event_hooks["request"].append(lambda request: asked.append(request.url))
    path, query = LISTS[name]
    fields = query.model_fields
    with suppress(ApiError):  # there is no run 1
        getattr(shared_backend.client, name)(*([1] if path.startswith(OF_A_RUN) else []), **some(query))
    assert asked[0].path == path.replace("{run_id}", "1")
    assert asked[0].params.keys() == fields.keys()
    answer = shared_backend.http.get(asked[0].raw_path.decode())
    assert (answer.status_code, "no route" in answer.text) in ((200, False), (404, False)), "no value is refused"
    documented = shared_backend.http.get("/api/v1/openapi.json").json()["paths"][path]["get"]["parameters"]
    assert {one["name"] for one in documented if one["in"] == "query"} == fields.keys()
    refused = shared_backend.http.get(asked[0].path, params={"colour": "red"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid")
    assert "colour: is not a known field (got 'red')" in refused.json()["error"]["message"].split("; ")


def test_what_is_not_asked_is_not_sent() -> None:
    """An empty `after_id` would be refused: it is no number."""
    assert queries.LogQuery().model_dump(mode="json", exclude_defaults=True) == {}
    assert queries.GroupQuery(step=None, search=None).model_dump(mode="json", exclude_defaults=True) == {}


def test_a_wrong_value_is_refused_in_the_same_shape_on_both_sides(shared_backend: Backend) -> None:
    with pytest.raises(ApiError, match=r"^sort: ") as refusal:
        shared_backend.client.groups(1, sort="text; drop table run")
    answer = shared_backend.http.get("/api/v1/runs/1/groups", params={"sort": "text; drop table run"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (refusal.value.status, refusal.value.code)
