"""Adapters (LoRA, through PEFT) that somebody else may have written: no pickle is read, and no setting runs code.

PEFT falls back to a pickle where it finds no safetensors file, and some of its settings name files and modules to import. So
the file must be there, and settings other than those that say how a plain LoRA is applied are refused.
"""

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import cast

from peft import LoraConfig, LoraModel, PeftModel, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import safe_open
from transformers import PreTrainedModel

from worker.errors import RunFailure
from worker.failure import opening
from worker.policy.trainable import stored_oddly
from worker.ranks.files import write_tensors
from worker.ranks.ranks import ALONE, Ranks
from worker.ranks.sharding import whole

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

# How the adapter is applied.
_APPLIED = frozenset(
    "task_type peft_type r lora_alpha target_modules exclude_modules target_parameters fan_in_fan_out bias use_rslora use_dora "
    "modules_to_save layers_to_transform layers_pattern rank_pattern alpha_pattern lora_bias revision".split()
)
# Where it comes from and how it was trained: of no matter to weights that are there.
_IGNORED = frozenset(
    ["base_model_name_or_path", "inference_mode", "lora_dropout", "peft_version", "auto_mapping", "runtime_config"]
)
# How its weights begin; other ways change the base's weights, too.
_BEGINNINGS = (True, False, "gaussian", "orthogonal", "eva")


def settings_of(folder: Path) -> dict[str, object]:
    """What `adapter_config.json` says. Raises RunFailure `model_unavailable` if that cannot be read."""
    try:
        settings = json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise _unavailable(folder, f"its {CONFIG} cannot be read ({error})") from error
    if not isinstance(settings, dict):
        raise _unavailable(folder, f"its {CONFIG} holds no settings")
    return settings


def with_adapter(base: PreTrainedModel, folder: Path, *, trainable: bool = False) -> PeftModel:
    """The base with the adapter of a folder, whole. Raises RunFailure `model_unavailable`, also if these do not fit."""
    _require_weights(folder)
    with opening(partial(_unavailable, folder)):
        config = _config(folder)
        if why := stored_oddly([folder / WEIGHTS]):
            raise ValueError(why)
        try:
            model = PeftModel.from_pretrained(
                base, str(folder), config=config, is_trainable=trainable, torch_device="cpu"
            )
        except KeyError as error:
            raise ValueError(f"{WEIGHTS} lacks {error}, which its {CONFIG} names") from error
        brought, asked = _keys(folder), set(get_peft_model_state_dict(model, save_embedding_layers=False))
        held = cast(PreTrainedModel, model.get_base_model()).named_parameters(remove_duplicate=False)
        unknown = brought - asked - {f"base_model.model.{name}" for name, _ in held}
        for names, what in ((asked - brought, "lacks"), (unknown, "has, and its base has no place for,")):
            if names:  # PEFT would be silent
                text = f"{WEIGHTS} {what} {len(names)} of its weights ({', '.join(sorted(names)[:2]):.200})"
                raise ValueError(f"{text}; its keys may have been renamed, or it belongs to another base")
        return model


def _keys(folder: Path) -> set[str]:
    with safe_open(folder / WEIGHTS, "np") as weights:
        return set(weights.keys())


def lacks(folder: Path, names: Iterable[str]) -> list[str]:
    """Which of these parameters of its base an adapter does not bring itself. Raises RunFailure `model_unavailable`."""
    _require_weights(folder)
    with opening(partial(_unavailable, folder)):
        own = _keys(folder)
    return [name for name in sorted(names) if f"base_model.model.{name}" not in own]


def _require_weights(folder: Path) -> None:
    """Raises RunFailure if there is no safetensors file."""
    if not (folder / WEIGHTS).is_file():
        has = "only a pickle, which could run code" if (folder / "adapter_model.bin").exists() else "no weights"
        raise _unavailable(folder, f"it holds {has}; save it again with a newer PEFT, which writes {WEIGHTS}")


def merged(adapted: PeftModel, folder: Path) -> PreTrainedModel:
    """The base with the adapter of a folder as part of its weights, all of which can be trained."""
    base = cast(PreTrainedModel, adapted.get_base_model())
    ends = base.get_input_embeddings(), base.get_output_embeddings()  # type: ignore[no-untyped-call]
    if base.config.get_text_config().tie_word_embeddings and any(isinstance(end, BaseTunerLayer) for end in ends):
        raise _unavailable(
            folder, "it changes the embedding or the head of a model in which both are one: merging would change both"
        )
    with opening(partial(_unavailable, folder)):
        model = cast(PreTrainedModel, cast(LoraModel, adapted.base_model).merge_and_unload())
    model.requires_grad_(True)
    model.name_or_path = str(folder)
    return model


def _config(folder: Path) -> LoraConfig:
    """The settings of a plain LoRA. Raises ValueError for any that would do something else."""
    settings = settings_of(folder)
    if settings.get("peft_type") != "LORA":
        raise ValueError(f"it is of the kind {settings.get('peft_type')!r:.50}, and only LORA is supported")
    for name, value in settings.items():
        usual = _BEGINNINGS if name == "init_lora_weights" else (getattr(LoraConfig, name, None),)
        if value and value not in usual and name not in _APPLIED | _IGNORED:
            raise ValueError(f"it uses {name:.50}, which is not supported; merge it into its base model first")
    return LoraConfig(**{name: value for name, value in settings.items() if name in _APPLIED - {"peft_type"}})  # type: ignore[arg-type]


def _unavailable(folder: Path, why: str, details: str | None = None) -> RunFailure:
    return RunFailure("model_unavailable", f"The adapter {folder} cannot be loaded: {why}.", details)


def name_base(base: PreTrainedModel, name: str) -> None:
    """Call the base what a person can use elsewhere: PEFT writes it into what it saves."""
    base.name_or_path = base.config.name_or_path = name


def save_model(model: PreTrainedModel | PeftModel, folder: Path, ranks: Ranks = ALONE) -> None:
    """Write what `from_pretrained` opens: the model, or the adapter. Safetensors and JSON only."""
    if isinstance(model, PeftModel):
        trained = None
        if ranks.in_shards:
            trained = {name: whole(one.detach()).cpu() for name, one in model.named_parameters() if one.requires_grad}
        if ranks.first:
            # The base's embeddings never change. Without this PEFT asks the Hub for their size at each save.
            model.save_pretrained(str(folder), save_embedding_layers=False, state_dict=trained)
    elif not ranks.in_shards:
        if ranks.first:
            model.save_pretrained(str(folder))
    else:
        if ranks.first:
            folder.mkdir()
            model.config.save_pretrained(str(folder))
            if model.generation_config is not None:
                model.generation_config.save_pretrained(str(folder))
        ranks.of_first(None)
        write_tensors(folder / "model.safetensors", dict(model.named_parameters()), ranks)
