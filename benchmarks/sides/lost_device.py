"""Processes that meet what a GPU does to them: python -m sides.lost_device poisoned|replaced cpu|cuda."""

import os
import sys
from typing import NoReturn

import torch

from worker.failure import device_lost

HELD = 2**30  # bytes


def poisoned(device: str) -> bool:
    """Whether a device-side assert is known for an error that ends all work."""
    if device == "cpu":
        return device_lost(torch.AcceleratorError("CUDA error: device-side assert triggered"))
    try:
        torch.zeros(4, device=device)[torch.tensor([9], device=device)].sum().item()
    except Exception as error:  # noqa: BLE001 — whatever it is
        return device_lost(error)
    return False


def begun_anew(device: str, before: int) -> bool:
    """Whether the memory that this process held before is gone."""
    now = _used(device)
    print(f"{before / 2**30:.2f} GiB in use, then {now / 2**30:.2f}", flush=True)
    return now < before - 0.9 * HELD


def begin_anew(device: str) -> NoReturn:
    """Hold memory, and begin anew as a worker does, under the same number."""
    held = torch.ones(HELD, dtype=torch.uint8, device=device)
    used = _used(device) * int(held[0])
    os.execv(sys.executable, [sys.executable, "-m", "sides.lost_device", "replaced", device, str(used)])  # noqa: S606 — its own


def _used(device: str) -> int:
    """Bytes in use: on a GPU by all processes, in the CPU's memory by this one."""
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        return total - free
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    what, device, *before = sys.argv[1:]
    if what == "replaced" and not before:
        begin_anew(device)
    holds = poisoned(device) if what == "poisoned" else begun_anew(device, int(before[0]))
    sys.exit(0 if holds else 3)


if __name__ == "__main__":
    main()
