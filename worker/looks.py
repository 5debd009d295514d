"""Looks at the prompts of a configuration before anybody starts it, in a thread beside a worker that has no run."""

import logging
import threading
from pathlib import Path

from backend.contract.client import ApiError, Unreachable
from backend.contract.grpo import GrpoConfig
from backend.contract.protocol import LookFound, LookWish, PromptsLook
from worker.errors import Interrupted, RunFailure
from worker.failure import failure
from worker.policy.loading import load_reader
from worker.policy.sources import resolve
from worker.tasks.fitting import Reader, fitted, kept_below, look_at
from worker.tasks.loading import load_items
from worker.worker import Worker

log = logging.getLogger(__name__)


class Looker:
    """Takes one wish at a time. A run is never waited for: as soon as the worker has one, it leaves the look."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._thread: threading.Thread | None = None

    def take(self, wish: LookWish) -> None:
        """Begin, unless another one is under way: the form asks again."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look, args=(wish,), name="look", daemon=True)
            self._thread.start()

    def _look(self, wish: LookWish) -> None:
        try:
            self._worker.client.looked(LookFound(key=wish.key, look=self.found(wish)))
        except (Interrupted, Unreachable, ApiError) as left:
            log.info("a look at prompts was left: %s", left)

    def found(self, wish: LookWish) -> PromptsLook:
        """What the run would find before its first step, or why it would not come so far. Raises Interrupted."""
        worker, settings = self._worker, self._worker.settings

        def show(*_: object) -> None:
            if worker.held or worker.shutting_down():
                raise Interrupted

        counts = PromptsLook()
        try:
            config = GrpoConfig.model_validate(wish.config)
            source = resolve(
                config.model.source, converted=settings.models, root=settings.model_root, checkpoint=None, make=False
            )
            if source.name and not Path(source.location).is_dir():
                return PromptsLook(remarks=["the model is made when a run needs it: its prompts are looked at then"])
            items = load_items(config.task, fetch_upload=worker.client.upload_content)
            reader, kept = Reader.of(*load_reader(source)), kept_below(settings.home)
            found = look_at([*items.train, *items.held_out], reader, config.sampling.max_new_tokens, show, kept)
            counts = PromptsLook(prompts=found.prompts, longest=found.longest, unfit=len(found.unfit))
            remarks = fitted(items, config.task, found)[1]
        except (Interrupted, Unreachable):
            raise
        except RunFailure as refused:
            return counts.model_copy(update={"problem": refused.message})
        except Exception as error:  # the boundary between a look and the worker that survives it
            log.exception("a look at prompts failed")
            return counts.model_copy(update={"problem": failure(1, error).error.message})
        return counts.model_copy(update={"remarks": list(remarks)})
