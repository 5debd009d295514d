"""In continuous integration a skipped test is a failure: what was not run was not shown to work."""

import os

import pytest


def _skipped(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return len(reporter.stats.get("skipped", ())) if reporter is not None and os.environ.get("CI") else 0


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := _skipped(config):
        terminalreporter.section("skipped tests fail in CI", red=True, bold=True)
        terminalreporter.line(f"{count} skipped: run with -rs to see which, and make them run")
