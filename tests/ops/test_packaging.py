"""What is in the repository is in the installed package, too: a missing style sheet shows only on another machine."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("backend", "worker", "dashboard", "groupscope")


def listed() -> list[str]:
    """The files of the packages."""
    command = ["git", "ls-files", *PACKAGES]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()  # git from the path


def test_every_file_that_is_no_module_is_named_as_package_data() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, patterns in project["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
    ]
    others = [name for name in listed() if not name.endswith(".py")]
    assert others
    assert [name for name in others if not any(PurePosixPath(name).match(pattern) for pattern in named)] == []


def test_the_constraints_pin_every_direct_dependency_exactly() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 and "+" not in line for line in lines)
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines}
    assert {re.split(r"[><=\[]", one)[0] for one in wanted} <= pinned


@pytest.mark.slow
def test_a_built_wheel_carries_every_file_of_the_packages(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in (*listed(), "pyproject.toml", "README.md", "LICENSE"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", str(source)]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    [wheel] = tmp_path.glob("groupscope-*.whl")
    assert set(listed()) - set(ZipFile(wheel).namelist()) == set()
