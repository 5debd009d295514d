"""The command that serves the dashboard. The backend starts it and never imports it."""

import sys


def dashboard_command(port: int, address: str = "127.0.0.1") -> list[str]:
    """Program and arguments; the backend's address and token reach it through the environment."""
    return [sys.executable, "-m", "dashboard.server", "--host", address, "--port", str(port)]
