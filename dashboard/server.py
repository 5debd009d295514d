"""The dashboard's process: the pages, the downloads that are too large for a page's memory, and the door before both."""

import argparse
import gc
from collections.abc import Collection
from pathlib import Path

from starlette.types import ASGIApp
from streamlit import config
from streamlit.starlette import App

from backend.contract.home import in_words, load, make_private
from backend.server.connections import listen, raise_file_limit, serve
from backend.server.log import set_up_log
from dashboard.door import Door
from dashboard.downloads.routes import ROUTES
from dashboard.settings import Settings

_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104  # addresses to listen on, which name no machine


def application(names: Collection[str]) -> ASGIApp:
    """The whole dashboard, served under these names and those of this machine."""
    return Door(App(Path(__file__).with_name("app.py"), routes=ROUTES), names=names)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="groupscope dashboard", description="Serve the dashboard.")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=8501, help="the port to serve on")
    given = parser.parse_args()
    raise_file_limit()
    with in_words():
        settings = load(Settings)
        if settings.home.exists():
            make_private(settings.home)
        sockets = listen(given.host, given.port)
    app = application({*settings.dashboard_allowed_hosts, given.host}.difference(_ANYWHERE))
    set_up_log()  # after Streamlit has set up its own
    config.set_option("server.address", given.host)
    config.set_option("server.port", given.port)
    gc.collect()
    gc.freeze()  # imported modules stay: collecting them again and again would delay everybody's page
    serve(app, sockets, message_bytes=config.get_option("server.maxMessageSize") * 10**6)


if __name__ == "__main__":
    main()
