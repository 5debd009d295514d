"""What every test of the worker shares."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Small matrices gain nothing from a second thread, and the tests share the machine."""
    torch.set_num_threads(1)
