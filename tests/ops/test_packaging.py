"""What is in the repository is in the installed package, too: a missing style sheet shows only on another machine."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GROUPSCOPE"))}
PACKAGES = ("backend", "worker", "dashboard", "groupscope")


def listed() -> list[str]:
    """The files of the packages."""
    command = ["git", "ls-files", *PACKAGES]
    # git from the path
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_every_file_that_is_no_module_is_named_as_package_data_and_every_dependency_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, patterns in project["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
    ]
    others = [name for name in listed() if not name.endswith(".py")]
    assert others
    assert [name for name in others if not any(PurePosixPath(name).match(pattern) for pattern in named)] == []
    wanted = list(project["project"]["dependencies"])
    wanted += [one for extra in project["project"]["optional-dependencies"].values() for one in extra]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 and "+" not in line for line in lines)
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines}
    assert {re.split(r"[><=\[]", one)[0] for one in wanted} <= pinned


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in (*listed(), "pyproject.toml", "README.md", "LICENSE"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", str(source)]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    [built] = folder.glob("groupscope-*.whl")
    return built


@pytest.fixture(scope="session")
def base_install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what its base depends on, and nothing else: its folder of commands."""
    folder = tmp_path_factory.mktemp("base") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    asked = ["--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt"), str(wheel)]
    subprocess.run([*pip, "install", *asked], env=CLEAN, check=True, timeout=300)
    return folder / "bin"


def in_base(bin_: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the environment, away from the repository."""
    asked = [str(bin_ / command[0]), *command[1:]]
    return subprocess.run(asked, cwd=bin_, env=CLEAN, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_a_built_wheel_carries_every_file_of_the_packages(wheel: Path) -> None:
    assert set(listed()) - set(ZipFile(wheel).namelist()) == set()


@pytest.mark.thorough
@pytest.mark.slow
def test_the_package_for_scripts_works_in_an_environment_that_has_the_base_alone(base_install: Path) -> None:
    script = """
import sys, groupscope
for name in groupscope.__all__:
    getattr(groupscope, name)
group = groupscope.Group("1 + 1?", [groupscope.Completion("2", reward=1.0, tokens=groupscope.Tokens([5], [b"2"]))])
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "fastapi", "streamlit", "sqlalchemy", "uvicorn"}))
try:
    groupscope.start_run("mine", home="nowhere")
except Exception as error:
    print(type(error).__name__, error)
"""
    ran = in_base(base_install, "python", "-c", script)
    assert ran.returncode == 0, ran.stderr
    loaded, refused = ran.stdout.splitlines()
    assert loaded == "[]"
    assert refused.startswith("CannotStart no token: ")


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "extra"),
    [("backend", "backend"), ("worker", "worker"), ("dashboard", "dashboard"), ("view .", "backend")],
)
def test_a_command_that_needs_an_extra_says_which_to_install(base_install: Path, command: str, extra: str) -> None:
    ran = in_base(base_install, "groupscope", *command.split())
    assert ran.returncode == 1
    assert f"pip install 'groupscope[{extra}]'" in ran.stderr
    assert "Traceback" not in ran.stderr
