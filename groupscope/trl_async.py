"""TRL's AsyncGRPOTrainer: its worker's samples are noted as they leave the queue, and reported with the step that trains on them.

Samples are packed into micro-batches, which the loss takes in their order. A group that two steps train on stands in both.
"""

from collections import deque
from functools import partial
from typing import Any

import numpy as np

from groupscope.recording import Completion, Group
from groupscope.samples import training_goes_on
from groupscope.tokens import Tokens
from groupscope.trl import Watcher, question, text_of, turns_in

MOST_WAITING = 2**14  # samples that left the queue and are not packed: the trainer drops those that are too old


class AsyncWatcher(Watcher):
    """Follows one trainer, in its main process, which packs the samples of all."""

    def wrap(self, trainer: Any) -> None:
        """Follow its queue, its packing and its loss."""
        self._samples: deque[Any] = deque(maxlen=MOST_WAITING)
        self._packed: deque[list[Any]] = deque()
        self._trained: list[Any] = []  # of this step
        if trainer.rollout_queue is not None:
            trainer.rollout_queue.get = partial(self._take, trainer.rollout_queue.get)
            trainer.get_train_dataloader = partial(self._follow, trainer.get_train_dataloader)
            trainer.compute_loss = partial(self.compute_loss, trainer.compute_loss)

    def _take(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        sample = original(*args, **kwargs)
        self._samples.append(sample)
        return sample

    def _follow(self, original: Any) -> Any:
        loader = original()
        with training_goes_on("groups of this training are"):
            loader.collate_fn.torch_call = partial(self._batch, loader.collate_fn.torch_call)
        return loader

    def _batch(self, original: Any, examples: Any) -> Any:
        self._safely(self._note, examples)
        return original(examples)

    def _note(self, examples: Any) -> None:
        there = {id(one.input_ids): one for one in self._samples}  # the trainer hands on the array as it is
        packed = [id(one["input_ids"]) for row in examples[0] for one in row.samples]
        self._packed.append([there.pop(one) for one in packed if one in there])
        self._samples = deque(there.values(), MOST_WAITING)

    def compute_loss(self, original: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The next micro-batch is trained on."""
        if model.training and self._packed:
            self._trained += self._packed.popleft()
        return original(model, inputs, *args, **kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 — as it is called
        """The weights were updated."""
        groups: dict[int, list[Any]] = {}
        for one in self._trained:
            groups.setdefault(one.group_id, []).append(one)
        self._trained = []
        whole = [self._safely(self._group, of, state.global_step - 1) for of in groups.values()]
        if not all(whole):
            self._tell("lost", state.global_step - 1)
        if not control.should_log:
            self._end_step()

    def _group(self, samples: list[Any], step: int) -> None:
        prompt, completions = samples[0].prompt, [self._completion(one) for one in samples]
        if not self._tell("group", Group(question(prompt), completions, prompt_text=text_of(prompt)), step):
            raise RuntimeError("a group could not be handed over")

    def _completion(self, sample: Any) -> Completion:
        mask = np.asarray(sample.completion_mask, bool)
        first = int(mask.argmax()) if mask.any() else len(mask)
        ids, trained = np.asarray(sample.input_ids)[first:], mask[first:]
        sampled = np.where(trained, np.asarray(sample.old_log_probs)[first:], np.nan)
        advantages, turns = np.full(len(ids), sample.advantage), turns_in(sample.completion)
        return Completion(
            text="" if turns else text_of(sample.completion),
            turns=turns,
            reward=sample.metrics.get("reward"),
            advantage=sample.advantage,
            rewards={
                name.removeprefix("rewards/"): value
                for name, value in sample.metrics.items()
                if name.startswith("rewards/")
            },
            tokens=Tokens(ids, trained=trained, sampling_logprob=sampled, advantage=advantages),
            finish_reason="stop" if len(ids) and int(ids[-1]) in self._ends else "length",
        )
