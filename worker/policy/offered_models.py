"""Which models this worker can open without a download: below its model root and in its cache of the Hub.

No weight is loaded: dimensions come from config.json, the number of parameters from the headers of the safetensors files.
"""

import logging
import os
import threading
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice
from math import prod
from pathlib import Path

from huggingface_hub import constants, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from pydantic import TypeAdapter, ValidationError
from safetensors import safe_open
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from backend.contract.model import ModelSource
from backend.contract.model_shape import COUNTED, ModelShape, shape_in
from backend.contract.records import MOST_MODELS, OfferedModel
from worker.errors import RunFailure
from worker.failure import opening
from worker.policy import adapter
from worker.policy.sources import resolve
from worker.policy.trainable import SHARDS, WEIGHTS, read_by_the_loader, why_no_numbers, why_untrainable

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
DEEPEST = 3  # folders below the model root
_TRAINABLE = frozenset(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
_CONFIG = "config.json"
_NAMED: TypeAdapter[str] = TypeAdapter(ModelSource)
Stamp = tuple[str, int, int]


class OfferedModels:
    """Looks every few seconds while it is entered; `models` is what was found, at most `MOST_MODELS`."""

    def __init__(self, root: Path | None, converted: Path, cache: Path | None = None) -> None:
        """`converted` is where models that came along are kept, on which an adapter may lie."""
        self._root, self._converted = root, converted
        self._cache = Path(constants.HF_HUB_CACHE) if cache is None else cache
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="offered-models", daemon=True)
        self.models: list[OfferedModel] = []

    def __enter__(self) -> "OfferedModels":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 — a disk that went away comes back, or says so when a run needs it
                log.warning("the models cannot be listed: %s", error)
            if self._ended.wait(LOOK_SECONDS):
                return

    def look(self) -> None:
        """List them now."""
        self.models = list(islice(chain(self._local(), self._downloaded()), MOST_MODELS))

    def _local(self) -> Iterator[OfferedModel]:
        """The directories below the model root that hold a model or an adapter, by name."""
        for folder in _model_folders(self._root) if self._root is not None else ():
            source = f"local:{folder.relative_to(self._root).as_posix()}"  # type: ignore[arg-type]  # there is a root
            try:
                _NAMED.validate_python(source)
                opened = resolve(source, converted=self._converted, root=self._root, checkpoint=None, make=False)
            except ValidationError:  # no configuration could name it
                continue
            except (RunFailure, OSError) as refusal:
                yield OfferedModel(source=source, problem=str(refusal))
                continue
            while opened.base is not None:  # an adapter, which becomes part of what lies under it
                opened = opened.base
            folder = Path(opened.location)
            # SmolLM2 is made, or fetched, when a run needs it; its size is known from then on.
            found = _described(source, folder) if folder.is_dir() else OfferedModel(source=source)
            lacks = _missing_weights(folder) if folder.is_dir() and found.problem is None else None
            yield found.model_copy(update={"problem": lacks}) if lacks else found

    def _downloaded(self) -> Iterator[OfferedModel]:
        """The language models in the cache of the Hub."""
        for kept in sorted(self._cache.glob("models--*")):
            name = kept.name.removeprefix("models--").replace("--", "/")
            try:
                _NAMED.validate_python(name)
                config = try_to_load_from_cache(name, _CONFIG, cache_dir=self._cache)
            except (ValidationError, HFValidationError):
                continue
            if not isinstance(config, str):  # another revision than main, perhaps
                config = next((str(path) for path in sorted(kept.glob(f"snapshots/*/{_CONFIG}"))), None)
            if config is not None and (found := _described(name, Path(config).parent)).problem is None:
                yield found


def _model_folders(root: Path) -> Iterator[Path]:
    """The folders that hold a model, in their order; nothing within one, nothing hidden, nothing behind a link."""
    for path, folders, files in os.walk(root):
        folder = Path(path)
        holds = folder != root and not {_CONFIG, adapter.CONFIG}.isdisjoint(files)
        deep = len(folder.relative_to(root).parts) >= DEEPEST
        folders[:] = [] if holds or deep else sorted(name for name in folders if not name.startswith("."))
        if holds:
            yield folder


def _described(source: str, folder: Path) -> OfferedModel:
    """The model of a folder; what is wrong with it, if its files cannot be read."""
    try:
        files = [path for path in sorted(folder.iterdir()) if path.suffix in (".json", ".safetensors")]
        stamps = tuple((path.name, (found := path.stat()).st_mtime_ns, found.st_size) for path in files)
        return _read(folder, stamps).model_copy(update={"source": source})
    except (RunFailure, OSError) as error:
        return OfferedModel(source=source, problem=str(error))


def _missing_weights(folder: Path) -> str | None:
    """What a model below the root lacks to be loaded; None if it has its weights."""
    wanted = read_by_the_loader(folder)
    if gone := sorted(name for name in wanted if not (folder / name).is_file()):
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        return f"it lacks {gone[0]:.100}{more}, which its {SHARDS} names; copy or download its weights again"
    if wanted:
        return None
    return f"it has no weights in a safetensors file that is loaded; put {WEIGHTS} beside its config.json"


@lru_cache(maxsize=2 * MOST_MODELS)
def _read(folder: Path, stamps: tuple[Stamp, ...]) -> OfferedModel:
    """What the files say, read once for each state of them. Raises RunFailure."""
    with opening(lambda why, _: RunFailure("model_unavailable", f"{folder.name} cannot be read: {why}")):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        weights = [name for name, *_ in stamps if name in read_by_the_loader(folder)]
        parameters = sum(_parameters(folder / name) for name in weights) if weights else None
        kinds = config.architectures or [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type, config.model_type)]
        if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
            raise ValueError('architectures in its config.json must be a list of names, as in ["LlamaForCausalLM"]')
    # transformers goes by the type alone, and old or own names of an architecture say no less
    named = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    causal = any(kind in _TRAINABLE or (named and "CausalLM" in kind) for kind in kinds)
    problem: str | None = f"it is of the kind {kinds[0]:.100}, and only causal language models are trained"
    if causal:
        with opening(lambda why, _: RunFailure("model_unavailable", f"{folder.name} cannot be read: {why}")):
            problem = why_untrainable(config) or why_no_numbers(folder)
    shape = shape_of(config)
    return OfferedModel(
        source=folder.name, parameters=parameters or (shape.parameters if shape else None), shape=shape, problem=problem
    )


def _parameters(weights: Path) -> int:
    """How many numbers a safetensors file holds, by its header."""
    with safe_open(weights, "np") as tensors:
        return sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118 — no mapping


def shape_of(config: PreTrainedConfig) -> ModelShape | None:
    """The dimensions; None for an architecture that is not one of `COUNTED`, or has other layers than its name says."""
    if config.model_type not in COUNTED:
        return None
    try:
        return shape_in(config.to_dict())
    except ValueError:
        return None
