"""Runs tests many times, their modules in a random order each time, beside processes that keep the processors busy: `make luck`.

A test that passes here every time does not depend on how fast the machine is, or on what ran before it. Without tests on the command
line it takes the slowest of the last `make test` or `make test-all`.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

BUSY = "while True: pass"


def slowest(costs: Path, number: int) -> list[str]:
    """The tests that took the longest, by the clock."""
    if not costs.exists():
        sys.exit(f"{costs} is not there: name tests, or run `make test-all` first")
    rows = [json.loads(line) for line in costs.read_text().splitlines()]
    ordered = sorted(rows, key=lambda row: -row["wall"])
    return list(dict.fromkeys(row["test"] for row in ordered))[:number]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", help="files, folders or names of tests")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--busy", type=int, default=2, help="processes that do nothing but keep a processor busy")
    parser.add_argument(
        "--slowest", type=int, default=40, help="how many of the slowest tests to take if none are named"
    )
    parser.add_argument("--costs", type=Path, default=Path(".pytest_cache/costs"))
    asked = parser.parse_args()
    tests, failed = asked.tests or slowest(asked.costs, asked.slowest), list[int]()
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(asked.busy)]
    try:
        for time in range(1, asked.times + 1):
            command = [sys.executable, "-m", "pytest", "-m", "not alone", f"--shuffled={time}", *tests]
            ended = subprocess.run(command, check=False).returncode
            print(f"{time} of {asked.times}: {'passed' if ended == 0 else f'pytest ended with {ended}'}", flush=True)
            failed += [time] if ended else []
    finally:
        for process in busy:
            process.kill()
    print(f"{len(failed)} of {asked.times} failed" + (f": --shuffled={failed[0]} was the first" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
