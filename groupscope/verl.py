"""verl's trainers: a subclass of one that records every step's groups, from verl's driver, where its batches are whole."""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from groupscope.recording import Recording, start_run
from groupscope.samples import Groups, Sample, grpo_advantage, plain, training_goes_on

PER_TOKEN = {
    "rollout_log_probs": "sampling_logprob",
    "old_log_probs": "old_logprob",
    "ref_log_prob": "reference_logprob",
    "entropy": "entropy",
    "entropys": "entropy",
    "advantages": "advantage",
}
"""What a batch may have for each token of a response, by verl's name and ours."""
FIELDS = ["prompts", "responses", "response_mask", "rm_scores", "reward_model", *PER_TOKEN]


def register(mode: str = "sync", **options: Any) -> str:
    """A trainer that records, beside verl's own of that mode; the name for `trainer.v1.trainer_mode`. The options are those of `start_run`."""
    from omegaconf import open_dict
    from verl.trainer.ppo.v1 import get_trainer_cls, register_trainer

    name = f"groupscope_{mode}"

    class Registered(recorded(get_trainer_cls(mode), **options)):  # type: ignore[misc]
        def __init__(self, config: Any) -> None:
            with open_dict(config):
                config.trainer.v1.trainer_mode = mode  # by which verl chooses more than this class
            super().__init__(config)

    register_trainer(name)(Registered)
    return name


def recorded(base: Any, **options: Any) -> Any:
    """A subclass of a PPOTrainer (V1) or of RayPPOTrainer, the legacy one, which records each step."""
    return _v1(base, options) if hasattr(base, "_compute_metrics") else _legacy(base, options)


class Recorder:
    """The record of one trainer. What goes wrong with it is said, and the training goes on."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self.recording: Recording | None = None
        self._groups: Groups | None = None

    def begin(self, trainer: Any) -> None:
        """The run begins, or goes on from a checkpoint."""
        with training_goes_on("this run is"):
            from omegaconf import OmegaConf

            config, algorithm = trainer.config, trainer.config.algorithm
            by_std = algorithm.get("norm_adv_by_std_in_grpo", True)
            self._groups = Groups(trainer.tokenizer)
            self.recording = start_run(
                **({"name": str(config.trainer.experiment_name)} | dict(self._options)),
                trainer="verl",
                version=version("verl"),
                config=plain(OmegaConf.to_container(config, resolve=True)),
                known={
                    "model": {"source": str(config.actor_rollout_ref.model.path)[:300]},
                    "sampling": {"group_size": config.actor_rollout_ref.rollout.n},
                    "algorithm": {"advantage": grpo_advantage(algorithm.adv_estimator, by_std=by_std)},
                    "budget": {"steps": getattr(trainer, "total_training_steps", None)},
                },
                from_step=trainer.global_steps,
            )

    def step(
        self, trainer: Any, samples: Callable[[], Iterator[Sample]], metrics: Callable[[], Mapping[str, Any]]
    ) -> None:
        """A step is over; `samples` and `metrics` make what it has."""
        if self.recording is None or self._groups is None:
            return
        step = trainer.global_steps - 1  # verl's first step is 1
        with training_goes_on("the groups of a step are"):
            self.recording.log_groups(self._groups.of(samples()), step)
        with training_goes_on("the metrics of a step are"):
            known = {name: value for name, value in metrics().items() if not name.startswith("val-")}
            self.recording.log_metrics(known, step)
        self.recording.end_step()

    def evaluated(self, trainer: Any, metrics: Mapping[str, Any]) -> None:
        """A validation is over."""
        if self.recording is None:
            return
        with training_goes_on("the metrics of an evaluation are"):
            known = {f"eval/{name}": value for name, value in metrics.items()}
            self.recording.log_metrics(known, trainer.global_steps)

    def end(self, error: BaseException | None) -> None:
        """The training is over."""
        if self.recording is not None and error is not None:
            self.recording.fail(f"{type(error).__name__}: {error}")
        elif self.recording is not None:
            self.recording.finish()


def _recording_base(base: Any, options: Mapping[str, Any]) -> Any:
    """What both of verl's trainers have in common."""

    class Recorded(base):  # type: ignore[misc]  # verl is not installed where types are checked
        _recorder = Recorder(options)

        def fit(self, *args: Any, **kwargs: Any) -> None:
            error = None
            try:
                super().fit(*args, **kwargs)
            except BaseException as raised:
                error = raised
                raise
            finally:
                self._recorder.end(error)

        def _validate(self, *args: Any, **kwargs: Any) -> Any:
            metrics = super()._validate(*args, **kwargs)
            self._recorder.evaluated(self, metrics)
            return metrics

    return Recorded


