"""Preflight counts with the bounds that the worker keeps."""

from backend.preflight import memory
from worker.policy import device, policy, vocabulary


def test_preflight_knows_what_a_training_pass_and_a_cache_may_hold() -> None:
    assert (vocabulary._CHUNK_BYTES["cpu"], vocabulary._CHUNK_BYTES["cuda"]) == memory.CHUNK_BYTES
    assert memory.ACTIVATION_BYTES == policy._ACTIVATION_BYTES
    assert memory.CACHE_BYTES == device._CACHE_BYTES
