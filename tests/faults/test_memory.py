"""A worker that has left a run gives its memory back to the machine, also one that was paused and found its run taken."""

import shutil
import signal
from pathlib import Path

import psutil
import pytest
import torch
from processes import Site, tiny_run, wait_until
from transformers import LlamaConfig, LlamaForCausalLM

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.thorough]

MIB = 2**20
TINY = Path(__file__).parents[2] / "worker" / "models" / "tiny_arithmetic"


def larger_model(root: Path) -> int:
    """A model beside the tiny one's tokenizer, with random weights; their bytes."""
    root.mkdir()
    shutil.copytree(TINY, root / "larger")
    config = LlamaConfig.from_pretrained(
        TINY, hidden_size=512, intermediate_size=2048, num_hidden_layers=8, head_dim=128
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(root / "larger")
    return sum(weight.numel() * torch.float32.itemsize for weight in model.parameters())


def test_a_paused_worker_that_lost_its_run_gives_its_memory_back(site: Site) -> None:
    weights = larger_model(site.home / "root")
    site.backend()
    stalled = site.worker(GROUPSCOPE_MODEL_ROOT=str(site.home / "root"))
    memory = psutil.Process(stalled.pid).memory_info
    assert site.wait_for_end(site.client.create_run(tiny_run(2)).id).status == "finished"
    idle = memory().rss
    run = site.client.create_run(tiny_run(400, every=0, model={"source": "local:larger"}))
    site.wait_for_step(run.id, 2)
    busy = memory().rss
    assert busy > idle + 3 * weights, (
        f"{(busy - idle) / MIB:.0f} MiB more: weights, two moments and gradients are 4 times the weights"
    )
    stalled.send_signal(signal.SIGSTOP)
    site.worker(GROUPSCOPE_MODEL_ROOT=str(site.home / "root"))
    wait_until(lambda: site.client.run(run.id).attempt == 2, "the second worker takes the run")
    stalled.send_signal(signal.SIGCONT)
    wait_until(lambda: "left run" in (site.home / "worker.main.log").read_text(), "the stalled worker notices")
    site.client.command(run.id, "stop")
    wait_until(lambda: memory().rss < idle + weights / 2, "its memory is given back", 60)
