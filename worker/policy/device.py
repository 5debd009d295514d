"""Where the computation runs, and in which precision."""

import os
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version

import torch


def find_device() -> torch.device:
    """The accelerator where there is one (CUDA, then MPS), else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def describe(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return "Apple GPU"
    return f"CPU, {torch.get_num_threads()} threads"


def memory_bytes(device: torch.device) -> int | None:
    """The memory of the device; for a CPU, that of the machine. None where it cannot be known."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    return {name: version(name) for name in ("groupscope", "torch", "transformers", "peft")}


def autocast(device: torch.device, dtype: str) -> AbstractContextManager[object]:
    """bfloat16 for the matrix products where it is asked for or (`auto`) pays; weights stay float32.

    On the CPU `auto` means float32: bfloat16 is emulated there on most machines.
    """
    capable = device.type == "cuda" and torch.cuda.is_bf16_supported()
    if dtype == "bfloat16" or (dtype == "auto" and capable):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()
