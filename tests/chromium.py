"""A Chromium that looks at pages as a person does."""

import shutil
from collections.abc import Iterator

from playwright.sync_api import Browser, expect, sync_playwright

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")  # else Playwright's own
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 30_000  # milliseconds; a page takes well under one second, a loaded machine may not


def installed() -> str | None:
    """Where the installed Chromium is; None for Playwright's own."""
    return next((path for name in CHROMIUM if (path := shutil.which(name))), None)


def browser() -> Iterator[Browser]:
    """An installed Chromium, else Playwright's own."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=installed(), args=list(ARGUMENTS))
        yield chromium
        chromium.close()
