"""Checkpoints: they exist entirely or not at all, and hold safetensors and JSON only.

    <store>/run-7/step-20-attempt-1/
        model/                  what from_pretrained opens
        optimizer.safetensors   the optimizer's moments, by parameter name
        state.json              the step, the prompt cursor, what the next step depends on
        manifest.json           size and SHA-256 of every file; its own hash is the checkpoint's

Checkpoint k means that k steps are done.
"""

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from worker.errors import RunFailure
from worker.policy.policy import Policy

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class TrainingState:
    """What the next step depends on beside the weights: step k is next when k steps are done."""

    step: int
    cursor: int  # items drawn so far
    num_tokens: int  # of prompts and completions so far
    samples: int  # completions so far
    elapsed_seconds: float


@dataclass(frozen=True)
class Saved:
    """A checkpoint on the disk."""

    folder: Path
    sha256: str
    size_bytes: int


def save_checkpoint(folder: Path, policy: Policy, optimizer: torch.optim.Optimizer, state: TrainingState) -> Saved:
    """Write a checkpoint under another name, force it to the disk, and rename it. Replaces an older one of that name."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        policy.save(partial / "model")
        save_file(_optimizer_tensors(policy, optimizer), str(partial / "optimizer.safetensors"))
        (partial / "state.json").write_text(json.dumps(asdict(state), indent=1))
        manifest, size = _write_manifest(partial)
        for path in [*partial.rglob("*"), partial]:
            _force_to_disk(path)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # of one that did not fit: a full disk should have its space back
    _force_to_disk(folder.parent)
    return Saved(folder, hashlib.sha256(manifest).hexdigest(), size)


def _write_manifest(folder: Path) -> tuple[bytes, int]:
    """The manifest of a folder's files, and their size in all."""
    files = {str(path.relative_to(folder)): _describe(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    manifest = json.dumps({"files": files}, indent=1).encode()
    (folder / _MANIFEST).write_bytes(manifest)
    return manifest, sum(int(file["size"]) for file in files.values())


def is_whole(folder: Path, sha256: str | None = None) -> bool:
    """Whether every file is as the manifest says, and the manifest as `sha256` says."""
    try:
        manifest = (folder / _MANIFEST).read_bytes()
        files = json.loads(manifest)["files"]
        return (sha256 is None or hashlib.sha256(manifest).hexdigest() == sha256) and all(
            _describe(folder / name) == described for name, described in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def load_state(folder: Path) -> TrainingState:
    """The training state of a whole checkpoint. Raises RunFailure `checkpoint_unreadable`."""
    try:
        return TrainingState(**json.loads((folder / "state.json").read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise RunFailure("checkpoint_unreadable", f"The checkpoint {folder} cannot be read: {error}") from error


def load_optimizer(folder: Path, policy: Policy, optimizer: torch.optim.Optimizer) -> None:
    """Put the saved moments back. Raises RunFailure `checkpoint_unreadable` where the file cannot be read."""
    try:
        tensors = load_file(str(folder / "optimizer.safetensors"), device=str(policy.device))
        for name, parameter in _trained(policy):
            prefix = f"{name}::"
            moments = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            if moments:
                optimizer.state[parameter] = moments
    except (OSError, SafetensorError) as error:
        raise RunFailure("checkpoint_unreadable", f"The checkpoint {folder} cannot be read: {error}") from error


def weights_hash(policy: Policy) -> str:
    """SHA-256 over all trained weights: equal exactly if the weights are."""
    digest = hashlib.sha256()
    for name, parameter in _trained(policy):
        digest.update(name.encode())
        digest.update(parameter.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def remove_partial(store: Path) -> None:
    """Remove what a crash in the middle of saving left."""
    for partial in store.glob("run-*/.*.partial"):
        shutil.rmtree(partial, ignore_errors=True)


def _trained(policy: Policy) -> list[tuple[str, torch.nn.Parameter]]:
    return [(name, parameter) for name, parameter in policy.model.named_parameters() if parameter.requires_grad]


def _optimizer_tensors(policy: Policy, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{name}::{key}": value.detach().cpu().contiguous()
        for name, parameter in _trained(policy)
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _describe(path: Path) -> dict[str, str | int]:
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
