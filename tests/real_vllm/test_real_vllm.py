"""A real vLLM server on this CPU samples for a real worker: SmolLM2, whose head is its embedding. `make test-vllm` runs it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import httpx
import pytest
from passing_proxy import proxy
from processes import Site, error_of, free_port, wait_until

from backend.contract.records import Run
from worker.policy.sources import smollm2_source

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

SCRIPT = Path(__file__).parents[2] / "scripts" / "vllm_server.sh"
INSTALLED = Path(os.environ.get("GROUPSCOPE_TEST_VLLM", ".vllm")).absolute()
STEPS, PATIENCE = 10, 900.0
ROUNDING = 1e-4
"""Nats a token between two programs that compute the same in float32, by far."""

SHORT = {"name": "short", "kind": "length", "weight": 1.0, "unit": "characters", "maximum": 0, "ramp": 200}
"""Hardly ever the same in a whole group, so that each step has something to learn."""

Way = Literal["full weights", "LoRA"]


@pytest.fixture(scope="module")
def models() -> Path:
    """The converted model, kept beside the server's installation."""
    folder = INSTALLED / "models"
    smollm2_source(folder)
    return folder


@contextmanager
def serving(models: Path, log: Path, dtype: str) -> Iterator[str]:
    """The address of a server in this precision, once it answers."""
    port = free_port()
    command = [str(SCRIPT), str(INSTALLED), smollm2_source(models), str(port), dtype]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or httpx.get(f"{url}/health").is_success, "vLLM answers", 600)
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        yield url
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with suppress(ProcessLookupError):  # all of it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in float32."""
    with serving(models, tmp_path_factory.mktemp("server") / "log", "float32") as url:
        yield url


@pytest.fixture(scope="module")
def bfloat16_server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in bfloat16."""
    with serving(models, tmp_path_factory.mktemp("server") / "log", "bfloat16") as url:
        yield url


def train(
    url: str, models: Path, home: Path, way: Way, steps: int, processes: int = 1
) -> tuple[Run, list[float], list[str]]:
    """How the run ended, `sampling_logprob_diff` of each step, and what it warned of."""
    home.mkdir(parents=True)
    (home / "models").symlink_to(models)
    settings = {"GROUPSCOPE_VLLM_URL": url, "GROUPSCOPE_VLLM_WEIGHTS": str(home / "weights")}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in settings.items():
            environment.setenv(name, value)
        site = Site(home, lease_seconds=60)
    try:
        site.backend()
        site.worker(GROUPSCOPE_PROCESSES=str(processes))
        run = site.client.create_run(configuration(way, steps) | {"compute": {"processes": processes}})
        ended = site.wait_for_end(run.id, PATIENCE)
        series = site.client.metrics(run.id, names=["sampling_logprob_diff"]).series.get("sampling_logprob_diff")
        warnings = [line.message for line in site.client.logs(run.id).items if line.level == "warning"]
        differences = [value for value in series.value if value is not None] if series else []
        return ended, differences, warnings
    finally:
        site.close()


def configuration(way: Way, steps: int) -> dict[str, object]:
    """A recipe's arithmetic, at the learning rate at which a missed update is hardest to see."""
    lora = {"lora": {"rank": 16, "alpha": 32}} if way == "LoRA" else {}
    return {
        "kind": "grpo",
        "model": {"source": "builtin:smollm2-135m-instruct"} | lora,
        "task": {"kind": "arithmetic", "operands": 2, "high": 20, "operators": ["+"], "precedence": False}
        | {"template": "What is {expression}?"},
        "rewards": {"functions": [SHORT]},
        "sampling": {"engine": "vllm", "prompts_per_step": 4, "group_size": 4, "max_new_tokens": 24},
        "optimizer": {"learning_rate": 1e-4 if lora else 1e-5, "warmup_steps": 0},
        "budget": {"steps": steps, "eval_every": 0, "checkpoint_every": 0},
    }


def shown(what: str, differences: list[float]) -> None:
    """Printed for docs/engines.md."""
    sys.stdout.write(f"\n{what}: sampling_logprob_diff {', '.join(f'{value:.1e}' for value in differences)}\n")


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("way", ["full weights", "LoRA"])
def test_every_step_is_sampled_with_its_own_weights(
    way: Way, processes: int, server: str, models: Path, tmp_path: Path
) -> None:
    run, differences, warnings = train(server, models, tmp_path / "home", way, STEPS, processes)
    shown(f"{way}, {processes} processes", differences)
    assert run.status == "finished", run.error
    assert len(differences) == STEPS
    assert max(differences) < ROUNDING
    assert warnings == []


@pytest.mark.parametrize("way", ["full weights", "LoRA"])
@pytest.mark.parametrize("checker", [True, False], ids=["emptied before", "of an older version"])
def test_a_missed_update_fails_the_run(way: Way, checker: bool, server: str, models: Path, tmp_path: Path) -> None:
    with proxy(server, swallowed={3}, checker=checker) as passing:
        run, differences, _ = train(passing.url, models, tmp_path / "home", way, STEPS)
    assert passing.loads == 3
    assert len(differences) == 2
    assert run.status == "failed"
    sys.stdout.write(f"\n{way}: {error_of(run).message}\n")
    assert error_of(run).code == "vllm_mismatch"
    assert ("did not take" if checker else "missed an update") in error_of(run).message


@pytest.mark.parametrize("way", ["full weights", "LoRA"])
def test_a_missed_update_fails_the_run_in_bfloat16_too(
    way: Way, bfloat16_server: str, models: Path, tmp_path: Path
) -> None:
    with proxy(bfloat16_server, swallowed={3}) as passing:
        run, differences, _ = train(passing.url, models, tmp_path / "home", way, STEPS)
    shown(f"bfloat16, {way}", differences)
    assert (run.status, len(differences)) == ("failed", 2)
    assert error_of(run).code == "vllm_mismatch"


def test_a_run_says_where_rounding_would_hide_a_missed_update(
    bfloat16_server: str, models: Path, tmp_path: Path
) -> None:
    with proxy(bfloat16_server, checker=False) as passing:
        run, _, warnings = train(passing.url, models, tmp_path / "home", "full weights", 3)
    assert run.status == "finished", run.error
    (warning,) = warnings
    assert "it cannot be seen whether the vLLM server takes each update" in warning
