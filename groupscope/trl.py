"""TRL's GRPOTrainer, and Unsloth's, which is a patched copy of it: two of its methods are wrapped, and a callback follows its steps.

`_generate_and_score_completions` is where a batch of groups is made; `_compute_loss` passes its rows, shuffled and in parts, through the
model. A number added to each row finds it again there. Nothing is computed anew, and no random number drawn.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from statistics import fmean, stdev
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import TrainerCallback

from backend.contract.base import Json
from backend.contract.connection import Connection
from backend.contract.home import load
from backend.contract.protocol import EVALUATION
from backend.contract.token_texts import TokenTexts
from backend.contract.trl import in_our_terms
from groupscope.recording import Completion, Group, Recording, start_run
from groupscope.tokens import Tokens

log = logging.getLogger("groupscope")

ROW = "groupscope_row"
PER_TOKEN = {
    "old_per_token_logps": "old_logprob",
    "sampling_per_token_logps": "sampling_logprob",
    "ref_per_token_logps": "reference_logprob",
}
"""What a batch may have for each token, by TRL's name and ours."""
ANSWERS = ("answer", "solution", "ground_truth")
_OVERFLOWS = 709.0  # e to a larger power is beyond a float
OF_THE_WHOLE = "train_runtime"  # is in what is logged once, at the end


def attach(trainer: Any, **options: Any) -> None:
    """Have the trainer tell of its groups. Raises CannotStart without a token to show."""
    load(Connection, home=options.get("home")).client().close()  # said now, and not after the model is loaded
    watcher = Watcher(trainer, options)
    trainer._generate_and_score_completions = partial(watcher.generate, trainer._generate_and_score_completions)
    trainer._compute_loss = partial(watcher.compute_loss, trainer._compute_loss)
    trainer._get_per_token_logps_and_entropies = partial(watcher.measure, trainer._get_per_token_logps_and_entropies)
    trainer.add_callback(watcher)


class Batch:
    """The groups of one generation, and what was measured of their rows so far. All on the CPU."""

    def __init__(self, trainer: Any, inputs: Sequence[Mapping[str, Any]], output: Mapping[str, Any]) -> None:
        count = len(output["completion_ids"]) * trainer.accelerator.num_processes
        logs = trainer._logs
        self.prompts, self.completions = list(logs["prompt"])[-count:], list(logs["completion"])[-count:]
        self.answers = [_answer(row) for row in inputs]
        if trainer.accelerator.num_processes > 1:
            self.answers = gather_object(self.answers)
        self.rewards = {name: list(values)[-count:] for name, values in logs["rewards"].items()}
        self.advantages: list[float] = list(logs["advantages"])[-count:]
        self.size: int = trainer.num_generations
        self.values = {
            ours: _all(trainer, output[theirs]) for theirs, ours in PER_TOKEN.items() if output.get(theirs) is not None
        }
        self.ids, mask = _all(trainer, output["completion_ids"]), _all(trainer, output["completion_mask"])
        self.mask = mask.bool()

    def put(self, name: str, rows: Tensor, values: Tensor) -> None:
        """Values of some rows, as wide as the batch."""
        if name not in self.values:
            self.values[name] = torch.full(self.ids.shape, math.nan)
        self.values[name][rows] = values.detach().float().cpu()


def _all(trainer: Any, local: Tensor) -> Tensor:
    """The rows of all processes, in their order."""
    if trainer.accelerator.num_processes > 1:
        local = trainer.accelerator.gather(trainer.accelerator.pad_across_processes(local, dim=1))
    return local.detach().cpu()


