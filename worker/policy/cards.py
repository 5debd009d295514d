"""Which GPU a worker computes on: one that no other worker of this machine has."""

import socket
from contextlib import AbstractContextManager, nullcontext

import torch

from backend.contract.home import CannotStart
from worker.policy.device import fastest_kind


def take_device(asked: str | None) -> tuple[torch.device, AbstractContextManager[object]]:
    """The device as it was asked for, or the fastest there is, and what holds a card until it is left or the process ends.

    A card that was asked for by its number may be shared with other workers. Raises CannotStart for a device that is not there, and
    where all cards are taken.
    """
    kind, _, number = (asked or fastest_kind()).partition(":")
    there = {"cpu": 1, "mps": int(torch.backends.mps.is_available()), "cuda": torch.cuda.device_count()}[kind]
    if not there or int(number or 0) >= there:
        cards = f"{there} cards, cuda:0 to cuda:{there - 1}" if there else "no such device"
        raise CannotStart(
            f"GROUPSCOPE_DEVICE is {asked}, and torch finds {cards} here. Choose another, or leave it out."
        )
    if kind != "cuda":
        return torch.device(kind), nullcontext()
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would plan each new shape for 30 ms, and ours are nearly all new
    card, holder = (int(number), _hold(int(number))) if number else _free_card(there)
    torch.cuda.set_device(card)
    return torch.device("cuda", card), holder or nullcontext()


def _free_card(count: int) -> tuple[int, socket.socket]:
    for card in range(count):
        if holder := _hold(card):
            return card, holder
    raise CannotStart(
        f"Other workers of this machine have all of its GPUs ({count}). Stop one; or name the card that this worker shall share, with "
        "--device cuda:0; or compute on the CPU, with --device cpu."
    )


def _hold(card: int) -> socket.socket | None:
    """What holds a card that no other worker holds. A socket's name in the kernel is the lock: it goes with the process."""
    holder = socket.socket(socket.AF_UNIX)
    try:
        holder.bind(f"\0groupscope-gpu-{torch.cuda.get_device_properties(card).uuid}")
    except OSError:
        holder.close()
        return None
    return holder
