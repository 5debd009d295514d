"""`make test` runs both halves whatever fails, and its last lines say what failed; in CI a skip is a failure, and only there."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Only the plugins that a test names: importing all that are installed takes longer than the tests.
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
ALONE = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
# In the place of pytest: it notes what it was asked for, and fails in one of the two calls.
STAND_IN = """#!{python}
import pathlib, sys
ended = [1, 0] if {fails!r} == "others" else [0, 1] if {fails!r} == "browser" else [0, 0]
in_browser = sys.argv[3:4] == ["tests/browser"]
code = ended[in_browser]
with pathlib.Path({calls!r}).open("a") as file:
    print("browser" if in_browser else "others", file=file)
listed = next(word for word in sys.argv if word.startswith("--failed-list=")).partition("=")[2]
if code:
    pathlib.Path(listed).parent.mkdir(exist_ok=True)
    pathlib.Path(listed).write_text("tests/some.py::test_that_fails\\n")
sys.exit(code)
"""


def make_test(folder: Path, fails: str) -> tuple[list[str], subprocess.CompletedProcess[str]]:
    (folder / "bin").mkdir()
    (folder / ".test").touch()  # newer than what it is made from: nothing is installed
    python, calls = folder / "bin" / "python", folder / "calls"
    python.write_text(STAND_IN.format(python=sys.executable, fails=fails, calls=str(calls)))
    python.chmod(0o755)
    variables = [f"VENV={folder}", f"PYTHON={sys.executable}", f"FAILED={folder}/list/failed"]
    command = ["make", "--no-print-directory", "test", *variables]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    return calls.read_text().split(), ended


@pytest.mark.parametrize("fails", ["others", "browser", "nothing"])
def test_the_browser_tests_run_where_others_failed_and_the_end_says_what_failed(tmp_path: Path, fails: str) -> None:
    calls, ended = make_test(tmp_path, fails)
    assert sorted(calls) == ["browser", "others"]
    assert (ended.returncode == 0) == (fails == "nothing"), ended.stdout + ended.stderr
    if fails != "nothing":
        assert ended.stdout.splitlines()[-1] == "tests/some.py::test_that_fails"


def test_continuous_integration_runs_no_test_twice() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    made = [line.removeprefix("make ") for line in lines if line.startswith("make ")]
    assert made == ["lint", "test", "test-rest", "bench-trials"]
    calls = r"^(test[-\w]*):.*\n(?:\t@rm.*\n)?\t\$\(call tests,([^,)]*)"
    marks = dict(re.findall(calls, (ROOT / "Makefile").read_text(), re.MULTILINE))
    rings = {"test": "not thorough and not alone", "test-rest": "thorough and not alone", "test-all": "not alone"}
    assert marks == rings
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert f"-m '{rings['test']}'" in project["addopts"], "pytest by itself runs the first ring"


def test_what_is_in_neither_ring_has_a_target_of_its_own(request: pytest.FixtureRequest) -> None:
    run = re.findall(r"-m pytest .*-m (\w+)", (ROOT / "Makefile").read_text())
    plugins = request.config.pluginmanager.get_plugins()
    (conftest,) = (one for one in plugins if getattr(one, "__file__", "") == str(ROOT / "tests/conftest.py"))
    assert {*run} == {*conftest.ALONE}


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_list_names_failures_and_errors_once(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_one.py").write_text(
        "import pytest\ndef test_a(): assert 0\ndef test_b(): ...\n"
        "@pytest.fixture\ndef broken(): assert 0\ndef test_c(broken): ...\n"
    )
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "from failed_list import pytest_addoption, pytest_unconfigure\n"
    )
    command = [*PYTEST, "-p", "xdist.plugin", "-n", workers, "--failed-list=list", "test_one.py"]
    subprocess.run(command, cwd=tmp_path, env=ALONE, capture_output=True, check=False, timeout=60)
    assert sorted((tmp_path / "list").read_text().split()) == ["test_one.py::test_a", "test_one.py::test_c"]


@pytest.mark.slow
def test_property_tests_draw_the_same_examples_every_day(tmp_path: Path) -> None:
    (tmp_path / "test_drawn.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\nimport drawing\n"
        "from hypothesis import given, strategies as st\n"
        "@given(st.integers())\ndef test_drawn(n):\n    with open('drawn', 'a') as file: print(n, file=file)\n"
    )
    drawn = []
    for _ in range(2):
        command = [*PYTEST, "-p", "_hypothesis_pytestplugin", "test_drawn.py"]
        subprocess.run(command, cwd=tmp_path, env=ALONE, capture_output=True, check=True, timeout=60)
        drawn.append((tmp_path / "drawn").read_text())
        (tmp_path / "drawn").unlink()
    assert drawn[0] == drawn[1]
    assert len(drawn[0].split()) >= 50


SKIPPED = {
    "one test": "import pytest\n@pytest.mark.skip\ndef test_a(): ...\ndef test_b(): ...\n",
    "a whole file": "import pytest\npytest.importorskip('nowhere')\n",
}


@pytest.mark.parametrize(
    ("what", "ci", "code"), [("one test", "true", 1), ("a whole file", "true", 1), ("one test", "", 0)]
)
def test_a_skip_fails_the_run_in_ci_and_so_it_does_in_this_suite(
    tmp_path: Path, what: str, ci: str, code: int, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "test_one.py").write_text(SKIPPED[what])
    (tmp_path / "test_two.py").write_text("def test_two(): ...\n")
    told = ALONE | {"CI": ci, "PYTHONPATH": str(ROOT / "tests")}
    command = [*PYTEST, "-p", "skips", "."]
    ran = subprocess.run(command, cwd=tmp_path, env=told, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == code, ran.stdout
    hooks = request.config.hook.pytest_sessionfinish.get_hookimpls()
    assert any(hook.function.__module__ == "skips" for hook in hooks)
