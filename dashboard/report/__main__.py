"""`python -m dashboard.report RUN`: the report of a run, on the standard output. `groupscope export --what report` calls it."""

import sys

from backend.contract.client import Client
from backend.contract.home import load
from dashboard.report.gather import gather
from dashboard.report.page import report
from dashboard.settings import Settings


def main() -> None:
    """Raises ApiError and Unreachable as they come; the command line has them in plain words already."""
    settings = load(Settings)
    with Client(settings.backend_url, settings.secret()) as client:
        page = report(gather(client, int(sys.argv[1])))
    sys.stdout.buffer.write(page.encode())


if __name__ == "__main__":
    main()
