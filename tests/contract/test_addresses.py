"""A run names no address: a judge is named as the operator of a worker named it, and whatever looks like an address is refused."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from backend.contract.config import MODELS, RUN_CONFIG

ADDRESSES = """
    http://127.0.0.1/ https://evil.example/v1 http://169.254.169.254/latest/meta-data http://[::ffff:127.0.0.1]/
    http://2130706433/ http://0x7f.1/ http://user@127.0.0.1/ //127.0.0.1/ [::1] 127.0.0.1:8000 user:secret@host
    ftp://host/file unix:///var/run/docker.sock hf://datasets/owner/name
""".split()
NAMING: dict[str, Any] = {
    "a judge": lambda name: {"rewards": {"functions": [{"kind": "judge", "name": "j", "endpoint": name}]}},
    "a reward model": lambda name: {"rewards": {"functions": [{"kind": "reward_model", "name": "r", "source": name}]}},
    "a function": lambda name: {"rewards": {"functions": [{"kind": "python", "name": "p", "function": name}]}},
    "a model": lambda name: {"model": {"source": name}},
    "a data set": lambda name: {"task": {"kind": "dataset", "source": name}},
    "a data set of the Hub": lambda name: {"task": {"kind": "dataset", "source": f"hub:{name}"}},
    "its subset": lambda name: {"task": {"kind": "dataset", "source": "hub:a/b", "subset": name}},
    "a generator": lambda name: {"task": {"kind": "reasoning_gym", "dataset": name}},
}


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("what", NAMING)
def test_no_field_that_names_something_takes_an_address(what: str, address: str) -> None:
    with pytest.raises(ValidationError):
        RUN_CONFIG.validate_python({"kind": "grpo", **NAMING[what](address)})


def properties(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {}).items()
        for child in schema.values():
            yield from properties(child)
    elif isinstance(schema, list):
        for child in schema:
            yield from properties(child)


@pytest.mark.parametrize("kind", MODELS)
def test_no_field_of_a_run_is_meant_for_an_address(kind: str) -> None:
    suspicious = re.compile(r"url|uri|addr|host|port$|proxy|server|webhook|endpoint|callback|socket")
    found = {name: schema for name, schema in properties(MODELS[kind].model_json_schema()) if suspicious.search(name)}
    assert found.keys() <= {"endpoint"}
    for schema in found.values():
        assert not any(re.search(schema["pattern"], address) for address in ADDRESSES), "the name of a judge"
    formats = {schema["format"] for _, schema in properties(MODELS[kind].model_json_schema()) if "format" in schema}
    assert not formats & {"uri", "url", "hostname", "ipv4", "ipv6"}
