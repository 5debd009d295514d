"""`--reach` holds the first ring to what it promises: each module, route, setting and page of the product once.

What is touched is noted where it happens, in whichever process runs the tests: a route that answers, a page that is drawn, a setting that
has another value than its own. Settings of processes that a test starts count by their environment.
"""

import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pytest
from calls import on_call

ROOT = Path(__file__).parents[1]
PACKAGES = ("backend", "worker", "dashboard", "groupscope")
SETTINGS = ("backend.settings", "worker.settings", "dashboard.settings")

_touched: dict[str, set[str]] = {"modules": set(), "routes": set(), "settings": set(), "pages": set()}


def _route(route: Any, scope: Mapping[str, Any], *_: object) -> None:
    _touched["routes"].add(f"{scope['method']} {route.path}")


def _settings(_: object, **values: object) -> None:
    _touched["settings"].update(values)
    _variables(os.environ)


def _forked(like: str, command: object, environment: Mapping[str, str], *_: object, **named: object) -> None:
    _variables(environment)


def _variables(environment: Mapping[str, str]) -> None:
    names = (name.removeprefix("GROUPSCOPE_").lower() for name in environment if name.startswith("GROUPSCOPE_"))
    _touched["settings"].update(names)


def _page(at: Any, *_: object, **named: object) -> None:
    _touched["pages"].add(at._page_hash)


on_call("fastapi.routing", "APIRoute.handle", _route)
on_call("pydantic_settings", "BaseSettings.__init__", _settings)
on_call("zygote", "start", _forked)
on_call("streamlit.testing.v1.app_test", "AppTest._run", _page)


@cache
def modules() -> frozenset[str]:
    """Of the product, but for the scripts that Streamlit runs: those are pages."""
    files = (file.relative_to(ROOT) for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    names = {".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files}
    return frozenset(name for name in names if not name.startswith(("dashboard.app", "dashboard.screens.")))


def expected() -> dict[str, Mapping[str, str]]:
    """What there is to touch, by what is noted of it: a sentence's word for each."""
    from fastapi.routing import APIRoute
    from streamlit.util import calc_hash

    from backend.app import create_app
    from backend.clock import Clock
    from backend.settings import Settings
    from dashboard.session import PageName

    with TemporaryDirectory() as home:
        app = create_app(Settings(home=Path(home), token="x"), Clock())
    routes = [
        f"{method} {route.path}" for route in app.routes if isinstance(route, APIRoute) for method in route.methods
    ]
    fields = [field for name in SETTINGS for field in importlib.import_module(name).Settings.model_fields]
    return {
        "modules": {name: name for name in modules()},
        "routes": {route: route for route in routes},
        "settings": {field: field for field in fields},
        "pages": {"" if page == "runs" else calc_hash(page): page for page in get_args(PageName)},
    }


def untouched(touched: Mapping[str, Iterable[str]]) -> list[str]:
    """A sentence for each kind of which something was not touched."""
    return [
        f"the first ring touches no {', '.join(sorted(missing))} of the {kind}: a test of it is thorough, or there is none"
        for kind, names in expected().items()
        if (missing := {word for noted, word in names.items() if noted not in touched[kind]})
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reach", action="store_true", help="fail if a module, route, setting or page of the product is not touched"
    )


class _Reach:
    def __init__(self) -> None:
        self._untouched = list[str]()

    def pytest_testnodedown(self, node: Any) -> None:
        """A process that the tests ran in has ended."""
        for kind, names in node.workeroutput.get("touched", {}).items():
            _touched[kind].update(names)

    def pytest_runtest_teardown(self) -> None:
        """A test may take away again what it has imported."""
        _touched["modules"].update(modules() & sys.modules.keys())

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            session.config.workeroutput["touched"] = {kind: sorted(names) for kind, names in _touched.items()}
        elif session.config.getoption("--reach"):
            self._untouched = untouched(_touched)
            if self._untouched and not session.exitstatus:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._untouched:
            terminalreporter.section("what the first ring leaves untouched", red=True, bold=True)
            for line in self._untouched:
                terminalreporter.line(line)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Reach(), "reach of the first ring")
