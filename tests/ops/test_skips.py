"""A skipped test is a failure in continuous integration, and only there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SKIPPED = {
    "one test": "import pytest\n@pytest.mark.skip\ndef test_a(): ...\ndef test_b(): ...\n",
    "a whole file": "import pytest\npytest.importorskip('nowhere')\n",
}


@pytest.mark.parametrize(
    ("what", "ci", "code"), [("one test", "true", 1), ("a whole file", "true", 1), ("one test", "", 0)]
)
def test_a_skip_fails_the_run_in_ci(tmp_path: Path, what: str, ci: str, code: int) -> None:
    (tmp_path / "test_one.py").write_text(SKIPPED[what])
    (tmp_path / "test_two.py").write_text("def test_two(): ...\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "skips", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env=os.environ | {"CI": ci, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == code, ran.stdout


def test_the_suite_itself_is_under_that_rule(request: pytest.FixtureRequest) -> None:
    hooks = request.config.hook.pytest_sessionfinish.get_hookimpls()
    assert any(hook.function.__module__ == "skips" for hook in hooks)
