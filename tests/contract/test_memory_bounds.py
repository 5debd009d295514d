"""Preflight counts with the bounds that the worker keeps."""

import torch

from backend.preflight import memory
from worker.policy import device, policy


def test_preflight_knows_what_a_training_pass_and_a_cache_may_hold() -> None:
    kinds = [torch.device(kind) for kind in ("cpu", "cuda")]
    assert tuple(device.abilities(kind).logits_bytes for kind in kinds) == memory.CHUNK_BYTES
    assert tuple(device.abilities(kind).kept_logits_bytes for kind in kinds) == memory.KEPT_LOGITS_BYTES
    assert memory.ACTIVATION_BYTES == policy._ACTIVATION_BYTES
    assert memory.CACHE_BYTES == device._CACHE_BYTES
