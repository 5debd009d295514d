"""What is in the repository is in the installed package, too: a missing style sheet shows only on another machine."""

import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PACKAGES = ("backend", "worker", "dashboard")


def test_every_file_that_is_no_module_is_named_as_package_data() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, patterns in project["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
    ]
    command = ["git", "ls-files", *PACKAGES]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # git from the path
    others = [name for name in listed.stdout.split() if not name.endswith(".py")]
    assert others
    assert [name for name in others if not any(PurePosixPath(name).match(pattern) for pattern in named)] == []


def test_the_constraints_pin_every_direct_dependency_exactly() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 and "+" not in line for line in lines)
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines}
    assert {re.split(r"[><=\[]", one)[0] for one in wanted} <= pinned
