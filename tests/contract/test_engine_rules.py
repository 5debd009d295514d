"""Which engines a configuration may choose: one that measures other log-probs than the run asks for is refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from backend.contract.base import Misfit
from backend.contract.grpo import GrpoConfig


def with_engine(engine: str, *, logprobs: str = "tempered", **sampling: Any) -> GrpoConfig:
    return GrpoConfig.model_validate({"sampling": {"engine": engine, **sampling}, "algorithm": {"logprobs": logprobs}})


ELSE: list[tuple[dict[str, Any], str]] = [
    ({"logprobs": "renormalized", "top_k": 5}, "renormalized"),
    ({"top_k": 5}, "top-k 5"),
    ({"top_p": 0.9}, "top-p 0.9"),
    ({"logprobs": "plain", "temperature": 0.7}, "0.7"),
]


@pytest.mark.parametrize(("changes", "says"), ELSE)
@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_other_engines_are_refused_where_they_measure_something_else(
    engine: str, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        with_engine(engine, **changes)
    (error,) = caught.value.errors()
    misfit = error["ctx"]["error"]
    assert isinstance(misfit, Misfit)
    assert (misfit.field, misfit.fix) == ("sampling.engine", {"sampling.engine": "native"})
    assert says in str(misfit)


def test_every_engine_takes_what_all_measure_alike_and_the_native_one_which_is_the_default_whatever_is_asked() -> None:
    for engine in ("native", "transformers", "vllm"):
        assert with_engine(engine, temperature=0.7, stop=["</answer>"]).sampling.engine == engine
        assert with_engine(engine, logprobs="plain").sampling.engine == engine
    for changes, _ in ELSE:
        assert with_engine("native", **changes).sampling.engine == "native"
    stored = GrpoConfig().model_dump(mode="json")
    del stored["sampling"]["engine"]
    assert GrpoConfig.model_validate(stored).sampling.engine == "native"


def test_several_processes_sample_with_one_server_and_not_with_a_copy_of_the_model_each() -> None:
    together = {"compute": {"processes": 2}}
    assert GrpoConfig.model_validate(together | {"sampling": {"engine": "vllm"}}).sampling.engine == "vllm"
    with pytest.raises(ValidationError, match="transformers engine samples for one process, and this run has 2"):
        GrpoConfig.model_validate(together | {"sampling": {"engine": "transformers"}})
