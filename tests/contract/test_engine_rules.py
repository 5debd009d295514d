"""Which engines a configuration may choose: one that measures other log-probs than the run asks for is refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from backend.contract.base import Misfit
from backend.contract.grpo import GrpoConfig


def with_engine(engine: str, *, logprobs: str = "tempered", **sampling: Any) -> GrpoConfig:
    return GrpoConfig.model_validate({"sampling": {"engine": engine, **sampling}, "algorithm": {"logprobs": logprobs}})


def refused(engine: str, **changes: Any) -> Misfit:
    with pytest.raises(ValidationError) as caught:
        with_engine(engine, **changes)
    (error,) = caught.value.errors()
    misfit = error["ctx"]["error"]
    assert isinstance(misfit, Misfit)
    assert (misfit.field, misfit.fix) == ("sampling.engine", {"sampling.engine": "native"})
    return misfit


def test_a_stored_configuration_without_an_engine_samples_natively() -> None:
    stored = GrpoConfig().model_dump(mode="json")
    del stored["sampling"]["engine"]
    assert GrpoConfig.model_validate(stored).sampling.engine == "native"


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_other_engines_are_refused_where_they_measure_something_else(engine: str) -> None:
    assert "renormalized" in str(refused(engine, logprobs="renormalized", top_k=5))
    assert "top-k 5" in str(refused(engine, top_k=5))
    assert "top-p 0.9" in str(refused(engine, top_p=0.9))
    assert "0.7" in str(refused(engine, logprobs="plain", temperature=0.7))


@pytest.mark.parametrize("engine", ["native", "transformers", "vllm"])
def test_every_engine_takes_what_all_measure_alike(engine: str) -> None:
    assert with_engine(engine, temperature=0.7, stop=["</answer>"]).sampling.engine == engine
    assert with_engine(engine, logprobs="plain").sampling.engine == engine


@pytest.mark.parametrize(
    "changes", [{"logprobs": "renormalized", "top_k": 5}, {"logprobs": "plain", "temperature": 0.7}]
)
def test_the_native_engine_measures_whatever_is_asked(changes: dict[str, Any]) -> None:
    assert with_engine("native", **changes).sampling.engine == "native"


def test_several_processes_sample_with_one_server_and_not_with_a_copy_of_the_model_each() -> None:
    together = {"compute": {"processes": 2}}
    assert GrpoConfig.model_validate(together | {"sampling": {"engine": "vllm"}}).sampling.engine == "vllm"
    with pytest.raises(ValidationError, match="transformers engine samples for one process, and this run has 2"):
        GrpoConfig.model_validate(together | {"sampling": {"engine": "transformers"}})
