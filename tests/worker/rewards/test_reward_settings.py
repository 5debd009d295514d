"""What an operator sets for rewards."""

import json

import pytest
from pydantic import ValidationError

from worker.settings import Settings

JUDGE = {"url": "https://judge.example/v1", "model": "judge-1"}


def test_functions_are_listed_with_commas_and_judges_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPSCOPE_REWARD_FUNCTIONS", "my_rewards:is_polite, pack.age:f,")
    monkeypatch.setenv("GROUPSCOPE_JUDGES", json.dumps({"strict": {**JUDGE, "requests_per_minute": 30}}))
    settings = Settings()
    assert settings.reward_functions == ("my_rewards:is_polite", "pack.age:f")
    assert (settings.judges["strict"].model, settings.judges["strict"].requests_per_minute) == ("judge-1", 30)


def test_a_worker_offers_nothing_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REWARD_FUNCTIONS", "REWARD_PATH", "JUDGES"):
        monkeypatch.delenv(f"GROUPSCOPE_{name}", raising=False)
    settings = Settings()
    assert (settings.reward_functions, settings.reward_path, settings.judges) == ((), None, {})


@pytest.mark.parametrize("function", ["my_rewards", "os:system:x", "my rewards:f", "../x:f", "my_rewards:f()"])
def test_what_names_no_function_is_refused_at_the_start(function: str) -> None:
    with pytest.raises(ValidationError, match="reward_functions"):
        Settings.model_validate({"reward_functions": function})


def test_a_key_in_the_place_of_its_name_is_refused_and_not_shown() -> None:
    with pytest.raises(ValidationError, match="api_key") as caught:
        Settings.model_validate({"judges": {"strict": {**JUDGE, "api_key": "sk-secret"}}})
    assert "sk-secret" not in str(caught.value)
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"judges": {"strict": {"url": "ftp://me:sk-secret@judge", "model": "x"}}})
    assert "sk-secret" not in str(caught.value)
