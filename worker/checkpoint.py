"""Checkpoints: they exist entirely or not at all, and hold safetensors and JSON only.

    <store>/run-7/step-20-attempt-1/
        model/                  what from_pretrained opens
        optimizer.safetensors   the optimizer's moments, by parameter name
        value_head.safetensors  PPO's critic, where there is one
        reference.safetensors   the reference that follows the policy, where there is one
        prompts.safetensors     what a curriculum has seen of each prompt, where there is one
        reference_logprobs.safetensors  what DPO's reference said of the pairs judged so far
        state.json              the step, the prompt cursor, what the next step depends on
        manifest.json           size and SHA-256 of every file; its own hash is the checkpoint's

Checkpoint k means that k steps are done.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from backend.bucket.bucket import MANIFEST
from worker.errors import RunFailure
from worker.policy.classifier import RewardModel
from worker.policy.policy import Policy
from worker.ranks.files import write_tensors
from worker.ranks.sharding import as_held

NAME = re.compile(r"step-(\d+)-attempt-(\d+)")
"""What the folder of a checkpoint is called."""
_PARTIAL = re.compile(r"\.(?:step-\d+|trunk)-attempt-(\d+)\.partial")
_REMOVED = ".step-*.removed"
_ABANDONED_SECONDS = 3600.0  # without a change; writing the largest file takes minutes
_VALUE_HEAD = "value_head."


Tensors = Mapping[str, torch.Tensor]
Trained = Policy | RewardModel
"""What is trained, and can be saved so that `from_pretrained` opens it."""


@dataclass(frozen=True)
class TrainingState:
    """What the next step depends on beside the weights: step k is next when k steps are done."""

    step: int
    cursor: int  # items drawn so far
    num_tokens: int  # of prompts and completions so far
    samples: int  # completions so far
    elapsed_seconds: float
    computed_by: str = ""  # the paths that were on: another machine, or one without them, rounds differently

    def after_step(self, *, drawn: int, tokens: int, samples: int) -> "TrainingState":
        """With one step more: the items drawn for it, the tokens of prompts and completions, and the completions."""
        return replace(
            self,
            step=self.step + 1,
            cursor=self.cursor + drawn,
            num_tokens=self.num_tokens + tokens,
            samples=self.samples + samples,
        )


@dataclass(frozen=True)
class Saved:
    """A checkpoint on the disk."""

    folder: Path
    sha256: str
    size_bytes: int


def write_checkpoint(
    folder: Path,
    trained: Trained,
    optimizer: torch.optim.Optimizer,
    state: TrainingState,
    more: Mapping[str, Tensors | None] = MappingProxyType({}),
) -> None:
    """Write a checkpoint's files under another name, `more` by the names of theirs; the weights may change afterwards. Complete it, or discard it."""
    partial, ranks = _partial(folder), trained.ranks
    try:
        if ranks.first:
            discard_checkpoint(folder)
            partial.mkdir(parents=True)
        ranks.of_first(None)
        trained.save(partial / "model")
        moments = {
            f"{name}::{key}": value
            for name, parameter in trained.named_parameters()
            for key, value in optimizer.state.get(parameter, {}).items()
        }
        head = {name: weight for name, weight in trained.named_parameters() if name.startswith(_VALUE_HEAD)}
        for name, tensors in {"optimizer": moments, "value_head": head, **more}.items():
            if tensors or name == "optimizer":
                write_tensors(partial / f"{name}.safetensors", tensors or {}, ranks)
        if ranks.first:
            (partial / "state.json").write_text(json.dumps(asdict(state), indent=1))
    except BaseException:
        discard_checkpoint(folder)
        raise


def complete_checkpoint(folder: Path) -> Saved:
    """Hash what was written, force it to the disk, and rename it. Replaces an older one of that name."""
    partial = _partial(folder)
    try:
        written = [path for path in sorted(partial.rglob("*")) if path.is_file()]
        files = {str(path.relative_to(partial)): describe(path) for path in written}
        manifest = json.dumps({"files": files}, indent=1).encode()
        (partial / MANIFEST).write_bytes(manifest)
        for path in [*partial.rglob("*"), partial]:
            _force_to_disk(path)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
    finally:
        discard_checkpoint(folder)
    _force_to_disk(folder.parent)
    return Saved(folder, hashlib.sha256(manifest).hexdigest(), sum(int(file["size"]) for file in files.values()))


def discard_checkpoint(folder: Path) -> None:
    """Remove what was written and not completed: a full disk should have its space back."""
    shutil.rmtree(_partial(folder), ignore_errors=True)


