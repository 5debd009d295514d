"""TRL's AsyncGRPOTrainer: what its worker hands over is noted, and reported with the step that trains on it.

The worker scores groups in another process and puts their samples into a queue. The trainer packs samples into micro-batches, which the loss
takes in the order in which they were packed. A group whose samples are trained on in two steps stands in both.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from groupscope.recording import Completion, Group
from groupscope.tokens import Tokens
from groupscope.trl import Watcher, question, text_of, turns_in

MOST_WAITING = (
    2**14
)  # samples that were taken from the queue and not trained on; the trainer drops those that are too old


class Queue:
    """In the place of the trainer's: what is taken out of it is noted."""

    def __init__(self, original: Any, note: Any) -> None:
        self._original, self._note = original, note

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """The next sample."""
        sample = self._original.get(*args, **kwargs)
        self._note(sample)
        return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class AsyncWatcher(Watcher):
    """Follows one trainer, in its main process, which packs the samples of all."""

    def __init__(self, trainer: Any, options: Mapping[str, Any]) -> None:
        super().__init__(trainer, options)
        self._samples: dict[int, Any] = {}  # by the array of their tokens, which the trainer hands on as it is
        self._packed: deque[list[Any]] = deque()
        self._trained: list[Any] = []  # of this step
        self._made: list[Group] = []  # of these

    def wrap(self, trainer: Any) -> None:
        """Put the watcher into the trainer's places: its queue, its packing and its loss."""
        if trainer.rollout_queue is not None:
            trainer.rollout_queue = Queue(trainer.rollout_queue, partial(self._safely, self._note))
            trainer.get_train_dataloader = partial(self.dataloader, trainer.get_train_dataloader)
            trainer.compute_loss = partial(self.compute_loss, trainer.compute_loss)

    def _note(self, sample: Any) -> None:
        self._samples[id(sample.input_ids)] = sample
        if len(self._samples) > MOST_WAITING:
            del self._samples[next(iter(self._samples))]

    def dataloader(self, original: Any) -> Any:
        """A loader whose micro-batches are noted."""
        loader = original()
        collator = loader.collate_fn
        collator.torch_call = partial(self.pack, collator.torch_call)
        return loader

    def pack(self, original: Any, examples: Any) -> Any:
        """A micro-batch was packed."""
        self._safely(self._pack, examples)
        return original(examples)

    def _pack(self, examples: Any) -> None:
        found = [self._samples.pop(id(one["input_ids"]), None) for row in examples[0] for one in row.samples]
        self._packed.append([one for one in found if one is not None])

    def compute_loss(self, original: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The next micro-batch is trained on."""
        if model.training and self._packed:
            self._trained += self._packed.popleft()
        return original(model, inputs, *args, **kwargs)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 — as it is called
        """The run begins, or goes on from a checkpoint."""
        if state.is_world_process_zero:
            self._safely(self._begin, state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 — as it is called
        """The weights were updated."""
        samples, self._trained = self._trained, []
        if samples and not (
            self._safely(self._make, samples) and self._tell("groups", self._made, state.global_step - 1)
        ):
            self._tell("lost", state.global_step - 1)
        if not control.should_log:
            self._end_step()

    def _make(self, samples: Sequence[Any]) -> None:
        groups: dict[int, list[Any]] = {}
        for one in samples:
            groups.setdefault(one.group_id, []).append(one)
        self._made = [
            Group(question(of[0].prompt), [self._completion(one) for one in of], prompt_text=text_of(of[0].prompt))
            for of in groups.values()
        ]

    def _completion(self, sample: Any) -> Completion:
        mask = np.asarray(sample.completion_mask, bool)
        first = int(mask.argmax()) if mask.any() else len(mask)
        ids, trained = np.asarray(sample.input_ids)[first:], mask[first:]
        sampled = np.where(trained, np.asarray(sample.old_log_probs)[first:], np.nan)
        advantages = np.full(len(ids), sample.advantage)
        turns = turns_in(sample.completion)
        return Completion(
            text="" if turns else text_of(sample.completion),
            turns=turns,
            reward=sample.metrics.get("reward"),
            advantage=sample.advantage,
            rewards={name[8:]: value for name, value in sample.metrics.items() if name.startswith("rewards/")},
            tokens=Tokens(
                ids, trained=None if trained.all() else trained, sampling_logprob=sampled, advantage=advantages
            ),
            finish_reason="stop" if len(ids) and int(ids[-1]) in self._ends else "length",
        )
