"""Runs that hang: a stop, a second stop, a deadline and a shutdown end them, the page says why, and the worker takes the next run."""

import json
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from processes import Site, assert_failed, error_of, tiny_run, wait_until

import worker.models
from backend.contract.client import ApiError

pytestmark = pytest.mark.slow

LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"  # of years
SHORT = {"GROUPSCOPE_STOP_SECONDS": "1"}
QUICK = "tests.faults.worker_quick"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """What hangs may hold up the heartbeats, too; nobody's lease is to end by that."""
    with Site(tmp_path / "home", lease_seconds=60) as one:
        yield one


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a service that takes every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as service:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(service.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{service.getsockname()[1]}"
        service.shutdown(socket.SHUT_RDWR)
        for connection in taken:
            connection.close()


def looping(site: Site) -> dict[str, str]:
    """Make `local:looping` a model whose chat template does not end; the worker's settings for it."""
    root = site.home / "root"
    shutil.copytree(Path(worker.models.__file__).parent / "tiny_arithmetic", root / "looping")
    (root / "looping" / "chat_template.jinja").unlink(missing_ok=True)
    settings = root / "looping" / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": LOOP}))
    return {"GROUPSCOPE_MODEL_ROOT": str(root)}


def hanging(steps: int = 3) -> dict[str, object]:
    return tiny_run(steps, model={"source": "local:looping"}, telemetry={"probe_prompts": 0})


def in_phase(site: Site, run_id: int, phase: str) -> None:
    wait_until(lambda: site.client.run(run_id).progress.phase == phase, f"run {run_id} is in the phase {phase!r}")


@pytest.mark.thorough
def test_a_stop_that_a_looping_chat_template_does_not_heed_ends_the_run_and_its_process_is_replaced(site: Site) -> None:
    site.backend()
    worker = site.worker(**looping(site), **SHORT)
    run = site.client.create_run(hanging())
    in_phase(site, run.id, "prompts")
    site.client.command(run.id, "stop")
    ended = site.wait_for_end(run.id)
    assert ended.status == "stopped"
    assert error_of(ended).message.startswith("Stopped: did not answer in the phase 'prompts' for ")
    assert error_of(ended).message.endswith("; the worker's process was ended.")
    assert error_of(ended).message in site.said(run.id)
    assert site.run_to_end(tiny_run(1)).status == "finished", "the worker is there for the next run"
    assert worker.poll() is None  # the same process id


def test_a_second_stop_does_not_wait(site: Site) -> None:
    site.backend()
    site.worker(module=QUICK, **looping(site), GROUPSCOPE_STOP_SECONDS="3600")
    run = site.client.create_run(hanging())
    in_phase(site, run.id, "prompts")
    assert site.client.command(run.id, "stop").requested == "stop"
    assert site.client.command(run.id, "stop").requested == "stop_at_once"
    ended = site.wait_for_end(run.id)
    assert ended.status == "stopped"
    assert error_of(ended).message.startswith("Stopped at once, in the phase 'prompts'")


def test_a_second_stop_ends_a_healthy_run_at_once_and_a_retry_goes_on_from_its_checkpoint(site: Site) -> None:
    site.backend()
    site.worker(module=QUICK)
    run = site.client.create_run(tiny_run(400, every=2))
    site.wait_for_step(run.id, 4)
    site.client.command(run.id, "stop")
    with suppress(ApiError):  # it may have stopped meanwhile
        site.client.command(run.id, "stop")
    stopped = site.wait_for_end(run.id)
    assert stopped.status == "stopped"
    site.client.command(run.id, "retry")
    site.wait_for_step(run.id, stopped.progress.step + 3)
    steps = site.reward(run.id).step
    assert steps == list(range(len(steps)))
    site.client.command(run.id, "stop")


@pytest.mark.thorough
def test_a_download_that_hangs_is_ended_by_a_stop_and_past_its_deadline_with_the_setting_to_raise(
    site: Site, silent: str
) -> None:
    site.backend()
    hub = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": silent, "HF_HUB_ETAG_TIMEOUT": "600"}
    site.worker(module=QUICK, HF_HOME=str(site.home / "hub"), GROUPSCOPE_LOADING_SECONDS="6", **SHORT, **hub)
    of_nobody: dict[str, object] = {"kind": "dataset", "source": "hub:nobody/nothing", "prompt_column": "q"}
    no_model = tiny_run(1, model={"source": "nobody/nothing"})
    for phase, config in (("loading the task", tiny_run(1, task=of_nobody)), ("loading the model", no_model)):
        run = site.client.create_run(config)
        in_phase(site, run.id, phase)
        site.client.command(run.id, "stop")
        ended = site.wait_for_end(run.id)
        assert ended.status == "stopped"
        assert f"in the phase '{phase}'" in error_of(ended).message
    ended = site.run_to_end(no_model)  # the worker is there for the next run
    assert ended.attempt == 1
    late = "No end in the phase 'loading the model' after 6 s"
    assert_failed(ended, "phase_deadline", late, "GROUPSCOPE_LOADING_SECONDS")


def test_silence_in_training_is_tried_again_in_a_fresh_process_and_given_up_with_the_reason(site: Site) -> None:
    site.backend(GROUPSCOPE_MAX_FAILURES="2")
    worker = site.worker(module=QUICK, **looping(site), GROUPSCOPE_SILENCE_SECONDS="1")
    ended = site.run_to_end(hanging())
    assert (ended.status, ended.attempt, ended.failures) == ("failed", 2, 2)
    assert "No sign of life in the phase 'prompts' for 1 s" in error_of(ended).message
    assert site.said(ended.id).count("No sign of life in the phase 'prompts'") == 2  # of each attempt
    assert worker.poll() is None


# A second SIGTERM before the first was looked at would be one with it.
@pytest.mark.parametrize(
    ("seconds", "signals"), [("1", [signal.SIGTERM]), ("3600", [signal.SIGTERM, signal.SIGINT])], ids=["one", "two"]
)
def test_a_worker_that_hangs_heeds_a_signal_at_once_if_a_second_one_comes_and_gives_its_run_back(
    site: Site, seconds: str, signals: list[signal.Signals]
) -> None:
    site.backend()
    worker = site.worker(module=QUICK, **looping(site), GROUPSCOPE_STOP_SECONDS=seconds)
    run = site.client.create_run(hanging())
    in_phase(site, run.id, "prompts")
    for number in signals:
        worker.send_signal(number)
    assert worker.wait(30) == 0
    back = site.client.run(run.id)
    assert (back.status, back.failures) == ("queued", 0)
    assert len(signals) == 2 or "Asked to end: did not answer in the phase 'prompts'" in site.said(run.id)


@pytest.mark.thorough
def test_a_sample_that_hangs_gives_the_training_run_around_it_back(site: Site) -> None:
    site.backend()
    site.worker(module=QUICK, **looping(site), **SHORT)
    training = site.client.create_run(tiny_run(4000, every=2))
    site.wait_for_step(training.id, 3)
    sample = site.client.create_run({"kind": "sample", "prompts": ["2 + 2"], "model": {"source": "local:looping"}})
    in_phase(site, sample.id, "prompts")
    site.client.command(sample.id, "stop")
    assert site.wait_for_end(sample.id).status == "stopped"
    wait_until(lambda: site.client.run(training.id).attempt == 2, "the training run is taken up again")
    wait_until(lambda: site.client.run(training.id).status == "running", "it trains")
    assert site.client.run(training.id).failures == 0
    assert f"because of run {sample.id}" in site.said(training.id)
    site.client.command(training.id, "stop")
