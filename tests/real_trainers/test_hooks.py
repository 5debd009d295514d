"""The hooks for verl and SkyRL, called as these call them, with batches of their own classes. What samples and trains is not there."""

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from serving import TOKEN, Backend

import worker.models
from backend.contract.groups import Group

pytestmark = pytest.mark.trainers

PROMPTS = [[5, 6, 7], [8, 9]]  # two groups of two
RESPONSES = [[10, 11, 2], [12, 13, 14, 15], [16, 2], [17, 18, 19]]
MASKS = [[1, 1, 1], [1, 0, 0, 1], [1, 1], [1, 1, 1]]
REWARDS = [1.0, 0.0, 0.5, 0.5]
ADVANTAGES = [0.7, -0.7, 0.0, 0.0]
SCORES = [[0.0] * (len(ids) - 1) + [reward] for ids, reward in zip(RESPONSES, REWARDS, strict=True)]  # by token
ASKED = [PROMPTS[row // 2] for row in range(4)]


def values(shift: float) -> list[torch.Tensor]:
    return [-(torch.arange(len(ids)) / 8 + shift) for ids in RESPONSES]


@pytest.fixture
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(Path(worker.models.__file__).parent / "tiny_arithmetic")


@pytest.fixture(autouse=True)
def home(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPSCOPE_HOME", str(backend.home))
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    monkeypatch.setenv("GROUPSCOPE_BACKEND_URL", backend.url)


def assert_recorded(backend: Backend, trainer: str, tokenizer: Any, *, names: dict[str, float], metric: str) -> None:
    """`names` are columns of the token view, and by how much their `values` are shifted."""
    [run] = backend.client.runs(kind="recorded").items
    assert (run.status, run.progress.step, run.config["trainer"]["name"]) == ("finished", 1, trainer)
    assert run.config["algorithm"]["advantage"] == {
        "kind": "group_zscore",
        "std": "sample",
        "eps": 1e-6,
        "std_floor": 0.0,
    }
    assert backend.client.metrics(run.id).series[metric].step == [0]
    found = backend.client.groups(run.id, step=0, sort="index").items
    groups: list[Group] = [backend.client.group(one.id) for one in found]
    assert [group.prompt for group in groups] == [tokenizer.decode(ids, skip_special_tokens=True) for ids in PROMPTS]
    assert [group.state for group in groups] == ["live", "zero_variance"]
    rows = [one for group in groups for one in group.completions]
    assert [one.reward for one in rows] == REWARDS
    assert [one.advantage for one in rows] == pytest.approx(ADVANTAGES)
    for row, one in enumerate(rows):
        trace = backend.client.tokens(one.id)
        assert trace.token_ids == RESPONSES[row]
        assert trace.trained == (None if all(MASKS[row]) else [bool(value) for value in MASKS[row]])
        for name, shift in names.items():
            assert getattr(trace, name) == pytest.approx(values(shift)[row].tolist(), abs=1e-6), name


# ---- SkyRL


@dataclass
class Generator:
    n_samples_per_prompt: int = 2


@dataclass
class Algorithm:
    advantage_estimator: str = "grpo"
    grpo_norm_by_std: bool = True


@dataclass
class Trainer:
    algorithm: Algorithm = field(default_factory=Algorithm)


@dataclass
class SkyConfig:
    """What the callback reads of SkyRL's own, a tree of dataclasses as this is."""

    generator: Generator = field(default_factory=Generator)
    trainer: Trainer = field(default_factory=Trainer)


@pytest.fixture
def batches() -> Any:
    """SkyRL's module of batches alone: the package around it needs Python 3.12."""
    found = importlib.util.find_spec("skyrl")
    assert found is not None
    assert found.origin is not None
    file = Path(found.origin).parent / "backends" / "skyrl_train" / "training_batch.py"
    spec = importlib.util.spec_from_file_location("training_batch", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["training_batch"] = module
    spec.loader.exec_module(module)
    return module


def test_the_callback_records_what_skyrl_trained_on(backend: Backend, tokenizer: Any, batches: Any) -> None:
    from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors
    from skyrl.train.utils.callbacks import CallbackHandler, CallbackInput, TrainingControl

    from groupscope.skyrl import Recorder

    sampled = [one.tolist() for one in values(0.25)]
    sequences, attention, response, scores, loss, logprobs, _ = convert_prompts_responses_to_batch_tensors(
        tokenizer, ASKED, RESPONSES, SCORES, MASKS, sampled
    )

    def right(rows: list[torch.Tensor]) -> torch.Tensor:
        whole = torch.zeros(response.shape)
        for row, one in enumerate(rows):
            whole[row, response.shape[1] - len(one) :] = one
        return whole

    batch = batches.TrainingInputBatch(
        {
            "sequences": sequences,
            "attention_mask": attention,
            "response_mask": response,
            "loss_mask": loss,
            "rewards": scores,
            "rollout_logprobs": logprobs,
            "action_log_probs": right(values(0.5)),
            "base_action_log_probs": None,
        }
    )
    batch.metadata = {"uids": ["a", "a", "b", "b"]}
    batch = batches.pad_training_input_batch(batch, 2)

    def compute_advantages_and_returns(data: Any) -> Any:
        data["advantages"] = torch.tensor([*ADVANTAGES, 0.0, 0.0])[:, None] * data["response_mask"]
        return data

    trainer = SimpleNamespace(
        cfg=SkyConfig(), tokenizer=tokenizer, compute_advantages_and_returns=compute_advantages_and_returns
    )
    handler, control = CallbackHandler([Recorder(name="mine")]), TrainingControl()

    def fire(event: str, step: int, **fields: Any) -> None:
        given = CallbackInput(global_step=step, epoch=0, total_steps=1, steps_per_epoch=1, **fields)
        getattr(handler, event)(trainer, given, control)

    fire("on_train_start", 0)
    fire("on_log", 0, logs={"eval/all/avg_score": 0.5})
    batch = trainer.compute_advantages_and_returns(batch)
    batch.pop("rewards")
    batch.metadata.pop("uids")
    fire("on_step_end", 1, batch=batch, metrics={"policy_loss": 0.1})
    fire("on_log", 1, logs={"policy/policy_loss": 0.1})
    fire("on_train_end", 1)
    names = {"sampling_logprob": 0.25, "old_logprob": 0.5}
    assert_recorded(backend, "SkyRL", tokenizer, names=names, metric="policy/policy_loss")
    [run] = backend.client.runs(kind="recorded").items
    assert backend.client.metrics(run.id).series["eval/all/avg_score"].step == [0]


# ---- verl


def configuration() -> Any:
    from omegaconf import OmegaConf

    known = {
        "actor_rollout_ref": {"model": {"path": "tiny"}, "rollout": {"n": 2}},
        "trainer": {"experiment_name": "mine"},
        "algorithm": {"adv_estimator": "grpo"},
    }
    return OmegaConf.create(known)


@pytest.fixture
def queue() -> Iterator[Any]:
    import ray
    import transfer_queue

    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    transfer_queue.init()
    yield transfer_queue
    transfer_queue.close()
    ray.shutdown()


def test_the_trainer_class_records_what_lies_in_verls_transfer_queue(
    backend: Backend, tokenizer: Any, queue: Any
) -> None:
    from verl.trainer.ppo.v1 import PPOTrainerSync
    from verl.utils import tensordict_utils

    import groupscope.verl

    def nested(rows: list[Any]) -> torch.Tensor:
        return torch.nested.as_nested_tensor([torch.as_tensor(row) for row in rows], layout=torch.jagged)

    order = [2, 0, 3, 1]  # verl balances its batch
    fields = {
        "prompts": ASKED,
        "responses": RESPONSES,
        "response_mask": MASKS,
        "rm_scores": SCORES,
        "old_log_probs": values(0.5),
        "ref_log_prob": values(0.75),
        "entropy": values(1.0),
        "advantages": [[one] * len(ids) for one, ids in zip(ADVANTAGES, RESPONSES, strict=True)],
    }
    given = {name: nested([rows[row] for row in order]) for name, rows in fields.items()}
    truths = [{"ground_truth": str(row // 2)} for row in order]
    keys, tags = ["b_0_0", "a_0_0", "b_1_0", "a_1_0"], [{"is_padding": False} for _ in order]
    batch = queue.kv_batch_put(
        keys=keys,
        partition_id="train",
        fields=tensordict_utils.get_tensordict(given | {"reward_model": truths}),
        tags=tags,
    )

    class Stage(PPOTrainerSync):  # type: ignore[misc] — as verl drives it, without what samples and trains
        def fit(self) -> None:
            self._validate()
            self.global_steps += 1
            self._compute_metrics(batch, {"actor/loss": 0.1}, {}, global_steps=1, epoch=0)

        def _validate(self) -> dict[str, float]:
            return {"val-core/mine/reward": 0.5}

        def _compute_metrics(self, batch: Any, metrics: Any, timing_raw: Any, global_steps: int, epoch: int) -> None:
            metrics["critic/score/mean"] = 0.5

    of = object.__new__(groupscope.verl.recorded(Stage))
    of.config, of.tokenizer, of.global_steps, of.total_training_steps = configuration(), tokenizer, 0, 1
    of.fit()
    [run] = backend.client.runs(kind="recorded").items
    rows = backend.client.groups(run.id, step=0, sort="index").items
    assert [(one.prompt, one.answer) for one in rows] == [
        (tokenizer.decode(PROMPTS[1], skip_special_tokens=True), "1"),
        (tokenizer.decode(PROMPTS[0], skip_special_tokens=True), "0"),
    ]
    assert backend.client.metrics(run.id).series["eval/val-core/mine/reward"].step == [0]
    assert backend.client.metrics(run.id).series["critic/score/mean"].step == [0]
    for place, group in ((1, rows[1]), (0, rows[0])):
        for index, one in enumerate(backend.client.group(group.id).completions):
            row = order[2 * index + place]
            trace = backend.client.tokens(one.id)
            assert (trace.token_ids, one.reward) == (RESPONSES[row], REWARDS[row])
            assert one.advantage == pytest.approx(ADVANTAGES[row])
            for name, shift in {"old_logprob": 0.5, "reference_logprob": 0.75, "entropy": 1.0}.items():
                assert getattr(trace, name) == pytest.approx(values(shift)[row].tolist(), abs=1e-6), name


def test_the_class_is_chosen_by_its_name_and_leaves_verl_its_mode() -> None:
    from verl.trainer.ppo.v1 import PPOTrainerSync, get_trainer_cls

    import groupscope.verl

    name = groupscope.verl.register("sync", name="mine")
    assert name == "groupscope_sync"
    assert issubclass(get_trainer_cls(name), PPOTrainerSync)


def test_the_legacy_trainer_class_records_a_data_proto(backend: Backend, tokenizer: Any) -> None:
    from tensordict import TensorDict
    from torch.nn.utils.rnn import pad_sequence
    from verl import DataProto

    import groupscope.verl

    def padded(rows: list[Any], side: str = "right") -> torch.Tensor:
        return pad_sequence([torch.as_tensor(row) for row in rows], batch_first=True, padding_side=side)

    there = [padded([[1] * len(ids) for ids in rows], side) for rows, side in ((ASKED, "left"), (RESPONSES, "right"))]
    tensors = {
        "prompts": padded(ASKED, "left"),
        "responses": padded(RESPONSES),
        "response_mask": padded(MASKS),
        "attention_mask": torch.cat(there, dim=1),
        "token_level_scores": padded(SCORES),
        "old_log_probs": padded(values(0.5)),
        "ref_log_prob": padded(values(0.75)),
        "advantages": padded([[one] * len(ids) for one, ids in zip(ADVANTAGES, RESPONSES, strict=True)]),
    }
    uids = np.array(["a", "a", "b", "b"], dtype=object)
    batch = DataProto(TensorDict(tensors, batch_size=4), {"uid": uids})

    class Stage:  # as RayPPOTrainer drives it, without what samples and trains
        config, global_steps, total_training_steps = configuration(), 0, 1

        def fit(self) -> None:
            self._load_checkpoint()
            self.global_steps += 1
            self._update_actor(batch)

        def _load_checkpoint(self) -> None:
            self.tokenizer = tokenizer

        def _validate(self) -> dict[str, float]:
            return {}

        def _update_actor(self, batch: Any) -> Any:
            return DataProto(meta_info={"metrics": {"actor/pg_loss": [0.1, 0.3]}})

    groupscope.verl.recorded(Stage)().fit()
    names = {"old_logprob": 0.5, "reference_logprob": 0.75}
    assert_recorded(backend, "verl", tokenizer, names=names, metric="actor/pg_loss")
