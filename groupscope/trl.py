"""TRL's GRPOTrainer, and Unsloth's, which is a patched copy of it: three of its methods are wrapped, and a callback follows its steps.

`_generate_and_score_completions` is where a batch of groups is made; `compute_loss` passes its rows, shuffled and in parts, through the
model. A number added to each row finds it again there. Nothing is computed anew, and no random number drawn.

Of several processes the first one reports. What only the others know comes to it in one collective at the end of each step, in which every
process takes part whatever went wrong in it before: one that stayed away would let the others wait for ever.
"""

import logging
import math
import pickle
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from itertools import count
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor, distributed
from transformers import TrainerCallback

from backend.contract.base import Json
from backend.contract.connection import Connection
from backend.contract.home import load
from backend.contract.protocol import EVALUATION
from backend.contract.token_texts import TokenTexts
from backend.contract.trl import in_our_terms
from groupscope.conversation import ASSISTANT, Turn, text_in, turns_of
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
FAILED = "{'error': "  # begins what TRL gives the model for a tool that raised
OF_THE_WHOLE = "train_runtime"  # is in what is logged once, at the end


def attach(trainer: Any, **options: Any) -> None:
    """Have the trainer tell of its groups. Raises CannotStart without a token to show."""
    if trainer.accelerator.is_main_process:
        load(Connection, home=options.get("home")).client().close()  # said now, and not after the model is loaded
    watcher = Watcher(trainer, options)
    trainer._generate_and_score_completions = partial(watcher.generate, trainer._generate_and_score_completions)
    trainer.compute_loss = partial(watcher.compute_loss, trainer.compute_loss)
    trainer._get_per_token_logps_and_entropies = partial(watcher.measure, trainer._get_per_token_logps_and_entropies)
    trainer.add_callback(watcher)


@dataclass
class Rows:
    """What one process knows of the rows of a generation that it trains on. Tensors of (rows, tokens), on the CPU."""

    ids: Tensor
    mask: Tensor  # of each token, whether the loss counts it
    lengths: list[int]
    answers: list[str | None]
    values: dict[str, Tensor] = field(default_factory=dict)  # by our names

    @classmethod
    def of(cls, inputs: Sequence[Mapping[str, Any]], output: Mapping[str, Any], padding: int) -> "Rows":
        """Those of a batch as `_generate_and_score_completions` takes and returns it."""
        ids, mask = output["completion_ids"].cpu(), output["completion_mask"].cpu().bool()
        # a row whose mask is empty was cut, and is left out of the loss for that
        there = torch.where(mask.any(1, keepdim=True), mask, ids != padding)
        lengths = (there * torch.arange(1, ids.shape[1] + 1)).amax(1).tolist()
        if "tool_mask" in output:
            mask = mask & output["tool_mask"].cpu().bool()
        known = {ours: output[theirs] for theirs, ours in PER_TOKEN.items() if output.get(theirs) is not None}
        values = {name: each.detach().float().cpu() for name, each in known.items()}
        return cls(ids, mask, lengths, [_answer(row) for row in inputs], values)

    def put(self, name: str, rows: Tensor, values: Tensor) -> None:
        """Values of some rows, as wide as all of them."""
        if name not in self.values:
            self.values[name] = torch.full(self.ids.shape, math.nan)
        self.values[name][rows] = values.detach().float().cpu()

    def tokens(self, texts: TokenTexts, advantages: Sequence[float]) -> list[Tokens]:
        """Those of each row, with what follows from their values: ratio and KL (k3) in TRL's own terms."""
        found = dict(self.values)
        new, reference = found.get("logprob"), found.get("reference_logprob")
        if new is not None:
            found["ratio"] = torch.exp(new - found.setdefault("old_logprob", new))
        if new is not None and reference is not None:
            found["kl"] = torch.exp(reference - new) - (reference - new) - 1
        whole = torch.arange(self.ids.shape[1]) < torch.tensor(self.lengths)[:, None]
        known = {name: (~values.isnan() & whole).any(1).tolist() for name, values in found.items()}
        all_trained = (self.mask | ~whole).all(1).tolist()
        ids, mask, lists = self.ids.tolist(), self.mask.tolist(), {name: each.tolist() for name, each in found.items()}
        return [
            Tokens(
                ids=ids[row][:length],
                texts=texts.of(ids[row][:length]),
                trained=None if all_trained[row] else mask[row][:length],
                advantage=[advantages[row]] * length,
                **{name: each[row][:length] for name, each in lists.items() if known[name][row]},
            )
            for row, length in enumerate(self.lengths)
        ]


class Batch:
    """The groups of one generation. Texts, rewards and advantages are those of all processes, which TRL has gathered."""

    def __init__(self, trainer: Any, rows: Rows) -> None:
        self.rows = rows  # of this process
        self.size: int = trainer.num_generations
        self.count = len(rows.lengths) * trainer.accelerator.num_processes
        logs = trainer._logs
        self.prompts, self.completions = list(logs["prompt"])[-self.count :], list(logs["completion"])[-self.count :]
        self.rewards = {name: list(values)[-self.count :] for name, values in logs["rewards"].items()}
        self.advantages: list[float] = list(logs["advantages"])[-self.count :]


