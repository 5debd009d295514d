"""Which sampling engines this worker has, and the one that a run chose."""

import transformers

from backend.contract.training import EngineName
from worker.errors import RunFailure
from worker.policy.policy import Policy
from worker.rollout.engine import Engine
from worker.rollout.sampler import NativeEngine
from worker.rollout.vllm_engine import VllmEngine
from worker.settings import Settings

_OLDEST_TRANSFORMERS = (5, 17)


def offered_engines(settings: Settings) -> list[EngineName]:
    """The engines that a run may choose here."""
    offered: list[EngineName] = ["native"]
    if tuple(map(int, transformers.__version__.split(".")[:2])) >= _OLDEST_TRANSFORMERS:
        offered.append("transformers")
    if settings.vllm_url is not None:
        offered.append("vllm")
    return offered


def load_engine(name: EngineName, policy: Policy, settings: Settings) -> Engine:
    """The engine, to sample from the policy. Raises RunFailure `engine_missing`."""
    if name == "native":
        return NativeEngine(policy)
    if name == "transformers" and name in offered_engines(settings):
        from worker.rollout.transformers_engine import TransformersEngine  # an older library has not what it imports

        return TransformersEngine(policy)
    if name == "vllm" and settings.vllm_url is not None and settings.vllm_weights is not None:
        return VllmEngine(policy, str(settings.vllm_url), settings.vllm_weights, settings.vllm_api_key)
    raise RunFailure(
        "engine_missing", f"This worker does not sample with {name} (docs/engines.md). Set sampling.engine to native."
    )
