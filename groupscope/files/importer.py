"""Every run at a path, recorded again and again without doubling: `groupscope import`."""

import math
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import cache
from pathlib import Path

from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.spool import may_pass
from groupscope.files.catalog import find, nothing_at
from groupscope.files.delivery import Delivery, Labels, Stopped
from groupscope.files.format import Format, Options, Unreadable
from groupscope.files.run_import import PAUSE, RunImport
from groupscope.files.tally import Tally

LOOK_SECONDS = 0.2  # between two looks at files that are followed
NEW_RUNS_SECONDS = 2.0  # the same, for runs that were not there before
PATIENCE_SECONDS = 120.0  # for a backend that does not answer, unless files are followed


class Importer:
    """Every run at a path, one after the other; followed, all of them together, with those that appear later.

    `say` is given a line for each thing that happens, `show` the tally of the run that is being imported, several times a second.
    """

    def __init__(
        self,
        client: Client,
        path: Path,
        *,
        options: Options,
        labels: Labels,
        only: Format | None,
        from_step: int | None,
        say: Callable[[str], None],
        show: Callable[[Tally, int], None] = lambda tally, step: None,
    ) -> None:
        self._client, self._path, self._options, self._labels = client, path, options, labels
        self._only, self._from_step, self._say, self._show = only, from_step, say, show
        self._runs: dict[Path, RunImport | None] = {}  # None: it cannot be imported, or was stopped
        self._say_once = cache(say)
        self._patience, self._over = PATIENCE_SECONDS, lambda: False
        self.failed = False

    def once(self) -> None:
        """Import what is there. Raises Unreadable if that is nothing, and ApiError and Unreachable."""
        for path, format_ in find(self._path, self._only, say=self._say_once):
            run = self._begun(path, format_)
            if run is not None:
                self._advance(path, run, final=True)
        if not self._runs:
            raise nothing_at(self._path)

    def follow(self, until: Callable[[], bool]) -> None:
        """Import what is there and what comes, until the person has enough. A backend that is away is waited for."""
        self._patience, self._over = math.inf, until
        look_at, said = 0.0, False
        while not until():
            try:
                if not self._runs or time.monotonic() >= look_at:
                    began = time.monotonic()
                    for path, format_ in find(self._path, self._only, say=self._say_once):
                        self._begun(path, format_)
                    if not self._runs and not said:
                        self._say(f"nothing can be imported from {self._path} yet; waiting")
                        said = True
                    look_at = time.monotonic() + max(NEW_RUNS_SECONDS, PAUSE * (time.monotonic() - began))
                for path, run in self._runs.items():
                    if run is not None:
                        self._advance(path, run, final=False)
            except Unreachable as error:
                self._say(f"{error}; trying again")
                time.sleep(NEW_RUNS_SECONDS)
            time.sleep(LOOK_SECONDS)
        for path, run in self._runs.items():
            if run is not None:
                self._advance(path, run, final=True)

    def _begun(self, path: Path, format_: Format) -> RunImport | None:
        if path in self._runs:
            return self._runs[path]
        delivery: Delivery | None = None
        try:
            files = format_.open(path, self._options)
            delivery = Delivery(self._client, path, files.about, self._labels, self._say, self._patience, self._over)
            run = RunImport(path, files, delivery)
            run.begin(self._from_step)
        except Exception as error:  # what is wrong with one run does not end the others
            if delivery is not None:
                delivery.close()
            if isinstance(error, Unreachable) or (isinstance(error, ApiError) and may_pass(error)):
                raise  # it is not this run's matter
            self._runs[path] = None
            self.failed = True
            self._say(str(error) if isinstance(error, Unreadable) else f"{path} cannot be imported: {_why(error)}")
            return None
        self._say(f"{path} ({format_.name}) is run {delivery.tally.run_id}")
        self._runs[path] = run
        return run

    def _advance(self, path: Path, run: RunImport, *, final: bool) -> None:
        """Send what is new of a run, and if this is `final`, end it."""
        delivery, tally = run.delivery, run.delivery.tally
        try:
            with closing(delivery) if final else nullcontext():
                run.advance(final=final, on_progress=lambda step: self._show(tally, step))
                delivery.beat()
                if final:
                    delivery.finish()
                    self._say(tally.summary())
        except Unreachable:
            raise
        except Exception as error:  # noqa: BLE001 — what is wrong with one run does not end the others
            self._runs[path] = None
            self.failed = self.failed or not isinstance(error, Stopped)
            self._say(f"{tally.summary()}\nrun {tally.run_id} is imported no further: {_why(error)}")
            delivery.close()


def _why(error: Exception) -> str:
    """In one sentence; of an error that nobody foresaw, its kind, too."""
    if isinstance(error, Stopped | Unreadable | ApiError):
        return str(error)
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]