class Watcher(TrainerCallback):
    """Follows one trainer. What goes wrong with the record is said once, and the training goes on."""

    def __init__(self, trainer: Any, options: Mapping[str, Any]) -> None:
        self._trainer, self._options = trainer, dict(options)
        self._recording: Recording | None = None
        self._batches: list[Batch] = []  # of this step, in which a model may sample several times
        self._rows: Tensor | None = None  # those that the model is passed now
        self._broken = False
        self._aside: ThreadPoolExecutor | None = None  # while a training is recorded
        self._together = Together(trainer)
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

    def compute_loss(self, original: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Some of its rows go through the model."""
        self._rows = inputs.get(ROW) if model.training else None
        try:
            return original(model, inputs, *args, **kwargs)
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
        self._together.decide()
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
        everywhere = self._together.gathered([batch.rows for batch in batches])
        if batches:
            self._later(self._record, batches, everywhere, state.global_step - 1)
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
        rows = Rows.of(inputs, output, self._padding)
        self._batches.append(Batch(self._trainer, rows))
        output[ROW] = torch.arange(len(rows.lengths), device=output["completion_ids"].device)

    def _measured(self, rows: Tensor, found: Sequence[Tensor | None]) -> None:
        if self._batches:  # else an earlier step has sampled these rows, and was reported
            for name, values in zip(("logprob", "entropy"), found, strict=False):
                if values is not None:
                    self._batches[-1].rows.put(name, rows.cpu(), values)

    def _record(
        self, recording: Recording, batches: Sequence[Batch], everywhere: Sequence[Sequence[Rows] | None], step: int
    ) -> None:
        groups = []
        for place, batch in enumerate(batches):
            each = [None if known is None else known[place] for known in everywhere]
            groups += self._groups(batch, each)
        recording.log_groups(groups, step)

    def _groups(self, batch: Batch, everywhere: Sequence[Rows | None]) -> list[Group]:
        """Those of a generation; `everywhere` is what each process knows of its rows, None if that is not known here."""
        tokens: list[Tokens | None] = []
        answers: list[str | None] = []
        for rows in everywhere:
            first, share = len(tokens), batch.count // len(everywhere)
            advantages = batch.advantages[first : first + share]
            tokens += [None] * share if rows is None else rows.tokens(self._texts, advantages)
            answers += [None] * share if rows is None else rows.answers
        totals = _totals(batch.rewards, self._trainer.reward_weights.tolist())
        whole = [total for total in totals if total is not None]
        groups = []
        for first in range(0, batch.count, batch.size):
            places = range(first, first + batch.size)
            known = [total for total in totals[first : first + batch.size] if total is not None]
            spread = whole if self._trainer.scale_rewards == "batch" else known
            groups.append(
                Group(
                    prompt=_text(batch.prompts[first]),
                    answer=answers[first],
                    reward_mean=fmean(known) if known else None,
                    reward_std=stdev(spread) if len(spread) > 1 else None,
                    completions=[self._completion(batch, row, totals[row], tokens[row]) for row in places],
                )
            )
        return groups

    def _completion(self, batch: Batch, row: int, total: float | None, tokens: Tokens | None) -> Completion:
        said = batch.completions[row]
        turns = _turns(said)
        counted = tokens is None or tokens.trained is None or any(tokens.trained)
        return Completion(
            text=_text(said) if not turns else "",
            turns=turns if counted else [replace(turn, trained=False) for turn in turns],
            reward=total,
            advantage=batch.advantages[row],
            rewards={name: _number(found[row]) for name, found in batch.rewards.items()},
            tokens=tokens,
            finish_reason="stop" if tokens is None or (tokens.ids and tokens.ids[-1] in self._ends) else "length",
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


class Together:
    """The processes of one training. They exchange what they know only if `watch` was called in all of them, which they settle once."""

    _count = count()  # trainers that are watched: all processes run the same script

    def __init__(self, trainer: Any) -> None:
        self._processes: int = trainer.accelerator.num_processes
        self._rank: int = trainer.accelerator.process_index
        self._name = f"groupscope/{next(Together._count)}"
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
        except Exception:  # the boundary between a record and the training that it must not end
            log.exception("token values of a step are not recorded; the training goes on")
            packed = pickle.dumps(None)
        received: list[Any] | None = [None] * self._processes if self._rank == 0 else None
        distributed.gather_object(packed, received)
        if received is None:
            return []
        found = [pickle.loads(one) for one in received]  # noqa: S301 — of our own processes
        return [one if one is not None and len(one) == len(own) else None for one in found]


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
    return said if isinstance(said, str) else "\n".join(map(text_in, said))


def _turns(said: Any) -> list[Turn]:
    """The turns of a completion; none if the assistant alone speaks, once."""
    if isinstance(said, str):
        return []
    turns = turns_of(said)
    if len(turns) == 1 and turns[0].role == ASSISTANT and turns[0].tool is None:
        return []
    return [replace(turn, failed=turn.role == "tool" and turn.text.startswith(FAILED)) for turn in turns]


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
