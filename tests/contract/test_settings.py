"""Each setting is read from its variable of the environment, by the process that has it; what an operator sets for rewards."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

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
    if isinstance(default, str | Path | None) and name != "idle_exit":
        return "elsewhere"
    return str((default or 0) + 1)  # type: ignore[operator]


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


# ---- what an operator sets for rewards


JUDGE = {"url": "https://judge.example/v1", "model": "judge-1"}


def test_functions_are_listed_with_commas_and_judges_as_json_and_a_worker_offers_none_unless_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("REWARD_FUNCTIONS", "REWARD_PATH", "JUDGES"):
        monkeypatch.delenv(f"GROUPSCOPE_{name}", raising=False)
    settings = worker.settings.Settings()
    assert (settings.reward_functions, settings.reward_path, settings.judges) == ((), None, {})
    monkeypatch.setenv("GROUPSCOPE_REWARD_FUNCTIONS", "my_rewards:is_polite, pack.age:f,")
    monkeypatch.setenv("GROUPSCOPE_JUDGES", json.dumps({"strict": {**JUDGE, "requests_per_minute": 30}}))
    settings = worker.settings.Settings()
    assert settings.reward_functions == ("my_rewards:is_polite", "pack.age:f")
    assert (settings.judges["strict"].model, settings.judges["strict"].requests_per_minute) == ("judge-1", 30)


@pytest.mark.parametrize("function", ["my_rewards", "os:system:x", "my rewards:f", "../x:f", "my_rewards:f()"])
def test_what_names_no_function_is_refused_at_the_start(function: str) -> None:
    with pytest.raises(ValidationError, match="reward_functions"):
        worker.settings.Settings.model_validate({"reward_functions": function})


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        ({**JUDGE, "api_key": "sk-secret"}, "api_key"),
        ({"url": "ftp://me:sk-secret@judge", "model": "x"}, "judges.strict.url"),
    ],
)
def test_a_key_in_the_place_of_its_name_is_refused_and_not_shown(judge: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError, match=says) as caught:
        worker.settings.Settings.model_validate({"judges": {"strict": judge}})
    assert "sk-secret" not in str(caught.value)
