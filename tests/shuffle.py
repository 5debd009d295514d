"""`--shuffled=SEED` runs the modules in a random order: what a test needs it makes itself, whatever ran before it."""

import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffled", metavar="SEED", help="run the modules in the random order of this seed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (seed := config.getoption("--shuffled")) is not None:
        numbers = random.Random(seed)
        drawn = {path: numbers.random() for path in sorted({item.path for item in items})}
        items.sort(key=lambda item: drawn[item.path])
