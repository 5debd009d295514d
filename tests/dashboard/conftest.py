"""The dashboard's pages against a real backend, without a browser."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recorded
import streamlit as st
import streamlit.config
from serving import TOKEN, Backend
from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.runtime.state.session_state import SessionState
from streamlit.testing.v1 import AppTest, app_test, local_script_runner
from streamlit.util import calc_hash

import dashboard
from dashboard import session
from dashboard.session import PageName

APP = Path(dashboard.__file__).with_name("app.py")
SECONDS = 20  # a page takes well under one; a loaded machine may not

# Streamlit looks through every installed package for components, anew for each AppTest: once is enough.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)
# The same holds for its compiling each page, and for what the dashboard has turned off.
app_test.ScriptCache = local_script_runner.ScriptCache = cache(ScriptCache)  # type: ignore[attr-defined,misc]
for setting in ("runner.postScriptGC", "runner.magicEnabled", "browser.gatherUsageStats"):
    streamlit.config.set_option(setting, False)


class Filtered(Mapping[str, Any]):
    """What a widget asks the session's state for: whether one key is there, and its value. Streamlit gathers all of it, for each widget."""

    def __init__(self, state: SessionState) -> None:
        self._state = state

    def __getitem__(self, key: str) -> Any:
        return self._state[key]

    def __iter__(self) -> Iterator[str]:
        return iter(gathered(self._state))

    def __len__(self) -> int:
        return len(gathered(self._state))


gathered = SessionState.filtered_state.fget  # type: ignore[attr-defined]
SessionState.filtered_state = property(Filtered)  # type: ignore[method-assign,assignment]


@pytest.fixture
def dashboard_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Points the dashboard at a backend's address."""

    def point(url: str) -> None:
        monkeypatch.setenv("GROUPSCOPE_BACKEND_URL", url)
        monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
        monkeypatch.setattr(session, "FRESH", 0.0)  # a test looks right after it changed something
        st.cache_resource.clear()
        st.cache_data.clear()

    yield point
    st.cache_resource.clear()
    st.cache_data.clear()


@pytest.fixture
def open_page(
    backend: Backend, dashboard_of: Callable[[str], None], open_page_of_any: Callable[..., AppTest]
) -> Callable[..., AppTest]:
    """Opens a page of the test's own backend: `open_page("run", id=3)`."""
    dashboard_of(backend.url)
    return open_page_of_any


@pytest.fixture
def open_page_of_any() -> Callable[..., AppTest]:
    """Opens a page of the backend that the dashboard was pointed at."""

    def open_(page: PageName, **query: object) -> AppTest:
        at = AppTest.from_file(APP, default_timeout=SECONDS)
        if page != "runs":
            at._page_hash = calc_hash(page)  # switch_page() knows no page before one was drawn
        for name, value in query.items():
            at.query_params[name] = value if isinstance(value, list) else str(value)
        at.run()
        assert not at.exception
        return at

    return open_


@pytest.fixture
def trained(backend: Backend) -> int:
    """A run that stands at step 3 of 100."""
    run_id = recorded.queue(backend.client, "quick **one**")
    recorded.train(backend.client, run_id, steps=3, total=100, prompts=4, group_size=4)
    return run_id
