"""`--failed-list=FILE` adds what failed to a file: `make test` calls pytest twice and says at its end what failed in either."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failed-list", type=Path, help="add the names of the tests that fail to this file")


def pytest_unconfigure(config: pytest.Config) -> None:
    file, reporter = config.getoption("--failed-list"), config.pluginmanager.get_plugin("terminalreporter")
    # the process that has started workers says it for them
    if file is None or reporter is None or hasattr(config, "workerinput"):
        return
    names = [report.nodeid for outcome in ("failed", "error") for report in reporter.stats.get(outcome, ())]
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as lines:
        lines.writelines(f"{name}\n" for name in dict.fromkeys(names))
