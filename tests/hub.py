"""A cache of the Hub, as a download leaves it: one model, of which there are two commits with different weights."""

import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from worker.policy.sources import TINY_ARITHMETIC, resolve

NAME = "owner/name"
FIRST, SECOND = "a" * 40, "b" * 40


class Hub:
    """The cache in a folder; `main` is the first commit."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "hub"
        self._model = self.cache / "models--owner--name"
        tiny = resolve(TINY_ARITHMETIC, converted=folder, root=None, checkpoint=None).location
        for commit in (FIRST, SECOND):
            shutil.copytree(tiny, self._model / "snapshots" / commit)
        [weights] = (self._model / "snapshots" / SECOND).glob("*.safetensors")
        changed = {name: -tensor for name, tensor in load_file(weights).items()}
        save_file(changed, weights, {"format": "pt"})
        (self._model / "refs").mkdir()
        self.move_main(FIRST)

    def move_main(self, commit: str) -> None:
        """What a push to the model's repository does."""
        (self._model / "refs" / "main").write_text(commit)
