"""Prints what the tests of the last `make test` or `make test-all` cost, by kind, room and test: `make costs`.

With --write, after a whole `make test-all`, the numbers in tests/house/rooms.toml are lowered to what it started; the recorded seconds
become its own.
"""

import argparse
import math
import re
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from costs import ROOMS, STARTED, by_kind, by_room, read, started


def written(table: str, room: str, kind: str, number: int) -> str:
    """The table with this number: seconds as they are, any other only where it is lower."""
    stands = re.search(rf'^"{re.escape(room)}" = .*\b{kind} = (\d+)', table, re.MULTILINE)
    if stands is None or (kind != "seconds" and number >= int(stands[1])):
        return table
    return table[: stands.start(1)] + str(number) + table[stands.end(1) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--slowest", type=int, default=20, help="how many of the tests that took most of a processor")
    parser.add_argument("--write", action="store_true", help="lower the numbers of the table")
    asked = parser.parse_args()
    if not asked.file.exists():
        sys.exit(f"{asked.file} is not there: run `make test-all` first")
    costs = read(asked.file)
    print("\n".join([*by_kind(costs), "", *by_room(costs), ""]))
    for cost in sorted(costs, key=lambda cost: -cost.cpu)[: asked.slowest]:
        print(f"{cost.cpu:7.1f}{cost.wall:7.1f}  {cost.test}")
    if asked.write:
        seconds, table = defaultdict[str, float](float), ROOMS.read_text()
        for cost in costs:
            seconds[cost.room] += cost.cpu
        for room, begun in started(costs).items():
            for kind in STARTED:
                table = written(table, room, kind, begun[kind])
            table = written(table, room, "seconds", math.ceil(seconds[room]))
        ROOMS.write_text(table)


if __name__ == "__main__":
    main()
