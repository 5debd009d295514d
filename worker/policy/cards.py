"""Which GPU a worker computes on: one that no other worker of this machine has."""

import logging
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from backend.contract.home import CannotStart
from worker.policy.device import fastest_kind

log = logging.getLogger(__name__)


def take_device(asked: str | None) -> tuple[torch.device, AbstractContextManager[object]]:
    """The device as it was asked for, or the fastest there is, and what holds a card until it is left or the process ends.

    A card that was asked for by its number may be shared with other workers. Raises CannotStart for a device that is not there, and
    if every card is taken or does not answer.
    """
    kind, _, number = (asked or fastest_kind()).partition(":")
    there = {"cpu": 1, "mps": int(torch.backends.mps.is_available()), "cuda": torch.cuda.device_count()}[kind]
    if not there or int(number or 0) >= there:
        cards = f"{there} cards, cuda:0 to cuda:{there - 1}" if there else "no such device"
        raise CannotStart(
            f"GROUPSCOPE_DEVICE (--device) is {asked}, and torch finds {cards} here. Choose another, or leave it out."
        )
    if kind != "cuda":
        return torch.device(kind), nullcontext()
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would plan each new shape for 30 ms, and ours are nearly all new
    return _first_card([int(number)] if number else range(there), shared=bool(number))


def _first_card(cards: Sequence[int], *, shared: bool) -> tuple[torch.device, AbstractContextManager[object]]:
    """The first that answers and that no other worker has; one that others have too if it may be `shared`."""
    silent = list[str]()
    for card in cards:
        holder = None
        try:
            holder = _hold(card)
            if holder or shared:
                torch.cuda.set_device(card)
                if silent:
                    log.warning("cuda:%d is taken instead of others: %s", card, " ".join(silent))
                return torch.device("cuda", card), holder or nullcontext()
        except (RuntimeError, torch.cuda.DeferredCudaCallError) as error:  # of its driver
            if holder:
                holder.close()
            silent.append(f"cuda:{card} does not answer ({str(error).partition(chr(10))[0]}).")
    if not silent:
        raise CannotStart(
            f"Other workers of this machine have all of its GPUs ({len(cards)}). Stop one; or name the card that this worker shall "
            "share, with --device cuda:0; or compute on the CPU, with --device cpu."
        )
    others = " Other workers of this machine have the rest." if len(silent) < len(cards) else ""
    raise CannotStart(
        f"{' '.join(silent)}{others} Look at the cards with nvidia-smi; or compute on the CPU, with --device cpu."
    )


def _hold(card: int) -> socket.socket | None:
    """What holds a card that no other worker holds. A socket's name in the kernel is the lock: it goes with the process."""
    name = f"\0groupscope-gpu-{torch.cuda.get_device_properties(card).uuid}"
    holder = socket.socket(socket.AF_UNIX)
    try:
        holder.bind(name)
    except OSError:
        holder.close()
        return None
    return holder
