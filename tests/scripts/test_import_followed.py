"""`groupscope import --follow` look by look: what each look sends, and what it does not send again."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import Backend

from groupscope.files.catalog import find
from groupscope.files.format import Options
from groupscope.files.importer import Import, Labels


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look waits for time to pass."""
    monkeypatch.setattr("groupscope.files.importer.SETTLED", 0.0)


@contextmanager
def begun(backend: Backend, path: Path) -> Iterator[Import]:
    """The import of a path, whose looks the test takes."""
    [(found, format_)] = find(path)
    run = Import(
        backend.client, found, format_.open(found, Options()), Labels(), lambda line: None, 10.0, lambda: False
    )
    try:
        run.begin()
        yield run
    finally:
        run.close()


def group(step: int, place: int, tokens: Any = None) -> dict[str, Any]:
    completions = [{"text": str(reward), "reward": reward, "tokens": tokens} for reward in (1.0, 0.0)]
    return {"step": step, "prompt": f"What is {place}?", "completions": completions}


def written(path: Path, lines: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in [{"groupscope": 1}, *lines]))
    return path


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is too large to be sent at once."""
    monkeypatch.setattr("groupscope.files.importer.PIECE", 10)
    monkeypatch.setattr("groupscope.files.own.PIECE", 4)


@pytest.mark.usefixtures("in_pieces")
def test_a_step_in_pieces_is_sent_once_however_often_it_is_looked_at(backend: Backend, tmp_path: Path) -> None:
    path = written(tmp_path / "run.jsonl", [group(0, place) for place in range(12)])
    with begun(backend, path) as run:
        for _ in range(3):
            run.advance(final=False)
            found = backend.client.run(run.tally.run_id)
            assert (found.attempt, found.progress.step) == (1, 1)
        with path.open("a") as file:
            file.write(json.dumps(group(0, 12)) + "\n")
        run.advance(final=False)
        assert backend.client.run(run.tally.run_id).attempt == 2
        assert sum(sum(one.states.values()) for one in backend.client.steps(run.tally.run_id)) == 13
        assert run.tally.told() == f"run {run.tally.run_id}: 1 step, 13 groups, 26 completions"


@pytest.mark.usefixtures("in_pieces")
def test_token_values_that_have_no_room_are_missed_in_the_log_also_if_the_step_ends_later(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupscope.files.importer.SETTLED", 1e9)
    path = written(tmp_path / "run.jsonl", [group(0, place, {"ids": [1, 2]}) for place in range(12)])
    with begun(backend, path) as run:
        run.advance(final=False)
        with path.open("a") as file:
            file.write(json.dumps({"step": 1, "metrics": {"loss": 0.5}}) + "\n")
        run.advance(final=False)
        said = [line.message for line in backend.client.logs(run.tally.run_id).items]
    assert any("step 0 is too large for one report: token values of 2 groups" in line for line in said), said
