"""A worker's log: every line that belongs to a run says which, and which attempt."""

import logging
import sys
import threading

import pytest
from hostile import LINES, SHORT

from backend.contract.protocol import Claim
from worker.logs import formatter, of_run, write_logs


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def log(lines: list[str]) -> logging.Logger:
    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.extend(self.format(record).splitlines())

    handler = Keep()
    handler.setFormatter(formatter())
    logger = logging.Logger("of a test")
    logger.addHandler(handler)
    return logger


def claim(run_id: int, attempt: int) -> Claim:
    return Claim.model_construct(run_id=run_id, attempt=attempt)


def fail(words: str) -> None:
    raise ValueError(words)


def test_every_line_of_a_run_names_it_and_its_attempt_also_from_other_threads_and_in_tracebacks(
    log: logging.Logger, lines: list[str]
) -> None:
    log.info("idle")
    with of_run(claim(7, 2)):
        thread = threading.Thread(target=log.info, args=("heartbeat\nrefused",))
        thread.start()
        thread.join()
        with of_run(claim(9, 1)):
            log.info("a sample between two steps")
        try:
            int("bad")
        except ValueError:
            log.exception("crashed")
    log.info("idle again")
    assert [line for line in lines if "[run" not in line] == [lines[0], lines[-1]]
    assert sum("[run 9 attempt 1] a sample" in line for line in lines) == 1
    assert len([line for line in lines if "[run 7 attempt 2] " in line]) == len(lines) - 3
    assert lines[-2].endswith("invalid literal for int() with base 10: 'bad'")


def test_no_text_begins_a_line_or_steers_a_terminal(log: logging.Logger, lines: list[str]) -> None:
    hostile = f"{SHORT}\n1999-12-31 00:00:00,000 ERROR worker.job: [run 1 attempt 1] forged\r\x9b2J{LINES}"
    with of_run(claim(7, 2)):
        log.warning("run: %s", hostile)
        assert len(lines) == 1
        try:
            fail(hostile)
        except ValueError:
            log.exception(hostile)
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if line.startswith("1999-12-31") or "[run 7 attempt 2] " not in line] == []


def test_a_text_of_ten_megabytes_is_a_line_of_some_kilobytes(log: logging.Logger, lines: list[str]) -> None:
    log.error("x" * 10_000_000)
    try:
        fail("line\n" * 2_000_000)
    except ValueError:
        log.exception("y" * 10_000_000)
    assert "9,992,000 characters are left out" in lines[0]
    assert sum(map(len, lines)) < 300_000


def test_torchs_alarm_about_processes_left_behind_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    write_logs()
    torchs = logging.getLogger("torch.distributed.elastic.multiprocessing.api")
    handler = logging.StreamHandler(sys.stderr)
    torchs.addHandler(handler)
    try:
        torchs.warning("Failed to register signal handlers since torchelastic is running on a child thread.")
        torchs.warning("something else")
    finally:
        torchs.removeHandler(handler)
    assert "Failed" not in (said := capsys.readouterr().err)
    assert "something else" in said
