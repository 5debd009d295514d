"""The dashboard as it is served: the pages, and beside them the files that are too large for a page's memory."""

from pathlib import Path

from streamlit.starlette import App

from dashboard.downloads import ROUTES

app = App(Path(__file__).with_name("app.py"), routes=ROUTES)