def _partial(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.partial")


def damage(folder: Path, sha256: str | None = None, *, part: str = "") -> str | None:
    """What is not as the manifest says, or as `sha256` says of the manifest, in words; None where all is whole.

    `part`: look at the files alone whose path begins so.
    """
    if not folder.is_dir():
        return "it is gone"
    try:
        manifest = (folder / MANIFEST).read_bytes()
        if sha256 is not None and hashlib.sha256(manifest).hexdigest() != sha256:
            return f"hash of {MANIFEST} differs"
        for name, described in json.loads(manifest)["files"].items():
            if name.startswith(part) and (found := describe(folder / name)) != described:
                return f"{'hash' if found['size'] == described['size'] else 'size'} of {name} differs"
    except OSError as error:
        return f"{Path(error.filename or MANIFEST).name} cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is not a manifest"
    return None


def load_state(folder: Path) -> TrainingState:
    """The training state of a whole checkpoint. Raises RunFailure `checkpoint_unreadable`."""
    try:
        return TrainingState(**json.loads((folder / "state.json").read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise RunFailure("checkpoint_unreadable", f"The checkpoint {folder} cannot be read: {error}") from error


def load_optimizer(folder: Path, trained: Trained, optimizer: torch.optim.Optimizer) -> None:
    """Put the saved moments back, and the value head where there is one; the model itself is loaded from `model/`.

    Raises RunFailure `checkpoint_unreadable` where a file cannot be read.
    """
    tensors = load_tensors(folder, "optimizer", trained.device if trained.ranks.alone else "cpu")
    for name, parameter in trained.named_parameters():
        prefix = f"{name}::"
        moments = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        if moments:
            step = moments.pop("step").reshape(()).to(trained.device)
            optimizer.state[parameter] = {
                "step": step,
                **{key: as_held(parameter, value) for key, value in moments.items()},
            }
    head = [(name, parameter) for name, parameter in trained.named_parameters() if name.startswith(_VALUE_HEAD)]
    if head:
        saved = load_tensors(folder, "value_head", trained.device)
        for name, parameter in head:
            parameter.data.copy_(saved[name].view_as(parameter))


def load_reference(folder: Path, policy: Policy) -> None:
    """Put the reference back that followed the policy. Raises RunFailure `checkpoint_unreadable`."""
    policy.set_reference(load_tensors(folder, "reference", policy.device))


def load_tensors(folder: Path, name: str, device: torch.device | str = "cpu") -> dict[str, torch.Tensor]:
    """The tensors of one file of a checkpoint. Raises RunFailure `checkpoint_unreadable`."""
    try:
        return load_file(str(folder / f"{name}.safetensors"), device=str(device))
    except (OSError, SafetensorError) as error:
        raise RunFailure("checkpoint_unreadable", f"The checkpoint {folder} cannot be read: {error}") from error


def remove_checkpoints(folder: Path, kept: Collection[str], *, upto: tuple[int, int]) -> None:
    """Remove a run's checkpoints up to an attempt and a step, except those `kept` (paths relative to the store).

    Each gets another name first, so that one whose removal a kill cuts short is not taken for a checkpoint.
    """
    for path in folder.glob("step-*"):
        named = NAME.fullmatch(path.name)
        if named and (int(named[2]), int(named[1])) <= upto and f"{folder.name}/{path.name}" not in kept:
            with suppress(OSError):  # what cannot go now is looked for again beside the next one
                os.replace(path, path.with_name(f".{path.name}.removed"))
    for removed in folder.glob(_REMOVED):
        shutil.rmtree(removed, ignore_errors=True)


def remove_unfinished(folder: Path, *, before: int) -> None:
    """Remove what a run's attempts before this one were writing when they ended: nobody completes it any more."""
    for partial in folder.glob(".*.partial"):
        named = _PARTIAL.fullmatch(partial.name)
        if named and int(named[1]) < before:
            shutil.rmtree(partial, ignore_errors=True)


def remove_partial(store: Path) -> None:
    """Remove what a crash in the middle of saving, or of removing, left.

    Of those partly written, what changed lately may be a checkpoint that another worker writes.
    """
    for removed in store.glob(f"run-*/{_REMOVED}"):
        shutil.rmtree(removed, ignore_errors=True)
    for partial in store.glob("run-*/.*.partial"):
        changes = (path.stat().st_mtime for path in [partial, *partial.rglob("*")])
        with suppress(FileNotFoundError):  # another worker completes it, or removes it, in this moment
            if time.time() - max(changes) > _ABANDONED_SECONDS:
                shutil.rmtree(partial, ignore_errors=True)


def describe(path: Path) -> dict[str, str | int]:
    """A file as the manifest has it."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
