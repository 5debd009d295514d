"""Each setting is read from its variable of the environment, by the process that has it."""

from pathlib import Path

import pytest
from pydantic import BaseModel

import backend.settings
import dashboard.settings
import worker.settings
from backend.contract.home import load

FORMS = {
    "backend": backend.settings.Settings,
    "worker": worker.settings.Settings,
    "dashboard": dashboard.settings.Settings,
}
# What a person would write, where a number or a word is not enough.
WRITTEN = {
    "backend_url": "http://far:9000",
    "backend_allowed_hosts": "far,farther",
    "dashboard_allowed_hosts": "far,farther",
    "checkpoints": "s3://bucket/runs",
    "database_url": "postgresql+psycopg://far/groupscope",
    "device": "cpu",
    "executor": "ray",
    "rendezvous": "far:29400",
    "ray_address": "far:6379",
    "reward_functions": "rewards:right",
    "judges": '{"strict": {"url": "http://far:9000/v1", "model": "judge"}}',
    "vllm_url": "http://far:9000",
    "token": "a-token-of-sixteen-characters",
}
# Settings that mean something together alone.
BESIDE = {
    "executor": {"ray_address": "far:6379"},
    "node_rank": {"nodes": "2", "rendezvous": "far:29400"},
    "nodes": {"rendezvous": "far:29400"},
    "ray_address": {"executor": "ray"},
    "rendezvous": {"nodes": "2"},
    "vllm_url": {"vllm_weights": "weights"},
    "vllm_weights": {"vllm_url": "http://far:9000"},
}
CASES = [(process, name) for process, form in FORMS.items() for name in form.model_fields]


def written(name: str, default: object) -> str:
    """A value that it does not have by itself."""
    if name in WRITTEN:
        return WRITTEN[name]
    if isinstance(default, bool):
        return "true"
    return (
        "elsewhere"
        if isinstance(default, str | Path | None) and name not in ("idle_exit",)
        else str((default or 0) + 1)
    )  # type: ignore[operator]


@pytest.mark.parametrize(("process", "name"), CASES)
def test_a_setting_is_read_from_its_variable(
    process: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    form: type[BaseModel] = FORMS[process]
    monkeypatch.setenv("GROUPSCOPE_HOME", str(tmp_path))
    for other, value in {**BESIDE.get(name, {}), name: written(name, form.model_fields[name].default)}.items():
        monkeypatch.setenv(f"GROUPSCOPE_{other.upper()}", value)
    unset = form.model_fields[name].get_default(call_default_factory=True)
    assert getattr(load(form), name) != unset