def _v1(base: Any, options: Mapping[str, Any]) -> Any:
    class RecordedTrainer(_recording_base(base, options)):  # type: ignore[misc]  # a class made above
        def fit(self, *args: Any, **kwargs: Any) -> None:
            self._recorder.begin(self)
            super().fit(*args, **kwargs)

        def _compute_metrics(self, batch: Any, metrics: Any, *args: Any, **kwargs: Any) -> None:
            """The last that happens before the batch is cleared, with all metrics of its step."""
            super()._compute_metrics(batch, metrics, *args, **kwargs)
            self._recorder.step(self, lambda: _samples_of_queue(batch), lambda: metrics)

    return RecordedTrainer


def _legacy(base: Any, options: Mapping[str, Any]) -> Any:
    class RecordedTrainer(_recording_base(base, options)):  # type: ignore[misc]  # a class made above
        def _load_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
            """From here on it is known at which step it begins."""
            found = super()._load_checkpoint(*args, **kwargs)
            self._recorder.begin(self)
            return found

        def _update_actor(self, batch: Any) -> Any:
            """The batch is whole here, whether or not it is written to a folder."""
            output = super()._update_actor(batch)
            self._recorder.step(self, lambda: _samples_of_proto(batch), lambda: _metrics_of_proto(output))
            return output

    return RecordedTrainer


def _samples_of_queue(batch: Any) -> Iterator[Sample]:
    """Those of a KVBatchMeta, whose fields lie in the TransferQueue, each row as long as it is."""
    import transfer_queue

    data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS)
    known = {ours: data[theirs].unbind() for theirs, ours in PER_TOKEN.items() if theirs in data}
    prompts, responses, masks = (data[name].unbind() for name in FIELDS[:3])
    scores = data["rm_scores"].unbind() if "rm_scores" in data else None
    truths = list(data["reward_model"]) if "reward_model" in data else [None] * len(batch.keys)
    for row, (key, tag) in enumerate(zip(batch.keys, batch.tags, strict=True)):
        if tag.get("is_padding", False):
            continue
        yield Sample(
            group=key.rsplit("_", 2)[0],  # {group}_{rollout}_{output}
            prompt_ids=prompts[row].tolist(),
            ids=responses[row].tolist(),
            mask=masks[row].bool().tolist(),
            values={name: each[row].float().tolist() for name, each in known.items()},
            reward=None if scores is None else float(scores[row].float().sum()),
            answer=_answer(truths[row]),
        )


def _samples_of_proto(batch: Any) -> Iterator[Sample]:
    """Those of a DataProto: prompts padded on the left, responses on the right."""
    tensors, others = batch.batch, batch.non_tensor_batch
    known = {ours: tensors[theirs] for theirs, ours in PER_TOKEN.items() if theirs in tensors}
    width = tensors["responses"].shape[1]
    truths = others.get("reward_model", [None] * len(tensors["responses"]))
    for row, uid in enumerate(others["uid"]):
        there = tensors["attention_mask"][row].bool()
        length = int(there[-width:].sum())
        yield Sample(
            group=str(uid),
            prompt_ids=tensors["prompts"][row][there[:-width]].tolist(),
            ids=tensors["responses"][row, :length].tolist(),
            mask=tensors["response_mask"][row, :length].bool().tolist(),
            values={name: each[row, :length].float().tolist() for name, each in known.items()},
            reward=float(tensors["token_level_scores"][row].sum()) if "token_level_scores" in tensors else None,
            answer=_answer(truths[row]),
        )


def _metrics_of_proto(output: Any) -> Mapping[str, Any]:
    from verl.utils.metric import reduce_metrics

    return dict(reduce_metrics(dict(output.meta_info["metrics"])))


def _answer(truth: Any) -> str | None:
    known = truth.get("ground_truth") if isinstance(truth, Mapping) else None
    return None if known is None else str(known)
