"""Which device a worker takes."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from test_learner import advantages, configured, ragged, train
from worker_models import tiny_policy

from backend.contract.home import CannotStart
from worker.learner import Learner
from worker.policy.device import cache_bytes, compute_dtype, take_device


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A machine with two; the cards that were chosen."""
    chosen = list[int]()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    machine = id(chosen)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda card: SimpleNamespace(uuid=f"{machine}-{card}"))
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    yield chosen
    torch.backends.cuda.enable_cudnn_sdp(True)


def test_workers_of_one_machine_take_a_card_each_and_the_third_is_told(two_cards: list[int]) -> None:
    with take_device(None)[1], take_device(None)[1]:
        assert two_cards == [0, 1]
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        with pytest.raises(CannotStart, match=r"all of its GPUs \(2\).*--device cuda:0"):
            take_device("cuda")
        device, held = take_device("cuda:0")  # by its number it is shared
        assert device == torch.device("cuda", 0)
    with take_device(None)[1], held:
        assert two_cards == [0, 1, 0, 0]  # what was given back is taken again
    with take_device("cuda:0")[1]:
        assert take_device(None)[0] == torch.device("cuda", 1)  # a named one counts as taken


def test_a_named_device_is_taken_or_refused_with_those_that_there_are(
    two_cards: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert take_device("cpu")[0] == torch.device("cpu")
    assert not two_cards
    with pytest.raises(CannotStart, match="is cuda:2, and torch finds 2 cards, cuda:0 to cuda:1 here"):
        take_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(CannotStart, match="no such device"):
        take_device("cuda")


def breaks_at(card: int, error: type[Exception], works: Callable[[int], object]) -> Callable[[int], object]:
    def asked(number: int) -> object:
        if number == card:
            raise error("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nmore")
        return works(number)

    return asked


@pytest.mark.parametrize("error", [RuntimeError, torch.cuda.DeferredCudaCallError])
@pytest.mark.parametrize("call", ["get_device_properties", "set_device"])
def test_a_card_whose_driver_fails_is_passed_over_and_named(
    call: str,
    error: type[Exception],
    two_cards: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(torch.cuda, call, breaks_at(0, error, getattr(torch.cuda, call)))
    says = r"cuda:0 does not answer \(CUDA error: CUDA-capable device\(s\) is/are busy or unavailable\)\."
    with pytest.raises(CannotStart, match=f"{says} Look at the cards with nvidia-smi; .*--device cpu"):
        take_device("cuda:0")
    device, held = take_device(None)
    with held, pytest.raises(CannotStart, match=f"{says} Other workers of this machine have the rest"):
        take_device(None)
    assert device == torch.device("cuda", 1)
    assert "cuda:1 is taken instead of others: cuda:0 does not answer" in caplog.text
    monkeypatch.setattr(torch.cuda, call, breaks_at(1, error, getattr(torch.cuda, call)))
    with pytest.raises(CannotStart, match=f"{says} cuda:1 does not answer"):
        take_device(None)


def test_bfloat16_that_is_emulated_is_not_taken_for_a_gpus_own(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (lambda including_emulation=True: including_emulation), (lambda including_emulation=True: True)
    for supported, computed in ((old, torch.float32), (new, torch.bfloat16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
        assert compute_dtype(torch.device("cuda"), "auto") is computed
        assert compute_dtype(torch.device("cuda"), "bfloat16") is torch.bfloat16


def test_keys_and_values_leave_room_for_gradients_and_moments_that_do_not_exist_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = {"memory_reserved": 3000, "memory_allocated": 1000, "mem_get_info": (8000, 16000)}
    for name, found in held.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, found=found: found)
    gpu = torch.device("cuda", 0)
    assert cache_bytes(gpu) == 4000  # 40 % of what is free, also by torch
    assert cache_bytes(gpu, promised=6000) == 1600
    assert cache_bytes(gpu, promised=20_000) == 0
    policy = tiny_policy()
    weights = sum(one.nbytes for one in policy.parameters())
    assert policy.bytes_to_come() == 0  # nothing is trained: a sample
    learner = Learner(policy, configured())
    assert policy.bytes_to_come() == 3 * weights  # gradients, and two moments that the first update makes
    train(learner, ragged(), advantages())
    assert policy.bytes_to_come() == 0
    learner.optimizer.zero_grad(set_to_none=True)
    assert policy.bytes_to_come() == weights  # as after a resume
