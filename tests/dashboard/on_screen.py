"""What a page says and keeps, without a browser."""

from collections.abc import Callable
from concurrent.futures import wait
from typing import cast

from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Button, FileUploader

from dashboard.form.dataset import Transfer
from dashboard.form.draft import Draft

Open = Callable[..., AppTest]
"""Opens a page by its name and the parameters of its address."""


def shown(at: AppTest) -> str:
    """All sentences of the page."""
    kinds = (at.markdown, at.caption, at.info, at.error, at.text)
    return "\n".join(element.value for kind in kinds for element in kind)


def texts(at: AppTest) -> str:
    """All that is written on the page, code too, without the escapes."""
    kinds = (at.markdown, at.caption, at.error, at.info, at.warning, at.code)
    return "\n".join(str(element.value) for kind in kinds for element in kind).replace("\\", "")


def figures(at: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in at.metric}


def press(at: AppTest, label: str) -> AppTest:
    """The first button whose label begins so."""
    next(button for button in at.button if button.label.startswith(label)).click().run()
    assert not at.exception
    return at


def queue_button(at: AppTest) -> Button:
    return next(button for button in at.button if button.label.startswith("Queue"))


def start_disabled(at: AppTest) -> bool:
    return next(button for button in at.button if button.label == "Start run").disabled


def draft_of(at: AppTest) -> Draft:
    """What the form has been filled with so far."""
    return cast(Draft, at.session_state["draft"])


def key(at: AppTest, path: str) -> str:
    """The key of a field's widget."""
    return draft_of(at).key(path)


def uploader(at: AppTest) -> FileUploader:
    """Where files are chosen for the task."""
    return next(one for one in at.file_uploader if one.label.startswith("CSV"))


def choose(at: AppTest, *files: tuple[str, bytes]) -> None:
    """Files, by name and content; they are on their way then."""
    uploaded = [(name, content, "text/plain") for name, content in files]
    uploader(at).set_value(uploaded).run()


def arrive(at: AppTest) -> None:
    """The page once what is on its way has come to its end, as its own ticks would draw it."""
    place = f"transfer-{draft_of(at).id}-task"
    if place in at.session_state:
        assert wait([cast(Transfer, at.session_state[place]).upload], timeout=60).done
        at.run()
    assert not at.exception


def send(at: AppTest, *files: tuple[str, bytes]) -> None:
    """Files, until they have arrived or were refused."""
    choose(at, *files)
    arrive(at)
