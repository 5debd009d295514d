"""TRL with `groupscope.watch`, a block of steps at a time, as fast as it trains: with its hooks in place, and taken off."""

import gc

gc.disable()  # until all is imported, by the trainer, too: it stays

import os
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import psutil
import torch
import transformers
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer

import groupscope
from backend.contract.config import RUN_CONFIG
from backend.contract.grpo import GrpoConfig
from groupscope.aside import Guard
from sides.messages import Command, Job, Pipe, Ready, Trained, peak_memory
from sides.trl_side import Watch, reward_of, settings

HOOKS = ("_generate_and_score_completions", "compute_loss", "_get_per_token_logps_and_entropies")
"""The methods of the trainer that `watch` wraps."""


class Hooks:
    """How long the training's own threads were in what `watch` does, and the processor time of the process that it has beside them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        call = Guard.__call__

        def timed(guard: Guard, what: Callable[..., Any], *args: Any) -> bool:
            began = time.perf_counter()
            went_well = call(guard, what, *args)
            self.seconds += time.perf_counter() - began
            return went_well

        Guard.__call__ = timed  # type: ignore[method-assign]

    @property
    def beside(self) -> float:
        """Seconds so far, of all threads."""
        return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children())


class Switch:
    """Takes the hooks off a trainer that is watched and puts them back: nothing else differs between two blocks of the same process."""

    def __init__(self, trainer: GRPOTrainer) -> None:
        self._trainer, self._watcher = trainer, trainer.callback_handler.callbacks[-1]
        self._hooks = {name: vars(trainer)[name] for name in HOOKS}
        self.on = True

    def turn(self, *, on: bool) -> None:
        """At a step's beginning, and not within one."""
        if on is self.on:
            return
        self.on = on
        if on:
            vars(self._trainer).update(self._hooks)
            self._trainer.add_callback(self._watcher)
        else:
            for name in self._hooks:
                delattr(self._trainer, name)
            self._trainer.remove_callback(self._watcher)


class Blocks(TrainerCallback):
    """Lets a block of steps through at a time, and says how long it took by the clock, and in processor time of all threads."""

    def __init__(self, pipe: Pipe, each: int, switch: Switch) -> None:
        self._pipe, self._each, self._hooks, self._switch = pipe, each, Hooks(), switch
        self._began = (0.0, 0.0, 0.0, 0.0)
        self._steps: list[float] = []  # when each of the block began

    def _now(self) -> tuple[float, float, float, float]:
        return time.perf_counter(), time.process_time(), self._hooks.seconds, self._hooks.beside

    def on_step_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002 — transformers passes these two, too
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002 — as above
        **_: object,
    ) -> None:
        """Between two blocks: answer for the one before, and wait. What the record does meanwhile counts to the block before.

        The first block warms up. Of each four after it the hooks are off in the first and the last one.
        """
        number, within = divmod(state.global_step, self._each)
        self._steps.append(time.perf_counter())
        if within:
            return
        if state.global_step:
            wall = time.perf_counter() - self._began[0]
            time.sleep(1.0)  # for what is done aside, of which the processor time is to be known
            _, *used = (now - then for now, then in zip(self._now(), self._began, strict=True))
            metrics = {"wall": wall, "watched": float(self._switch.on)}
            metrics |= dict(zip(("processor", "hooks", "beside"), used, strict=True))
            metrics |= {f"step/{k}": end - begin for k, (begin, end) in enumerate(pairwise(self._steps))}
            self._pipe.tell(Trained(lengths=[], metrics=metrics, peak_memory=peak_memory()))
        self._pipe.asked(Command)
        self._switch.turn(on=not number or number % 4 in (2, 3))
        self._began = self._now()
        self._steps = [time.perf_counter()]


def main() -> None:
    """Load, report it, and train a block on each request."""
    transformers.logging.set_verbosity_error()
    pipe = Pipe()
    job = pipe.asked(Job)
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    config = RUN_CONFIG.validate_python(job.config)
    assert isinstance(config, GrpoConfig)
    arguments = settings(config, job)
    arguments.logging_strategy = transformers.trainer_utils.IntervalStrategy.STEPS  # as somebody who watches
    arguments.logging_steps = 1
    trainer = GRPOTrainer(
        model=job.model,
        reward_funcs=Watch().around_reward(reward_of(config.rewards)),
        args=arguments,
        train_dataset=Dataset.from_list([one.model_dump(exclude={"ids"}) for one in job.prompts]),
        processing_class=AutoTokenizer.from_pretrained(job.model),
    )
    groupscope.watch(trainer, name="watched", backend=job.watch)
    trainer.add_callback(Blocks(pipe, job.block, Switch(trainer)))
    gc.enable()
    waiting = os.environ.get("OMP_WAIT_POLICY", "not set")
    pipe.tell(Ready(versions={"trl": version("trl")}, threads=torch.get_num_threads(), omp_wait_policy=waiting))
    trainer.train()


if __name__ == "__main__":
    main()
