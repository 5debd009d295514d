"""Widgets that keep what they hold in the address."""

import ast
import re
from pathlib import Path

import dashboard

ROOT = Path(dashboard.__file__).parent
SOURCES = list(ROOT.rglob("*.py"))


def bound(source: Path) -> list[str]:
    """The keys, written as they are, of the widgets that a file binds to the address."""
    calls = (node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call))
    given = [{one.arg: one.value for one in call.keywords} for call in calls]
    return [
        str(ast.literal_eval(one["key"])) for one in given if "bind" in one and isinstance(one["key"], ast.Constant)
    ]


def test_no_two_widgets_have_one_name_in_the_address() -> None:
    """Streamlit would take what one held on the page before for what the other holds, and write it into the new page's address."""
    keys = [key for source in SOURCES for key in bound(source)]
    assert len(keys) > 20
    assert sorted(keys) == sorted(set(keys))


def test_one_module_alone_reads_and_writes_the_address() -> None:
    """The others ask it: what it wrote holds against a request that the browser sent before it saw the new address."""
    users = {source for source in SOURCES if re.search(r"\bst\.query_params", source.read_text())}
    assert users == {ROOT / "components/address.py"}
