"""What every test that starts processes shares."""

import sys
from types import ModuleType

import pytest
import zygote


@pytest.fixture(autouse=True)
def _plain_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is spawned imports the main module first, and a test of a page may have left one of Streamlit's there."""
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))


@pytest.fixture(autouse=True, scope="session")
def _nursery() -> None:
    """Those that are spawned do not import torch anew."""
    zygote.spawn_from_a_nursery("worker.compute", "transformers.models.llama.modeling_llama")
