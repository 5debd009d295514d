"""From a model source in a configuration to something that `from_pretrained` takes."""

from dataclasses import dataclass
from pathlib import Path

import worker.models
from backend.contract.model import checkpoint_of
from worker.errors import RunFailure
from worker.policy.smollm2 import smollm2_source

TINY_ARITHMETIC = "builtin:tiny-arithmetic"
SMOLLM2 = "builtin:smollm2-135m-instruct"


@dataclass(frozen=True)
class Pretrained:
    """What `from_pretrained` takes: a directory, or a Hub id with the revision it is pinned to."""

    location: str
    revision: str | None = None


def resolve(source: str, *, converted: Path, root: Path | None, checkpoint: Path | None) -> Pretrained:
    """Find the model that `source` names.

    `converted` keeps models converted once; `root` is where `local:` models may lie; `checkpoint` is the directory of
    the checkpoint that `run:<id>@<step>` names. Raises RunFailure `model_unavailable`.
    """
    if source == TINY_ARITHMETIC:
        return Pretrained(str(Path(worker.models.__file__).parent / "tiny_arithmetic"))
    if source == SMOLLM2:
        return Pretrained(smollm2_source(converted))
    if source.startswith("builtin:"):
        raise _unavailable(source, f"the models that come with Groupscope are {TINY_ARITHMETIC} and {SMOLLM2}")
    if source.startswith("local:"):
        return Pretrained(str(_below(root, source)))
    if checkpoint_of(source) is not None:
        if checkpoint is None or not (checkpoint / "model").is_dir():
            raise _unavailable(source, "this worker cannot reach that checkpoint")
        return Pretrained(str(checkpoint / "model"))
    location, _, revision = source.partition("@")
    return Pretrained(location, revision or None)


def _below(root: Path | None, source: str) -> Path:
    if root is None:
        raise _unavailable(source, "this worker has no model root; start it with GROUPSCOPE_MODEL_ROOT=<folder>")
    folder = (root / source.removeprefix("local:")).resolve()
    # A symbolic link may lead out of the root; the operator allowed the root alone.
    if not folder.is_relative_to(root.resolve()) or not (folder / "config.json").is_file():
        raise _unavailable(source, f"there is no model directory of that name (with a config.json) below {root}")
    return folder


def _unavailable(source: str, why: str) -> RunFailure:
    return RunFailure("model_unavailable", f"The model {source} cannot be loaded: {why}.")
