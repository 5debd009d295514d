"""Schemathesis over the whole HTTP interface, in rounds; what was done stays in .soak/http.json, and the next call goes on."""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "fuzz")]

import records  # noqa: E402  # found by the line before
import rounds  # noqa: E402
from faults.soak import commit  # noqa: E402
from processes import Site  # noqa: E402


def main() -> None:
    """Rounds until every operation was asked for as many examples as wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=2000, help="of each operation, in all rounds together")
    parser.add_argument("--round", type=int, default=250, help="of each operation, in one round with a fresh backend")
    parser.add_argument("--folder", type=Path, default=ROOT / ".soak", help="where counts and failures are kept")
    asked = parser.parse_args()
    asked.folder.mkdir(exist_ok=True)
    file = asked.folder / "http.json"
    done = json.loads(file.read_text()) if file.exists() else {"asked": 0, "commits": {}, "failed": [], "answered": {}}
    while done["asked"] < asked.examples:
        examples = min(asked.round, asked.examples - done["asked"])
        number = random.SystemRandom().randrange(2**32)
        found = one_round(examples, number, coverage=done["asked"] == 0)
        done["asked"] += examples
        done["commits"][commit()] = done["commits"].get(commit(), 0) + examples
        for operation, answered in found.answered.items():
            done["answered"][operation] = dict(Counter(done["answered"].get(operation, {})) + Counter(answered))
        if not found.passed:
            done["failed"].append(number)
            (asked.folder / f"http-{number}.log").write_text(found.output)
            print(found.output)
        partial = file.with_suffix(".partial")  # whole or not at all: the next call goes on from here
        partial.write_text(json.dumps(done, indent=1, sort_keys=True))
        partial.replace(file)
        print(f"{done['asked']} of {asked.examples} examples of each operation, {total(done):,} requests", flush=True)
    print(f"{len(done['answered'])} operations, {total(done):,} requests, rounds with failures: {len(done['failed'])}")
    sys.exit(bool(done["failed"]))


def one_round(examples: int, number: int, *, coverage: bool) -> rounds.Round:
    """On a backend of its own: what was sent before would be in the way of what is sent next."""
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder) / "home", lease_seconds=3600)
        try:
            site.backend()
            records.fill(site)
            return rounds.run(site, Path(folder), examples=examples, number=number, coverage=coverage)
        finally:
            site.close()


def total(done: dict[str, Any]) -> int:
    """Requests in all."""
    return sum(sum(answered.values()) for answered in done["answered"].values())


if __name__ == "__main__":
    main()
