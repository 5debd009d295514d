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
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("backend", "worker", "dashboard", "tests", "scripts", "docs")
FILES = ("pyproject.toml", "docker-compose.yml", "Dockerfile", "README.md")


def ran(test: str, tree: Path) -> tuple[int, str]:
    """What pytest ended with, and what it said. A test that does not end proves nothing: -1."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *test.split()]
    try:
        ended = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return -1, "not within 600 s"
    return ended.returncode, ended.stdout[-2000:]


def lives(mutant: dict[str, str], tree: Path, sound: Callable[[str], bool]) -> str | None:
    """Whether the test would miss the protection: what pytest said; None: it passes without the mutant, and fails with it."""
    if not sound(mutant["test"]):
        return "its test does not pass without the mutant, either"
    path = tree / mutant["file"]
    original = path.read_text()
    path.write_text(original.replace(mutant["line"], mutant["instead"], 1))
    try:
        code, said = ran(mutant["test"], tree)
    finally:
        path.write_text(original)
    return None if code == 1 else f"pytest ended with {code}\n{said}"


def main() -> int:
    """Run them, and name those that live."""
    parser = argparse.ArgumentParser(description="Takes each protection away and sees its test fail.")
    parser.add_argument("-k", default="", help="only mutants whose name has this word")
    word, listed = parser.parse_args().k, tomllib.loads((ROOT / "tests/mutants.toml").read_text())["mutant"]
    wanted, living = [one for one in listed if word in one["name"]], []
    with tempfile.TemporaryDirectory() as folder:
        for name in FOLDERS:
            shutil.copytree(ROOT / name, Path(folder) / name)
        for name in FILES:
            shutil.copy(ROOT / name, folder)
        sound = cache(lambda test: ran(test, Path(folder))[0] == 0)
        for number, mutant in enumerate(wanted, 1):
            said = lives(mutant, Path(folder), sound)
            print(f"{number:>3} of {len(wanted)}  {'LIVES ' if said else 'killed'}  {mutant['name']}", flush=True)
            if said:
                living.append(mutant["name"])
                print(said)
    print(f"{len(wanted) - len(living)} of {len(wanted)} mutants were killed")
    return 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())
