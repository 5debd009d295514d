"""Files of tensors that may lie in shards. What is written does not tell by how many processes: any number of them loads it."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import save

from worker.ranks.ranks import Ranks


def write_tensors(file: Path, tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
    """One safetensors file. Every process writes the parts that it holds, and the first one puts them together, tensor by tensor.

    For a moment it takes twice its place. Raises in every process what one of them met.
    """
    if not tensors or not ranks.in_shards:
        if ranks.first:
            save_file({name: values.detach().cpu().contiguous() for name, values in tensors.items()}, str(file))
        return
    parts = file.with_suffix(".parts")
    writer = HuggingFaceStorageWriter(str(parts), save_distributed=True, enable_consolidation=True)
    # Of a tensor without an axis the library writes a zero, so a single number gets one.
    state = {name: values.detach().reshape(values.shape or (1,)) for name, values in tensors.items()}
    try:
        save(state, storage_writer=writer)
    except CheckpointException as error:  # no Exception: nobody who catches those would see why
        raise next(iter(error.failures.values()))[0] from None
    if ranks.first:
        (whole,) = parts.glob("*.safetensors")
        os.replace(whole, file)
        shutil.rmtree(parts)