class Watcher(TrainerCallback):
    """Follows one trainer. What goes wrong with the record is said once, and the training goes on."""

    def __init__(self, trainer: Any, options: Mapping[str, Any]) -> None:
        self._trainer, self._options = trainer, dict(options)
        self._recording: Recording | None = None
        self._batches: list[Batch] = []  # of this step, in which a model may sample several times
        self._rows: Tensor | None = None  # those that the model is passed now
        self._broken = False
        self._aside: ThreadPoolExecutor | None = None  # while a training is recorded
        tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        self._texts = TokenTexts(tokenizer)
        self._padding = tokenizer.pad_token_id
        self._ends = {*getattr(trainer, "eos_token_ids", [tokenizer.eos_token_id]), self._padding}

    # ---- the wrapped methods

    def generate(self, original: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """A batch of groups was made."""
        output = original(inputs, *args, **kwargs)
        if self._trainer.model.training:
            self._safely(self._keep, inputs, output)
        return output

    def compute_loss(self, original: Any, model: Any, inputs: Any) -> Any:
        """Some of its rows go through the model."""
        self._rows = inputs.get(ROW) if model.training else None
        try:
            return original(model, inputs)
        finally:
            self._rows = None

    def measure(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Their log-probs and entropies are known."""
        found = original(*args, **kwargs)
        if self._rows is not None:
            self._safely(self._measured, self._rows, found)
        return found

    # ---- the trainer's steps

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 — as it is called
        """The run begins, or goes on from a checkpoint."""
        if state.is_world_process_zero:
            self._safely(self._begin, state)

    def _begin(self, state: Any) -> None:
        if self._recording is not None:  # a training that an error ended, in a notebook, say
            self._recording.fail("It broke off, and another training began.")
        self._recording = start_run(
            **({"name": _name(self._trainer)} | self._options),
            trainer="TRL",
            version=version("trl"),
            config=_theirs(self._trainer),
            known=_known(self._trainer, state.max_steps),
            from_step=state.global_step,
        )
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="groupscope")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 — as it is called
        """The weights were updated: what is known of the step's groups is whole."""
        batches, self._batches = self._batches, []
        if batches:
            self._later(self._record, batches, state.global_step - 1)
        if not control.should_log:
            self._later(Recording.end_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:  # noqa: ARG002 — as it is called
        """TRL logged means over the steps since it did last; what it logs of an evaluation begins with eval_."""
        numbers = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
        evaluated = {EVALUATION + name[5:]: value for name, value in numbers.items() if name.startswith("eval_")}
        trained = {} if OF_THE_WHOLE in numbers else numbers
        if evaluated:
            self._later(Recording.log_metrics, evaluated, state.global_step)
        elif trained:
            self._later(Recording.log_metrics, trained, state.global_step - 1)
            self._later(Recording.end_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 — as it is called
        """The run is over."""
        aside, recording = self._aside, self._recording
        self._aside = self._recording = None
        if aside is not None and recording is not None:
            aside.submit(self._safely, recording.finish)
            aside.shutdown(wait=True)

    # ---- the record

    def _keep(self, inputs: Sequence[Mapping[str, Any]], output: dict[str, Any]) -> None:
        self._batches.append(Batch(self._trainer, inputs, output))
        rows = torch.arange(len(output["completion_ids"]), device=output["completion_ids"].device)
        output[ROW] = rows + len(rows) * self._trainer.accelerator.process_index

    def _measured(self, rows: Tensor, found: Sequence[Tensor | None]) -> None:
        if self._batches:  # else an earlier step has sampled these rows, and was reported
            for name, values in zip(("logprob", "entropy"), found, strict=False):
                if values is not None:
                    self._batches[-1].put(name, rows.cpu(), values)

    def _record(self, recording: Recording, batches: Sequence[Batch], step: int) -> None:
        recording.log_groups([group for batch in batches for group in self._groups(batch)], step)

    def _groups(self, batch: Batch) -> "list[Group]":
        weights = self._trainer.reward_weights.tolist()
        totals = _totals(batch.rewards, weights)
        whole = [total for total in totals if total is not None]
        lengths = [self._length(ids, mask) for ids, mask in zip(batch.ids, batch.mask, strict=True)]
        groups = []
        for first in range(0, len(totals), batch.size):
            rows = range(first, first + batch.size)
            known = [total for total in totals[first : first + batch.size] if total is not None]
            spread = whole if self._trainer.scale_rewards == "batch" else known
            groups.append(
                Group(
                    prompt=_text(batch.prompts[first]),
                    answer=batch.answers[first],
                    reward_mean=fmean(known) if known else None,
                    reward_std=stdev(spread) if len(spread) > 1 else None,
                    completions=[self._completion(batch, row, totals[row], lengths[row]) for row in rows],
                )
            )
        return groups

    def _length(self, ids: Tensor, mask: Tensor) -> int:
        """How many tokens it has; a mask without any is of a completion that is left out because it was cut."""
        places = (mask if mask.any() else ids != self._padding).nonzero()
        return int(places.max()) + 1 if len(places) else 0

    def _completion(self, batch: Batch, row: int, total: float | None, length: int) -> Completion:
        ids = batch.ids[row, :length].tolist()
        values: dict[str, Any] = {
            name: [None if math.isnan(value) else value for value in found[row, :length].tolist()]
            for name, found in batch.values.items()
        }
        if all(value is None for value in values.get("logprob", [])):
            values.pop("logprob", None)
        new = values.get("logprob")
        old = values.setdefault("old_logprob", new) if new is not None else values.get("old_logprob")
        if new is not None and old is not None:
            values["ratio"] = [None if n is None or o is None else _exp(n - o) for n, o in zip(new, old, strict=True)]
        reference = values.get("reference_logprob")
        if new is not None and reference is not None:
            values["kl"] = [
                None if n is None or r is None else _exp(r - n) - (r - n) - 1
                for n, r in zip(new, reference, strict=True)
            ]
        advantage = batch.advantages[row]
        return Completion(
            text=_text(batch.completions[row]),
            reward=total,
            advantage=advantage,
            rewards={name: _number(found[row]) for name, found in batch.rewards.items()},
            tokens=Tokens(ids=ids, texts=self._texts.of(ids), advantage=[advantage] * length, **values),
            finish_reason="stop" if ids and ids[-1] in self._ends else "length",
        )

    # ---- around all of it

    def _later(self, what: Any, *args: Any) -> None:
        if self._aside is not None and self._recording is not None:
            self._aside.submit(self._safely, what, self._recording, *args)

    def _safely(self, what: Any, *args: Any) -> None:
        try:
            what(*args)
        except Exception:  # the boundary between a record and the training that it must not end
            if not self._broken:
                log.exception("a part of this run is not recorded; the training goes on")
            self._broken = True


def _exp(value: float) -> float:
    return math.exp(value) if value < _OVERFLOWS else math.inf  # which no record keeps


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _totals(rewards: Mapping[str, Sequence[float | None]], weights: Sequence[float]) -> list[float | None]:
    """The weighted sum of each row's rewards, of those that it has; None if it has none."""
    totals: list[float | None] = []
    for each in zip(*rewards.values(), strict=True):
        known = [weight * value for weight, value in zip(weights, each, strict=True) if _number(value) is not None]
        totals.append(math.fsum(known) if known else None)
    return totals


def _text(said: Any) -> str:
    """A prompt or a completion as text; of messages what they say, one after the other."""
    if isinstance(said, str):
        return said
    return "\n".join(str(message.get("content") or "") for message in said)


def _answer(row: Mapping[str, Any]) -> str | None:
    """What the rewards compare with, if the data set has a column that is usually called so."""
    return next((str(row[name]) for name in ANSWERS if isinstance(row.get(name), str | int | float)), None)


def _name(trainer: Any) -> str:
    model = str(getattr(trainer.model.config, "_name_or_path", "") or "a model").rstrip("/").rsplit("/", 1)[-1]
    return f"TRL on {model}"


def _theirs(trainer: Any) -> dict[str, Json]:
    """The trainer's arguments, as far as JSON has them."""
    return {name: _json(value) for name, value in trainer.args.to_dict().items()}


def _json(value: Any) -> Json:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return str(value)


def _known(trainer: Any, steps: int) -> dict[str, Json]:
    """What of it this program has words for."""
    weights = zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True)
    return in_our_terms(_theirs(trainer) | {"max_steps": steps}) | {
        "model": {"source": str(getattr(trainer.model.config, "_name_or_path", ""))[:300]},
        "rewards": {"functions": [{"name": name, "weight": weight} for name, weight in weights]},
    }
