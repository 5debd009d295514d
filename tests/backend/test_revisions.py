"""Databases that earlier versions filled: each is brought up to date, and answers all that it answered then.

The data was recorded by scripts/revision_data.py with the last code of each revision: real runs, one of them resumed
after a kill, an upload, samples, and what people said of groups.
"""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Backends

DATA = Path(__file__).parent / "revisions"
VERSIONS = Path(__file__).parents[2] / "backend/storage/migrations/versions"
REVISIONS = sorted(path.name[:4] for path in DATA.glob("*.db.xz"))

Answer = object


def lost(before: Answer, now: Answer, where: str = "") -> Iterator[str]:
    """Where an answer of today does not hold what an earlier version answered. It may hold more."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key, value in before.items():
            if key not in now:
                yield f"{where}.{key} is gone"
            else:
                yield from lost(value, now[key], f"{where}.{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for at, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from lost(one, other, f"{where}[{at}]")
    elif before != now:
        yield f"{where}: {before!r} became {now!r}"


def test_every_revision_but_the_newest_has_its_data() -> None:
    made = sorted(path.name[:4] for path in VERSIONS.glob("[0-9]*.py"))
    assert [one for one in made[:-1] if one not in REVISIONS] == []


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_database_of_an_earlier_version_answers_all_that_it_answered_then(revision: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "groupscope.db").write_bytes(lzma.decompress((DATA / f"{revision}.db.xz").read_bytes()))
    answers = json.loads(lzma.decompress((DATA / f"{revision}.json.xz").read_bytes()))
    with Backends(home) as backends:
        backend = backends.start()
        for path, before in answers.items():
            answer = backend.http.get(f"/api/v1{path}")
            lines = path.endswith("/export")
            now = [json.loads(line) for line in answer.text.splitlines()] if lines else answer.json()
            if before is not None:
                assert list(lost(before, now, path)) == []
        with backend.services.database.read() as tx:
            assert tx.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
            assert tx.exec_driver_sql("PRAGMA foreign_key_check").all() == []


def test_runs_of_every_revision_can_be_searched(tmp_path: Path) -> None:
    for revision in REVISIONS:
        home = tmp_path / revision
        home.mkdir()
        (home / "groupscope.db").write_bytes(lzma.decompress((DATA / f"{revision}.db.xz").read_bytes()))
        with Backends(home) as backends:
            backend = backends.start()
            first = backend.client.group(next(iter(backend.client.groups(1).items)).id).completions[0]
            found = backend.http.get("/api/v1/runs/1/completions", params={"search": first.text[:12]}).json()["items"]
            assert first.id in [hit["id"] for hit in found]
