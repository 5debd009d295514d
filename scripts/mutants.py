"""Takes each protection away, one at a time, in a copy of the tree, and sees its test fail: `make mutants`.

tests/mutants.toml lists them: what is protected, the code that protects it, what stands there instead, and the test. A
mutant that lives is a protection that no test would miss. `make mutants ARGS="-k lease"` runs those whose name has the word.
With --record, a mutant whose test is a whole file gets the test in it that fails, if possible one that `make test` runs;
interrupted, the next call goes on.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, groupby
from pathlib import Path
from queue import Queue
from threading import Lock

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from mutation import Definitions, definitions, mutated

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests/mutants.toml"
FOLDERS = ("backend", "worker", "dashboard", "groupscope", "benchmarks", "tests", "scripts", "docs")
AT_ONCE = 2
FILES = ("pyproject.toml", "docker-compose.yml", "Dockerfile", "README.md")
BOTH_RINGS = ("-m", "not alone")
# The first ring is what pytest runs unasked.
RINGS = ((), ("-m", "thorough and not alone"))
ONE_TEST = re.compile(r"[\w/]+\.py::[\w./:\[\]-]+")
_WRITING = Lock()


def ran(test: str, tree: Path, *options: str) -> tuple[int, str]:
    """What pytest ended with, and what it said. A test that does not end proves nothing: -1."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *test.split()]
    try:
        ended = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return -1, "not within 600 s"
    return ended.returncode, ended.stdout[-2000:]


def failing(test: str, tree: Path) -> Iterator[str]:
    """The tests that fail, those of the first ring before those of the second."""
    for ring in RINGS:
        names = tree / "failed"
        names.unlink(missing_ok=True)
        ran(test, tree, "--maxfail=5", f"--failed-list={names}", *ring)
        for name in names.read_text().splitlines() if names.exists() else ():
            # Any of its parameters fails it; but those that are in the second ring alone must be named.
            yield name if ring and ONE_TEST.fullmatch(name) else name.partition("[")[0]


def lives(mutant: dict[str, str], among: Definitions, tree: Path, *, records: bool) -> str | None:
    """Whether the test would miss the protection: what pytest said; None: it fails with the mutant."""
    path, text = mutated(mutant, among)
    original = (tree / path).read_text()
    (tree / path).write_text(text)
    try:
        if not records:
            code, said = ran(mutant["test"], tree, "-x", *BOTH_RINGS)
            return None if code == 1 else f"pytest ended with {code}\n{said}"
        # A test that fails only after the others of its file names nothing.
        alone = (test for test in failing(mutant["test"], tree) if ran(test, tree, "-x", *BOTH_RINGS)[0] == 1)
        if (test := next(alone, None)) is None:
            return f"no test of {mutant['test']} fails by itself\n"
        record(mutant, test)
        return None
    finally:
        (tree / path).write_text(original)


def record(mutant: dict[str, str], test: str) -> None:
    """Write the test into the list, in which all else stays as it is written."""
    with _WRITING:
        text = LIST.read_text()
        before, name, after = text.partition(f'name = "{mutant["name"]}"\n')
        LIST.write_text(before + name + after.replace(f'test = "{mutant["test"]}"', f'test = "{test}"', 1))


def files(mutant: dict[str, str]) -> str:
    return " ".join(test.partition("::")[0] for test in mutant["test"].split())


def copy_to(tree: Path) -> Path:
    """The files that the tests need."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name)
    for name in FILES:
        shutil.copy(ROOT / name, tree)
    return tree


def main() -> int:
    parser = argparse.ArgumentParser(description="Takes each protection away and sees its test fail.")
    parser.add_argument("-k", default="", help="only mutants whose name has this word")
    parser.add_argument("--record", action="store_true", help="write the test that fails in place of its file")
    parser.add_argument(
        "--after", type=Path, help="what an interrupted run printed: those that it saw die are left out"
    )
    asked, listed = parser.parse_args(), tomllib.loads(LIST.read_text())["mutant"]
    listed = [one for one in listed if not (asked.record and ONE_TEST.fullmatch(one["test"]))]
    dead = set(re.findall(r"killed  (.+)", asked.after.read_text())) if asked.after else set()
    wanted = [one for one in listed if asked.k in one["name"] and one["name"] not in dead]
    among, living, numbers, trees = definitions(ROOT), list[str](), count(1), Queue[Path]()

    def run_all(of_one_file: list[dict[str, str]]) -> None:
        tree, tests = trees.get(), dict.fromkeys(test for mutant in of_one_file for test in mutant["test"].split())
        code, said = ran(" ".join(tests), tree, "-x", *BOTH_RINGS)
        unsound = f"its test does not pass without the mutant, either\n{said}" if code else None
        for mutant in of_one_file:
            said_here = unsound or lives(mutant, among, tree, records=asked.record)
            result = "LIVES " if said_here else "killed"
            print(
                f"{next(numbers):>3} of {len(wanted)}  {result}  {mutant['name']}\n{said_here or ''}",
                end="",
                flush=True,
            )
            if said_here:
                living.append(mutant["name"])
        trees.put(tree)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        for number in range(AT_ONCE):
            trees.put(copy_to(Path(folder) / str(number)))
        by_file = groupby(sorted(wanted, key=files), files)
        list(pool.map(run_all, [list(mutants) for _, mutants in by_file]))
    print(f"{len(wanted) - len(living)} of {len(wanted)} mutants were killed")
    return 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())
