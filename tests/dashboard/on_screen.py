"""What a page says and keeps, without a browser."""

from typing import cast

from streamlit.testing.v1 import AppTest

from dashboard.form.draft import Draft


def shown(at: AppTest) -> str:
    """All sentences of the page."""
    kinds = (at.markdown, at.caption, at.info, at.error, at.text)
    return "\n".join(element.value for kind in kinds for element in kind)


def texts(at: AppTest) -> str:
    """All that is written on the page, code too, without the escapes."""
    kinds = (at.markdown, at.caption, at.error, at.info, at.warning, at.code)
    return "\n".join(str(element.value) for kind in kinds for element in kind).replace("\\", "")


def draft_of(at: AppTest) -> Draft:
    """What the form has been filled with so far."""
    return cast(Draft, at.session_state["draft"])


def key(at: AppTest, path: str) -> str:
    """The key of a field's widget."""
    return draft_of(at).key(path)
