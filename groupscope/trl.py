"""TRL's GRPOTrainer and RLOOTrainer, and Unsloth's, a patched copy: some methods are wrapped, and a callback follows the steps.

`_generate_and_score_completions` is where a batch of groups is made; `compute_loss` passes its rows, shuffled and in parts, through the
model. A number added to each row finds it again there. Nothing is computed anew, and no random number drawn. Unsloth's copy measures
log-probs within a function of its module, and hands them to another one.

Of several processes the first one reports. What only the others know comes to it in one collective at the end of each step, in which every
process takes part whatever went wrong in it before: one that stayed away would let the others wait for ever.
"""

import logging
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from transformers import TrainerCallback

from backend.contract.base import Json
from backend.contract.protocol import EVALUATION
from backend.contract.trl import in_our_terms
from groupscope.aside import Aside, Guard
from groupscope.conversation import ASSISTANT, Turn, text_in, turns_of
from groupscope.recording import LONGEST_NAME, device_here
from groupscope.rows import Batch, Recorder, Rows, Said, decoder
from groupscope.samples import plain

log = logging.getLogger("groupscope")

ROW = "groupscope_row"
FAILED = "{'error': "  # begins what TRL gives the model for a tool that raised
LOSS = "UnslothEfficientGRPO"  # what Unsloth's module takes log-probs to the loss with
OF_THE_WHOLE = "train_runtime"  # is in what is logged once, at the end


