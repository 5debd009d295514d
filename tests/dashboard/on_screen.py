"""What a page says, without a browser."""

from streamlit.testing.v1 import AppTest


def shown(at: AppTest) -> str:
    """All sentences of the page."""
    kinds = (at.markdown, at.caption, at.info, at.error, at.text)
    return "\n".join(element.value for kind in kinds for element in kind)
