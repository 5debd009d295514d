"""Takes each protection away, one at a time, in a copy of the tree, and sees its test fail: `make mutants`.

tests/mutants.toml lists them: what is protected, the line that protects it, what stands there instead, and the test. A
mutant that lives is a protection that no test would miss. `make mutants ARGS="-k lease"` runs those whose name has the word.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[1]
FOLDERS = ("backend", "worker", "dashboard", "groupscope", "tests", "scripts", "docs")
AT_ONCE = 2
FILES = ("pyproject.toml", "docker-compose.yml", "Dockerfile", "README.md")


def ran(test: str, tree: Path) -> tuple[int, str]:
    """What pytest ended with, and what it said. A test that does not end proves nothing: -1."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *test.split()]
    try:
        ended = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return -1, "not within 600 s"
    return ended.returncode, ended.stdout[-2000:]


def lives(mutant: dict[str, str], tree: Path) -> str | None:
    """Whether the test would miss the protection: what pytest said; None: it fails with the mutant."""
    path = tree / mutant["file"]
    original = path.read_text()
    path.write_text(original.replace(mutant["line"], mutant["instead"], 1))
    try:
        code, said = ran(mutant["test"], tree)
    finally:
        path.write_text(original)
    return None if code == 1 else f"pytest ended with {code}\n{said}"


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
    word, listed = parser.parse_args().k, tomllib.loads((ROOT / "tests/mutants.toml").read_text())["mutant"]
    wanted, living, numbers = [one for one in listed if word in one["name"]], list[str](), count(1)
    trees = Queue[Path]()

    def run_all(of_one_test: list[dict[str, str]]) -> None:
        tree = trees.get()
        code, said = ran(of_one_test[0]["test"], tree)
        unsound = f"its test does not pass without the mutant, either\n{said}" if code else None
        for mutant in of_one_test:
            said_here = unsound or lives(mutant, tree)
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
        by_test = groupby(sorted(wanted, key=itemgetter("test")), itemgetter("test"))
        list(pool.map(run_all, [list(mutants) for _, mutants in by_test]))
    print(f"{len(wanted) - len(living)} of {len(wanted)} mutants were killed")
    return 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())
