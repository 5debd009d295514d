"""A device that is lost or memory that runs out: a clean process takes the place of the worker's, and the next run trains.

The run goes on, or fails with the sizes tried. A worker that has left a run gives its memory back.
"""

import shutil
import signal
from pathlib import Path

import psutil
import pytest
import torch
from processes import Site, assert_failed, tiny_run, wait_until
from transformers import LlamaConfig, LlamaForCausalLM
from worker_failing_backward import ERRORS, TRIED

from backend.contract.records import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.thorough]

MIB = 2**20
FAILING = "tests.faults.worker_failing_backward"
ROOM = 600 * MIB
"""Bytes that a worker may take beside those of a small run."""
TOO_LARGE = {"prompts_per_step": 64, "group_size": 128}
"""Completions whose keys and values alone take twice that."""
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
    assert site.run_to_end(tiny_run(2)).status == "finished"
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


def assert_failed_once_and_the_next_run_finishes(site: Site, failed: Run, process: psutil.Process) -> str:
    """What the run says."""
    said = assert_failed(failed, "out_of_memory", "group_size")  # what to do
    assert failed.attempt == 1
    assert site.run_to_end(tiny_run(2)).status == "finished"
    assert process.is_running()
    (log,) = site.home.glob("*worker*.log")
    assert log.read_text().count("starting again with a clean process") == 1
    return said


@pytest.mark.long
def test_memory_that_runs_out_in_sampling(site: Site) -> None:
    site.backend()
    process = psutil.Process(site.worker().pid)
    assert site.run_to_end(tiny_run(2)).status == "finished"
    process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms + ROOM, -1))
    failed = site.run_to_end(tiny_run(2, sampling=TOO_LARGE))
    said = assert_failed_once_and_the_next_run_finishes(site, failed, process)
    assert "tried to allocate" in said


def test_memory_that_runs_out_in_the_backward_pass(site: Site) -> None:
    site.backend()
    process = psutil.Process(site.worker(module=FAILING, TEST_BACKWARD="memory").pid)
    said = assert_failed_once_and_the_next_run_finishes(site, site.run_to_end(tiny_run(2)), process)
    assert f"tried to allocate {TRIED} bytes" in said
    assert "worker.main" in process.cmdline()


@pytest.mark.parametrize(
    "error", ["assert", *(pytest.param(name, marks=pytest.mark.long) for name in ERRORS if name != "assert")]
)
def test_a_lost_device_replaces_the_process_and_the_run_goes_on(site: Site, error: str) -> None:
    site.backend()
    worker = site.worker(module=FAILING, TEST_BACKWARD=error)
    ended = site.run_to_end(tiny_run(6, every=2))
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 1)
    assert str(ERRORS[error]) in site.said(ended.id)
    assert "resumed from checkpoint 2" in site.said(ended.id)
    assert site.run_to_end(tiny_run(2)).attempt == 1
    process = psutil.Process(worker.pid)
    assert "worker.main" in process.cmdline()
    (written,) = site.home.glob("*worker*.log")
    assert written.read_text().count("starting again with a clean process") == 1
