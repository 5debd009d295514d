"""Where the computation runs, on which GPU if there are several, and in which precision."""

import ctypes
import gc
import logging
import math
import os
import resource
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from torch import Tensor

from backend.contract.home import CannotStart
from worker.policy.recording import CudaGraphs, Recorder

# Keys and values of all rows at once: more rows than that wait. On a GPU a share of what is free.
_CACHE_BYTES = 2**30
_CACHE_SHARE = 0.4

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


@dataclass(frozen=True)
class Abilities:
    """What a kind of device can do, and how much of it is used at once."""

    asynchronous: bool = False  # it computes while the host queues more work, so waiting for a result leaves it idle
    recorder: Callable[[], Recorder] | None = None  # records steps of sampling
    keeps_copies: bool = False  # weights and slots for sampling stay while the policy is trained, at their places
    capacity_step: int = 32  # tokens; slots are made for multiples, so that they fit the next rollout's prompts too
    logits_bytes: int = 48 * 2**20  # of a chunk of logits
    kept_logits_bytes: int = (
        192 * 2**20
    )  # of all logits of a pass that are kept for its gradient; none if there are more
    whole_norm: bool = False  # torch's own normalisation is the fastest
    varlen: bool = False  # flash attention's kernels for rows of variable length, in half precision
    fused_optimizer: bool = True


_ABILITIES = {
    "cpu": Abilities(),
    "cuda": Abilities(
        asynchronous=True,
        recorder=CudaGraphs,
        keeps_copies=True,
        capacity_step=128,
        logits_bytes=2**30,
        kept_logits_bytes=0,
        whole_norm=True,
        varlen=True,
    ),
    "mps": Abilities(fused_optimizer=False),
}


def abilities(device: torch.device) -> Abilities:
    """What this device can do."""
    return _ABILITIES.get(device.type, _ABILITIES["cpu"])


def send(values: Tensor, device: torch.device) -> Tensor:
    """The host's values on the device, without waiting for what runs there."""
    if device.type == "cuda":
        values = values.pin_memory()  # from other memory the driver may wait
    return values.to(device, non_blocking=abilities(device).asynchronous)


def fastest_kind() -> str:
    """`cuda` if there is an NVIDIA GPU, else `mps` if there is one of Apple's, else `cpu`."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def describe(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return "Apple GPU"
    return f"CPU, {torch.get_num_threads()} threads"


def memory_bytes(device: torch.device) -> int | None:
    """The memory of the device; for a CPU, that of the machine. None if it cannot be known."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def peak_memory(device: torch.device) -> float:
    """The most that this process has held until now, in GiB: of a GPU what torch's allocator reserved, else what was resident.

    NaN where it cannot be known.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / 2**30
    if device.type == "mps":
        return math.nan
    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def memory_held(device: torch.device) -> tuple[int | None, int | None]:
    """What this process holds now, and the most that it has held, in bytes: of a GPU its tensors, else what is resident.

    None where it cannot be known.
    """
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
    peak = peak_memory(device)
    most = None if math.isnan(peak) else round(peak * 2**30)
    try:
        held = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError):  # elsewhere than on Linux
        return None, most
    return held, max(held, most or 0)  # the kernel may be behind with the most


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    return {name: version(name) for name in ("groupscope", "torch", "transformers", "peft")}


def compute_dtype(device: torch.device, dtype: str) -> torch.dtype:
    """The precision of matrix products: bfloat16 where it is asked for or (`auto`) pays; weights stay float32.

    On the CPU `auto` means float32: bfloat16 is emulated there on most machines.
    """
    capable = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if dtype == "bfloat16" or (dtype == "auto" and capable) else torch.float32


def autocast(device: torch.device, dtype: str) -> AbstractContextManager[object]:
    """Matrix products in the precision of `compute_dtype`."""
    computed = compute_dtype(device, dtype)
    return nullcontext() if computed is torch.float32 else torch.autocast(device.type, dtype=computed)


def free_bytes(device: torch.device) -> int | None:
    """The GPU's memory that nothing uses; None for a CPU or Apple's GPU, which use the machine's memory."""
    if device.type != "cuda":
        return None
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch
    return torch.cuda.mem_get_info(device)[0] + unused


