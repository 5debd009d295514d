"""SkyRL's trainer: a callback that records every step's groups.

At the end of a step SkyRL's batch has lost its rewards and the ids of its groups: they are kept when the advantages are computed of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any

from skyrl.train.utils.callbacks import TrainingCallback

from backend.contract.protocol import EVALUATION
from groupscope.recording import Recording, start_run
from groupscope.samples import Groups, Sample, grpo_advantage, plain, training_goes_on

PER_TOKEN = {
    "rollout_logprobs": "sampling_logprob",
    "action_log_probs": "old_logprob",
    "base_action_log_probs": "reference_logprob",
    "kl": "kl",
    "advantages": "advantage",
}
"""What a batch may have for each token of a response, by SkyRL's name and ours."""


class Recorder(TrainingCallback):  # type: ignore[misc]
    """Give it to the trainer: `trainer.add_callback(Recorder(name="my run"))`. The options are those of `start_run`."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._recording: Recording | None = None
        self._groups: Groups | None = None
        self._uids: list[str] = []
        self._rewards: list[float] = []

    def on_train_start(self, trainer: Any, callback_input: Any, control: Any) -> None:  # noqa: ARG002 — as it is called
        """The run begins, or goes on from a checkpoint."""
        with training_goes_on("this run is"):
            config, algorithm = asdict(trainer.cfg), trainer.cfg.trainer.algorithm
            advantage = grpo_advantage(algorithm.advantage_estimator, by_std=algorithm.grpo_norm_by_std)
            self._groups = Groups(trainer.tokenizer)
            self._recording = start_run(
                **({"name": "SkyRL"} | self._options),
                trainer="SkyRL",
                version=version("skyrl"),
                config=plain(config),
                known={
                    "sampling": {"group_size": trainer.cfg.generator.n_samples_per_prompt},
                    "algorithm": {"advantage": advantage},
                    "budget": {"steps": callback_input.total_steps or None},
                },
                from_step=callback_input.global_step,
            )
            trainer.compute_advantages_and_returns = partial(self._keep_rewards, trainer.compute_advantages_and_returns)

    def _keep_rewards(self, original: Any, data: Any) -> Any:
        self._uids, self._rewards = [], []  # those of another step would be taken for this one's
        with training_goes_on("the rewards of a step are"):
            self._uids, self._rewards = list(data.metadata["uids"]), data["rewards"].sum(-1).tolist()
        return original(data)

    def on_step_end(self, trainer: Any, callback_input: Any, control: Any) -> None:  # noqa: ARG002 — as it is called
        """The weights were updated with this batch."""
        if self._recording is not None and self._groups is not None:
            with training_goes_on("the groups of a step are"):
                self._recording.log_groups(
                    self._groups.of(self._samples(callback_input.batch)), callback_input.global_step - 1
                )

    def _samples(self, batch: Any) -> Iterator[Sample]:
        padded = (batch.metadata or {}).get("pad_size", 0)  # copies of the first row at the end, for even shards
        width = batch["response_mask"].shape[1]
        known = {ours: batch[theirs] for theirs, ours in PER_TOKEN.items() if batch.get(theirs) is not None}
        for row in range(len(batch["sequences"]) - padded):
            ids, there = batch["sequences"][row], batch["attention_mask"][row].bool()
            length = int(batch["response_mask"][row].sum())  # the last of the row
            first = width - length
            yield Sample(
                group=self._uids[row],
                prompt_ids=ids[: len(ids) - length][there[: len(ids) - length]].tolist(),
                ids=ids[len(ids) - length :].tolist(),
                mask=batch["loss_mask"][row, first:].bool().tolist(),
                values={name: each[row, first:].float().tolist() for name, each in known.items()},
                reward=self._rewards[row],
            )

    def on_log(self, trainer: Any, callback_input: Any, control: Any) -> None:  # noqa: ARG002 — as it is called
        """SkyRL's metrics, under its names; those of an evaluation begin with `eval/`, as here."""
        if self._recording is not None:
            logs: Mapping[str, Any] = callback_input.logs or {}
            evaluated = {name: value for name, value in logs.items() if name.startswith(EVALUATION)}
            self._recording.log_metrics(evaluated, callback_input.global_step)
            trained = {name: value for name, value in logs.items() if name not in evaluated}
            if trained:
                self._recording.log_metrics(trained, callback_input.global_step - 1)
                self._recording.end_step()

    def on_train_end(self, trainer: Any, callback_input: Any, control: Any) -> None:  # noqa: ARG002 — as it is called
        """The run is over."""
        if self._recording is not None:
            self._recording.finish()
