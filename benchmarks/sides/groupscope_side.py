"""Groupscope's side: the product's own trainer, held at the gate between two steps until the driver says go.

It hears a Job first, and then Commands; see `sides/messages.py`.
"""

# Both before torch, as in the worker's process: how OpenMP's threads wait, and no look through what stays while it comes.
import gc

import worker  # noqa: F401

gc.disable()
# isort: split
import base64
import io
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
import transformers
from pydantic import BaseModel

from backend.contract.config import RUN_CONFIG
from backend.contract.grpo import GrpoConfig
from backend.contract.protocol import Report
from sides.floor import measure_rates, shape_of
from sides.messages import Command, Job, Pipe, Prompt, Ready, Trace, Trained, peak_memory
from worker.learner import Learner, Update
from worker.policy.device import fastest_kind, keep_freed_memory, take_device, versions
from worker.policy.loading import load_policy
from worker.policy.policy import Policy
from worker.policy.sources import Pretrained, resolve
from worker.reporter import Channels, Place
from worker.rewards.scoring import RewardScorer
from worker.rollout.engine import Engine
from worker.rollout.engines import load_engine
from worker.settings import Settings
from worker.store import Store
from worker.tasks.items import Item, Items, draw
from worker.tasks.loading import load_items
from worker.trainer import Trainer

_REPORT_SECONDS = 60.0


class Gate:
    """What stands in for the backend: it stores reports as the spool does, and lets one step through at a time."""

    def __init__(self, pipe: Pipe, policy: Policy, engine: Engine, spool: Path) -> None:
        self._pipe, self._policy, self._engine, self._spool = pipe, policy, engine, spool.open("wb")
        self._arrived = threading.Condition()
        self._reports: dict[int, Report] = {}
        self._step = 0

    def send(self, kind: str, message: BaseModel) -> None:
        """Onto the disk, as the spool writes it; then the step counts as reported."""
        self._spool.write(f"{kind} {message.model_dump_json()}\n".encode())
        self._spool.flush()
        os.fsync(self._spool.fileno())
        if isinstance(message, Report) and message.groups and message.step is not None:
            with self._arrived:
                self._reports[message.step] = message
                self._arrived.notify_all()

    def between_steps(self) -> None:
        """Answer with the step that was trained, once its report is stored: its whole cost is inside the step."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._step in self._reports, _REPORT_SECONDS):
                raise TimeoutError(f"step {self._step} was not reported")
            report = self._reports.pop(self._step)
        self._step += 1
        copy = getattr(self._engine, "_copy", None)
        self._pipe.tell(
            Trained(
                lengths=[completion.token_count for group in report.groups for completion in group.completions],
                metrics=report.metrics,
                trace=_trace(report),
                peak_memory=peak_memory(),
                # The engine's own; of a library, the name that it chose when it began.
                attention=self._policy.computed_by if copy is None else str(copy.config._attn_implementation),
            )
        )
        self.wait()

    def wait(self) -> None:
        """Until the driver wants a step."""
        while (asked := self._pipe.asked(Command)).do == "rates":
            shape, device = shape_of(self._policy.config, self._policy.parameters()), self._policy.device
            dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
            self._pipe.tell(measure_rates(shape, device=device, dtype=dtype, at_least=asked.at_least))


def _trace(report: Report) -> Trace | None:
    """The step's tokens, where all completions were traced."""
    if report.trace is None or report.trace.rows < sum(len(group.completions) for group in report.groups):
        return None
    table = pq.read_table(io.BytesIO(base64.b64decode(report.trace.data)))
    return Trace.model_validate({name: table[name].to_pylist() for name in Trace.model_fields})


def main() -> None:
    """Load, report it, and train a step on each request."""
    transformers.logging.set_verbosity_error()
    pipe = Pipe()
    job = pipe.asked(Job)
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    keep_freed_memory()  # this and the two below as the worker's process does
    gc.freeze()
    gc.enable()
    config = RUN_CONFIG.validate_python(job.config)
    assert isinstance(config, GrpoConfig)
    kind = fastest_kind() if job.accelerator else "cpu"
    device, _ = take_device("cuda:0" if kind == "cuda" else kind)  # by its number: two sides share it
    folder, models = Path(tempfile.mkdtemp(prefix="groupscope-side-")), Path(job.models)
    source = resolve(config.model.source, converted=models, root=models, checkpoint=None)
    policy = load_policy(config.model, source, device, reference=config.algorithm.needs_reference, fast=job.fast)
    if job.lengths != "model":
        _stop_at(
            policy, [] if job.lengths == "fixed" else list(range(0, policy.config.get_text_config().vocab_size, 256))
        )
    items = load_items(config.task, fetch_upload=lambda _: job.rows.encode())
    engine = load_engine(config.sampling.engine, policy, Settings())
    gate = Gate(pipe, policy, engine, folder / "spool.jsonl")
    place = Place(1, 1, Store(folder), "benchmark", None, str(device), {})
    channels = Channels(
        send=gate.send,
        show=lambda progress: None,
        requested=lambda: "nothing",
        between_steps=gate.between_steps,
        shutting_down=lambda: False,
    )
    if job.slower:
        _slow_down(job.slower)
    with RewardScorer(config.rewards) as scorer:
        trainer = Trainer(config, policy, engine, items, scorer, place, channels)
        pipe.tell(_ready(config, policy, source, items))
        gate.wait()
        trainer.run()


def _ready(config: GrpoConfig, policy: Policy, source: Pretrained, items: Items) -> Ready:
    """With what the other side needs to do the same work: the model, and every prompt in the order of the run."""
    count = config.budget.steps * config.sampling.prompts_per_step
    return Ready(
        model=source.location,
        prompts=[_prompt(policy, item) for item in draw(items.train, cursor=0, count=count, seed=config.budget.seed)],
        shape=shape_of(policy.config, policy.parameters()),
        versions=versions(),
        threads=torch.get_num_threads(),
        omp_wait_policy=os.environ.get("OMP_WAIT_POLICY", "not set"),
    )


def _prompt(policy: Policy, item: Item) -> Prompt:
    text, ids = policy.encode(item)
    templated = item.messages is not None and policy.tokenizer.chat_template is not None
    prompt = [dict(message) for message in item.messages or ()] if templated else text
    return Prompt(prompt=prompt, ids=ids, answer=item.answer, verifier=dict(item.verifier))


def _slow_down(share: float) -> None:
    """Let every update take this share longer: a fault that a benchmark must see."""
    update = Learner.update

    def slower(*given: Any, **named: Any) -> Update:
        began = time.perf_counter()
        done = update(*given, **named)
        time.sleep(share * (time.perf_counter() - began))
        return done

    Learner.update = slower  # type: ignore[method-assign]


def _stop_at(policy: Policy, ids: list[int]) -> None:
    """Let these tokens end completions, and no others."""
    policy.chat.stop_ids = set(ids)


if __name__ == "__main__":
    main()