def cache_bytes(device: torch.device, promised: int = 0) -> int:
    """What keys and values of rows that are sampled together may take. Training will need the bytes that are promised to it."""
    free = free_bytes(device)
    return _CACHE_BYTES if free is None else max(0, int(_CACHE_SHARE * (free - promised)))


def give_back_memory() -> None:
    """Give the memory of a run that is over back to the machine, where others may wait for it."""
    gc.collect()  # a model's modules refer to each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with suppress(OSError, AttributeError, TypeError):  # elsewhere than with glibc it goes by itself
        ctypes.CDLL(None).malloc_trim(0)


def settle(device: torch.device) -> None:
    """What every process that computes does once, when its libraries are imported: their objects are never looked through again."""
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if device.type == "cuda":
        _use(device)
    keep_freed_memory()
    gc.freeze()
    gc.enable()


def keep_freed_memory() -> None:
    """Let this process keep memory that it frees during a run, for the next step's arrays of the same sizes.

    The C library gives large arrays back to the system at once and gets them again, page by page, filled with zeros: that
    takes longer than what is computed in them. Elsewhere than with glibc nothing is changed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    if mallopt(_M_MMAP_THRESHOLD, 2**30):  # where it is refused, the second alone would do harm
        mallopt(_M_TRIM_THRESHOLD, -1)  # never


Then = Callable[[Tensor], None]


class Transfers:
    """Values on their way to the host, and what is done with each there, in their order."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, Then]] = []

    def when_known(self, values: Tensor, then: Then) -> None:
        """Call `then` with the values on the CPU, at the next `fetch`."""
        self._waiting.append((values.detach(), then))

    def fetch(self) -> None:
        """Send everything over, one transfer for each type of number, and do what is to be done."""
        waiting, self._waiting = self._waiting, []
        for dtype in dict.fromkeys(values.dtype for values, _ in waiting):
            same = [(values, then) for values, then in waiting if values.dtype is dtype]
            together = torch.cat([values.reshape(-1) for values, _ in same]).cpu()
            parts = torch.split(together, [values.numel() for values, _ in same])
            for (values, then), part in zip(same, parts, strict=True):
                then(part.view(values.shape))


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
    return _first_card([int(number)] if number else range(there), shared=bool(number))


def take_devices(asked: str | None, count: int) -> tuple[list[torch.device], AbstractContextManager[object]]:
    """A device for each of `count` processes, the fastest cards that nobody has, and what holds them. On a CPU they share it.

    Raises CannotStart as `take_device` does, and for more processes than one card that was asked for.
    """
    held, devices = ExitStack(), list[torch.device]()
    if asked is not None and ":" in asked and count > 1:
        raise CannotStart(
            f"GROUPSCOPE_PROCESSES is {count}, and GROUPSCOPE_DEVICE (--device) names one card. Use cuda."
        )
    with held:
        for _ in range(count):
            device, card = take_device(asked)
            held.enter_context(card)
            devices.append(device)
        if devices[0].type == "cuda":
            torch.cuda.set_device(devices[0])
        return devices, held.pop_all()


def _first_card(cards: Sequence[int], *, shared: bool) -> tuple[torch.device, AbstractContextManager[object]]:
    """The first that answers and that no other worker has; one that others have too if it may be `shared`."""
    silent = list[str]()
    for card in cards:
        holder = None
        try:
            holder = _hold(card)
            if holder or shared:
                _use(card)
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


def _use(card: int | torch.device) -> None:
    torch.cuda.set_device(card)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would plan each new shape for 30 ms, and ours are nearly all new


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
