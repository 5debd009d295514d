"""One engine, one composition and one Chromium for all of these tests, and the figures that they measured."""

import os
from collections.abc import Callable, Iterator

import chromium
import pytest
from composition import SERVICES, Composition
from engine import ROOT, STAND_IN, Engine

FIGURES = pytest.StashKey[list[str]]()

browser = pytest.fixture(scope="session")(chromium.browser)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[FIGURES]:
        terminalreporter.section("containers")
    for line in config.stash[FIGURES]:
        terminalreporter.line(line)


@pytest.fixture(scope="session")
def figure(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Prints a line at the end, passed or failed."""
    return pytestconfig.stash[FIGURES].append


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Images are kept for the next time, the stages that they were built in for a day; `make clean` removes them."""
    made = Engine(ROOT / "build" / "containers")
    yield made
    made.podman("image", "prune", "--force", "--filter", "until=24h", timeout=1200)


@pytest.fixture(scope="session")
def base_image(engine: Engine, figure: Callable[[str], None]) -> str:
    """GROUPSCOPE_BASE_IMAGE, else python:3.11-slim, else its stand-in."""
    image = os.environ.get("GROUPSCOPE_BASE_IMAGE") or engine.base_image()
    note = (
        " (python:3.11-slim cannot be pulled here: a Debian without a compiler stands for it)"
        if image == STAND_IN
        else ""
    )
    figure(f"built on {image}{note}, by podman {engine.podman('version', '--format', '{{.Client.Version}}').strip()}")
    return image


@pytest.fixture(scope="session")
def composition(engine: Engine, base_image: str) -> Iterator[Composition]:
    """The three images, built; nothing is started."""
    made = Composition(engine, base_image)
    made.remove()  # what a session that was interrupted left
    for service in SERVICES:
        made.build(service)
    yield made
    made.remove()
