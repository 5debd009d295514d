"""What the browser does when a click leads to another page: it presses the link that the page has drawn (leaving.py)."""

from typing import get_args
from urllib.parse import parse_qsl

from streamlit.testing.v1 import AppTest

from dashboard.session import PageName, script


def follow(at: AppTest) -> AppTest:
    """The page to which the last click leads, at its address."""
    (way,) = (link.proto for link in at.get("page_link") if link.proto.label in get_args(PageName))
    at.switch_page(script(way.label))
    at.query_params.clear()
    at.query_params.update(parse_qsl(way.query_string))
    at.run()
    assert not at.exception
    return at
