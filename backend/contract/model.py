"""Which model a run trains: a source, a precision, and whether adapters are trained instead of all the weights."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from backend.contract.base import Frozen

# Spelled out, because \w would let other alphabets through (a look-alike letter names another repository).
_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_BUILTIN = re.compile(r"builtin:[a-z0-9][a-z0-9.-]*")
_LOCAL = re.compile(rf"local:{_SEGMENT}(/{_SEGMENT})*")
_RUN = re.compile(r"run:([1-9][0-9]{0,17})@([0-9]{1,9})")
_HUB = re.compile(rf"{_SEGMENT}(/{_SEGMENT})?(@[A-Za-z0-9][A-Za-z0-9._-]*)?")

SOURCE_HELP = (
    "builtin:<name>, a Hub id such as Qwen/Qwen2.5-0.5B-Instruct (optionally @revision), local:<folder> under the "
    "worker's model root, or run:<id>@<step> for a checkpoint of another run"
)


def checkpoint_of(source: str) -> tuple[int, int] | None:
    """The (run id, step) that a source `run:<id>@<step>` names; None for any other source."""
    match = _RUN.fullmatch(source)
    return (int(match[1]), int(match[2])) if match else None


def _known_form(source: str) -> str:
    if any(form.fullmatch(source) for form in (_BUILTIN, _LOCAL, _RUN)):
        return source
    if ":" not in source and ".." not in source and _HUB.fullmatch(source):
        return source
    raise ValueError(f"{source!r} names no model; use {SOURCE_HELP}")


ModelSource = Annotated[str, Field(max_length=300), AfterValidator(_known_form)]


class Lora(Frozen):
    """Low-rank adapters (LoRA, through PEFT); the reference policy is then the same weights with adapters off."""

    rank: Annotated[int, Field(ge=1, le=512)] = Field(
        16, description="Rank of the update; higher learns more, costs more."
    )
    alpha: Annotated[int, Field(ge=1, le=4096)] = Field(
        32, description="Scale of the update: alpha / rank multiplies it."
    )
    target_modules: Annotated[list[str], Field(min_length=1, max_length=32)] | Literal["all-linear"] = Field(
        "all-linear", description="Which layers get adapters: all linear layers, or a list of module names."
    )


class Model(Frozen):
    """The policy at step 0."""

    source: ModelSource = Field("builtin:tiny-arithmetic", description=f"One of: {SOURCE_HELP}.")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="Precision of the computation. auto: bfloat16 autocast on a GPU that has it, float32 elsewhere. "
        "Master weights and optimizer state stay float32: pure bfloat16 rounds small updates away.",
    )
    lora: Lora | None = Field(None, description="Train low-rank adapters instead of all the weights.")
    gradient_checkpointing: bool = Field(
        False, description="Recompute activations in the backward pass: less memory, about a third more time."
    )
