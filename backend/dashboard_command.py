"""The command that serves the dashboard. The backend starts it and never imports it."""

import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "dashboard" / "server.py"


def dashboard_command(port: int, address: str = "127.0.0.1") -> list[str]:
    """Program and arguments; the backend's address and token reach it through the environment."""
    options = {
        "server.port": str(port),
        "server.address": address,
        "server.headless": "true",
        "browser.gatherUsageStats": "false",
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    return [sys.executable, "-m", "streamlit", "run", str(SCRIPT), *flags]
