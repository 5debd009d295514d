"""A Chromium that looks at pages as a person does."""

import shutil
from collections.abc import Iterator

from playwright.sync_api import Browser, expect, sync_playwright

# The one without windows draws the same pages for an eighth less of the processor; else Playwright's own.
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A page lives for seconds: its scripts are over before optimizing them has paid.
    "--js-flags=--single-threaded --always-sparkplug --no-maglev --no-opt",
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