class Watcher(TrainerCallback):
    """Follows one trainer. What goes wrong with the record is said once, and the training goes on."""

    def __init__(self, trainer: Any, options: Mapping[str, Any]) -> None:
        self._trainer, self.options = trainer, dict(options)
        self._began = 0.0  # the training, by the monotonic clock
        self._whole = True  # nothing of this step's groups was lost
        self._batches: list[tuple[Batch, Rows]] = []  # of this step, in which a model may sample several times
        self._rows: Tensor | None = None  # those that the model is passed now
        self._unsloth = _unsloth(trainer)
        self._aside: Aside | None = None  # while a training is recorded
        self._safely = Guard()
        self._exchange = Exchange(trainer)
        self._tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        self._padding = self._tokenizer.pad_token_id
        self._ends = frozenset([*getattr(trainer, "eos_token_ids", [self._tokenizer.eos_token_id]), self._padding])

    # ---- the wrapped methods

    def wrap(self, trainer: Any) -> None:
        """Put those of the trainer into the places of its own."""
        trainer._generate_and_score_completions = partial(self.generate, trainer._generate_and_score_completions)
        trainer.compute_loss = partial(self.compute_loss, trainer.compute_loss)
        trainer._get_per_token_logps_and_entropies = partial(self.measure, trainer._get_per_token_logps_and_entropies)

    def train(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """The training, from its beginning to its end. An error ends the record, too: the program may catch it and go on, as a notebook does."""
        try:
            return original(*args, **kwargs)
        except KeyboardInterrupt:
            self._end("finish", "stopped")
            raise
        except BaseException as error:
            self._end("ended", f"{type(error).__name__}: {error}")
            raise

    def generate(self, original: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """A batch of groups was made."""
        output = original(inputs, *args, **kwargs)
        if self._trainer.model.training:
            self._whole &= self._safely(self._keep, inputs, output)
        return output

    def compute_loss(self, original: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Some of its rows go through the model."""
        self._rows = inputs.get(ROW) if model.training else None
        loss = getattr(self._unsloth, LOSS, None)
        if loss is not None:
            setattr(self._unsloth, LOSS, Loss(loss, self.measured))
        try:
            return original(model, inputs, *args, **kwargs)
        finally:
            self._rows = None
            if loss is not None:
                setattr(self._unsloth, LOSS, loss)

    def measure(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Their log-probs and entropies are known."""
        found = original(*args, **kwargs)
        self.measured(dict(zip(("logprob", "entropy"), found, strict=False)))
        return found

    def measured(self, found: Mapping[str, Tensor | None]) -> None:
        """Values of the rows that the model is passed now, by our names."""
        if self._rows is not None:
            self._safely(self._measured, self._rows, found)

    # ---- the trainer's steps

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 — as it is called
        """The run begins, or goes on from a checkpoint."""
        self._exchange.decide()
        if state.is_world_process_zero:
            self._safely(self._begin, state)

    def _begin(self, state: Any) -> None:
        self._began = time.monotonic()
        program = "Unsloth" if self._unsloth else "TRL"
        options = {"name": f"{program} on {_model(self._trainer)}"[:LONGEST_NAME]} | self.options
        about = {
            "trainer": program,
            "version": version(program.lower()),
            "config": arguments_of(self._trainer),
            "known": known(self._trainer, state.max_steps),
            "from_step": state.global_step,
            "device": device_here(),
            "process": os.getpid(),
        }
        self._aside = Aside(Recorder, decoder(self._tokenizer), self._ends, options | about)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 — as it is called
        """The weights were updated: what is known of the step's groups is whole."""
        step = state.global_step - 1
        batches, self._batches = self._batches, []
        whole, self._whole = self._whole, True
        everywhere = self._exchange.gathered([rows for _, rows in batches])
        if batches:
            known = [
                (batch, [None if each is None else each[place] for each in everywhere])
                for place, (batch, _) in enumerate(batches)
            ]
            whole &= self._tell("step", known, step)
        if not whole:
            self._tell("lost", step)
        if not control.should_log:
            self._end_step()

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:  # noqa: ARG002 — as it is called
        """TRL logged means over the steps since it did last; what it logs of an evaluation begins with eval_."""
        numbers = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
        evaluated = {EVALUATION + name[5:]: value for name, value in numbers.items() if name.startswith("eval_")}
        trained = {} if OF_THE_WHOLE in numbers else numbers
        if evaluated:
            self._tell("metrics", evaluated, state.global_step)
        elif trained:
            self._tell("metrics", trained, state.global_step - 1)
            self._end_step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 — as it is called
        """The run is over."""
        self._end("finish")

    def _end_step(self) -> None:
        self._tell("end_step", time.monotonic() - self._began)

    def _end(self, method: str, *args: Any) -> None:
        """Have this said last of the record."""
        self._tell(method, *args)
        aside, self._aside = self._aside, None
        if aside is not None:
            self._safely(aside.close)

    def _tell(self, method: str, *args: Any) -> bool:
        """Have it said in the process beside the training; False if it could not be handed over."""
        return self._aside is None or self._safely(self._aside.call, method, *args)

    # ---- the record

    def _keep(self, inputs: Sequence[Mapping[str, Any]], output: dict[str, Any]) -> None:
        rows = Rows.of(inputs, output, self._padding)
        self._batches.append((_batch(self._trainer, len(rows.answers)), rows))
        output[ROW] = torch.arange(len(rows.answers), device=output["completion_ids"].device)

    def _measured(self, rows: Tensor, found: Mapping[str, Tensor | None]) -> None:
        if self._batches:  # else an earlier step has sampled these rows, and was reported
            for name, values in found.items():
                if values is not None:
                    self._batches[-1][1].put(name, rows.cpu().numpy(), values)


class Loss:
    """In the place of Unsloth's function from log-probs to the loss: they are noted, and it is called as ever."""

    def __init__(self, original: Any, note: Callable[[Mapping[str, Tensor | None]], None]) -> None:
        self._original, self._note = original, note

    def apply(self, logps: Tensor, old_logps: Tensor | None, *args: Any, **kwargs: Any) -> Any:
        """As torch calls a function of its own kind. Both have the shape (rows, tokens); the old ones may be the sampler's."""
        self._note({"logprob": logps, "old_logprob": old_logps})
        return self._original.apply(logps, old_logps, *args, **kwargs)


class Exchange:
    """The processes of one training. They exchange what they know only if `watch` was called in all of them, which they settle once."""

    _count = count()  # trainers that are watched: all processes run the same script

    def __init__(self, trainer: Any) -> None:
        self._processes: int = trainer.accelerator.num_processes
        self._rank: int = trainer.accelerator.process_index
        self._name = f"groupscope/{next(Exchange._count)}"
        self._all: bool | None = None  # not settled yet
        if self._processes > 1 and distributed.is_initialized():
            self._store().set(f"{self._name}/{self._rank}", "watches")

    @staticmethod
    def _store() -> Any:
        return distributed.distributed_c10d._get_default_store()

    def decide(self) -> None:
        """Whether all of them watch. The first that asks decides for all: two answers would let some wait for the others for ever.

        Between `watch` and the first step, where this is asked, the trainer has made its processes wait for each other.
        """
        if self._all is not None:
            return
        self._all = False
        if self._processes > 1 and distributed.is_initialized():
            store = self._store()
            there = store.check([f"{self._name}/{rank}" for rank in range(self._processes)])
            self._all = store.compare_set(f"{self._name}/all", "", "yes" if there else "no") == b"yes"
            if not self._all and self._rank == 0:
                log.warning("token values of the other processes are not recorded: call watch in every process")

    def gathered(self, own: list[Rows]) -> list[list[Rows] | None]:
        """What each process knows, in their order, in the first one; in the others their own alone. None for one that knows nothing.

        Every process has to call it as often.
        """
        if self._processes == 1:
            return [own]
        if not self._all:
            return [own if rank == self._rank else None for rank in range(self._processes)]
        try:
            packed = pickle.dumps(own)  # here: an error inside of the collective would leave the others in it
        except Exception:  # as for `_safely`
            log.exception("token values of a step are not recorded; the training goes on")
            packed = pickle.dumps(None)
        received: list[Any] | None = [None] * self._processes if self._rank == 0 else None
        distributed.gather_object(packed, received)
        if received is None:
            return []
        found = [pickle.loads(one) for one in received]  # noqa: S301 — of our own processes
        return [one if one is not None and len(one) == len(own) else None for one in found]


def _batch(trainer: Any, rows: int) -> Batch:
    """The groups of the generation that ended just now. `rows` are those of this process."""
    logs, size = trainer._logs, trainer.num_generations
    whole = rows * trainer.accelerator.num_processes
    prompts, completions = list(logs["prompt"])[-whole:][::size], list(logs["completion"])[-whole:]
    return Batch(
        size=size,
        prompts=[(question(one), text_of(one)) for one in prompts],
        completions=[Said("" if (turns := turns_in(one)) else text_of(one), turns) for one in completions],
        rewards={name: list(values)[-whole:] for name, values in logs["rewards"].items()},
        weights=_weights(trainer),
        advantages=list(logs["advantages"])[-whole:],
        by_batch=getattr(trainer, "scale_rewards", None) == "batch",
    )


def question(said: Any) -> str:
    """What is asked: the only message of a user without the system prompt; of a longer conversation all of it."""
    asked = [] if isinstance(said, str) else [one for one in said if one.get("role") != "system"]
    return text_of(asked if [one.get("role") for one in asked] == ["user"] else said)


def text_of(said: Any) -> str:
    """A prompt or a completion as text; of messages what they say, one after the other."""
    return said if isinstance(said, str) else "\n".join(map(text_in, said))


def turns_in(said: Any) -> list[Turn]:
    """The turns of a completion; none if the assistant alone speaks, once."""
    if isinstance(said, str):
        return []
    turns = turns_of(said)
    if len(turns) == 1 and turns[0].role == ASSISTANT and turns[0].tool is None:
        return []
    return [replace(turn, failed=turn.role == "tool" and turn.text.startswith(FAILED)) for turn in turns]


def _unsloth(trainer: Any) -> ModuleType | None:
    """The module that Unsloth wrote the trainer's class into, if it did."""
    written = [one.__module__ for one in type(trainer).__mro__ if one.__name__ == "UnslothGRPOTrainer"]
    return sys.modules.get(written[0]) if written else None


def _model(trainer: Any) -> str:
    return str(getattr(trainer.model.config, "_name_or_path", "") or "a model").rstrip("/").rsplit("/", 1)[-1]


def _weights(trainer: Any) -> list[float]:
    """Of the reward functions, as the configuration says them: the trainer has them rounded to float32."""
    return [float(np.format_float_positional(one)) for one in trainer.reward_weights.numpy(force=True)]


def arguments_of(trainer: Any) -> dict[str, Json]:
    """The trainer's arguments, as far as JSON has them."""
    return dict(plain(trainer.args.to_dict()))


def known(trainer: Any, steps: int) -> dict[str, Json]:
    """What of it this program has words for."""
    theirs = arguments_of(trainer) | {"max_steps": steps}
    terms: dict[str, Any] = in_our_terms(theirs)
    if hasattr(trainer, "rollout_queue"):  # AsyncGRPO, whose worker adds up what its functions give
        loop = getattr(trainer.rollout_worker, "_loop_kwargs", None)
        functions = (loop.get("reward_funcs") or []) if isinstance(loop, dict) else []
        weights = [(getattr(one, "__name__", str(one)), 1.0) for one in functions]
        terms["algorithm"] |= {"advantage": {"kind": "group_zscore", "std": "population", "eps": 1e-8}}
    else:
        weights = list(zip(trainer.reward_func_names, _weights(trainer), strict=True))
    if hasattr(trainer, "normalize_advantages"):  # RLOO, which clips the ratio of a whole completion
        other = any(theirs.get(name) for name in ("normalize_advantages", "reward_clip_range", "beta"))
        terms["algorithm"] |= {"advantage": None if other else {"kind": "leave_one_out"}, "surrogate": None}
    return terms | {
        "model": {"source": str(getattr(trainer.model.config, "_name_or_path", ""))[:300]},
        "rewards": {"functions": [{"name": name, "weight": weight} for name, weight in weights]},
    }
