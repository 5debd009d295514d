"""A page is a name in dashboard/session.py and a file in dashboard/screens; nothing else lists the pages."""

import ast
from pathlib import Path
from typing import get_args

from dashboard.session import NAVIGATION, PageName, script

DASHBOARD = Path(__file__).parents[2] / "dashboard"
NAMES: tuple[PageName, ...] = get_args(PageName)


def lists_of_pages(path: Path) -> int:
    """How many literals, lists or dictionaries of a file name more than half of the pages."""
    groups = (
        [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict)
    )
    return sum(
        2 * len(set(NAMES) & {value for value in group if isinstance(value, str)}) > len(NAMES) for group in groups
    )


def test_every_page_has_a_screen_and_every_screen_a_page() -> None:
    screens = {f"screens/{path.name}" for path in (DASHBOARD / "screens").glob("*.py") if path.stem != "__init__"}
    assert {script(name) for name in NAMES} == screens
    assert set(NAVIGATION) <= set(NAMES)


def test_the_pages_are_listed_once() -> None:
    listing = {path.relative_to(DASHBOARD).as_posix() for path in DASHBOARD.rglob("*.py") if lists_of_pages(path)}
    assert listing == {"session.py"}
