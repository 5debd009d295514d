"""`groupscope.watch` on a real GRPOTrainer of TRL's: what is recorded is what TRL had, and nothing of it is lost."""

import math
import os
import queue
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import processes
import pytest
import torch
from processes import wait_until
from serving import TOKEN, Backend
from transformers import TrainerCallback

import groupscope
import groupscope.aside
import groupscope.trl
import worker.models
from backend.contract.client import Client
from backend.contract.groups import CompletionRecord, Group
from backend.contract.home import CannotStart
from worker.tasks.arithmetic import problems

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

STEPS, PROMPTS, SIZE = 3, 2, 4


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(text.strip() == one) for text, one in zip(completions, answer, strict=True)]


def short(completions: list[str], **_: Any) -> list[float | None]:
    return [None if not text else 1 / (1 + len(text)) for text in completions]


def trainer(folder: Path, rollout: Any = None, **changes: Any) -> Any:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    source = str(Path(worker.models.__file__).parent / "tiny_arithmetic")
    asked = problems(3, 1, 9, ("+", "-", "x"), precedence=False)[::31][:40]
    rows = [{"prompt": f"Calculate {one.expression}", "answer": str(one.answer)} for one in asked]
    settings = {
        "max_steps": STEPS,
        "num_generations": SIZE,
        "per_device_train_batch_size": PROMPTS * SIZE,
        "max_completion_length": 12,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "beta": 0.04,
        "seed": 3,
        "reward_weights": [1.0, 0.5],
        **changes,
    }
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(source, padding_side="left"),
        reward_funcs=[right, short],
        args=GRPOConfig(output_dir=str(folder), **settings),
        train_dataset=Dataset.from_list(rows),
        rollout_func=rollout,
    )


class Witness:
    """What TRL itself had: each batch as it came out of the generation, with its log-probs in the loss."""

    def __init__(self, of: Any) -> None:
        self.batches: list[dict[str, Any]] = []
        self.losses: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        generate, measure = of._generate_and_score_completions, of._get_per_token_logps_and_entropies

        def generating(inputs: Any) -> Any:
            output = generate(inputs)
            self.batches.append({name: value for name, value in output.items() if isinstance(value, torch.Tensor)})
            return output

        def measuring(model: Any, ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            found = measure(model, ids, *args, **kwargs)
            if found[0].requires_grad:
                self.losses.append((ids, found[0].detach(), found[1].detach()))
            return found

        of._generate_and_score_completions = generating
        of._get_per_token_logps_and_entropies = measuring


Watched = Callable[..., tuple[Any, Witness, Any]]  # the trainer, what TRL had, and the newest recorded run


@pytest.fixture
def watched(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setenv("GROUPSCOPE_HOME", str(backend.home))
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)

    def train(**changes: Any) -> tuple[Any, Witness, Any]:
        of = trainer(tmp_path / "out", **changes)
        witness = Witness(of)
        groupscope.watch(of, name="TRL", backend=backend.url)
        of.train()
        return (of, witness, next(iter(backend.client.runs(kind="recorded").items), None))

    return train


def groups_of(client: Client, run_id: int, step: int) -> list[Group]:
    return [client.group(one.id) for one in client.groups(run_id, step=step, sort="index").items]


def rows_of(client: Client, run_id: int, step: int) -> list[CompletionRecord]:
    return [one for group in groups_of(client, run_id, step) for one in group.completions]


def each_step(client: Client, run_id: int, steps: int) -> list[int]:
    """How many groups each step has."""
    return [len(groups_of(client, run_id, step)) for step in range(steps)]


def assert_recorded_as_trl_had_it(client: Client, of: Any, witness: Witness, *, steps: int) -> None:
    [run] = client.runs(kind="recorded").items
    assert (run.name, run.status, run.progress.step, run.attempt) == ("TRL", "finished", steps, 1)
    assert run.config["trainer"] == {"name": "TRL", "version": "1.16.0"}
    logged = [line for line in of.state.log_history if "reward" in line]
    series = client.metrics(run.id).series
    for name in set(logged[0]) - {"step"}:
        assert (name, series[name].step) == (name, list(range(steps)))
        assert (name, series[name].value) == (name, pytest.approx([line[name] for line in logged]))
    assert len(witness.batches) == steps
    for step, batch in enumerate(witness.batches):
        groups = groups_of(client, run.id, step)
        assert [len(one.completions) for one in groups] == [SIZE] * PROMPTS
        assert all(group.answer is not None and group.prompt.startswith("Calculate") for group in groups)
        rows = [one for group in groups for one in group.completions]
        assert [one.advantage for one in rows] == pytest.approx(batch["advantages"].tolist(), abs=1e-6)
        ids, logps, entropies = witness.losses[step]
        for row, one in enumerate(rows):
            trace = client.tokens(one.id)
            length = int(batch["completion_mask"][row].sum())
            assert trace.token_ids == batch["completion_ids"][row, :length].tolist()
            whole = torch.cat([batch["prompt_ids"][row], batch["completion_ids"][row]])
            (place,) = [at for at in range(len(ids)) if torch.equal(ids[at], whole)][:1]
            reference = batch["ref_per_token_logps"][row]
            apart = reference - logps[place]
            theirs = {
                "logprob": logps[place],
                "old_logprob": logps[place],
                "reference_logprob": reference,
                "entropy": entropies[place],
                "kl": torch.exp(apart) - apart - 1,
            }
            for name, values in theirs.items():
                assert getattr(trace, name) == pytest.approx(values[:length].tolist(), abs=1e-6), name
            assert trace.ratio == [1.0] * length  # an update a batch
            assert (trace.sampling_logprob, trace.trained) == (None, None)  # TRL has none, and is not said to have
            assert "".join(trace.texts).startswith(one.text[:3])
            known = [score.raw * score.weight for score in one.rewards if score.raw is not None]
            assert one.reward == pytest.approx(math.fsum(known))


def test_12_steps_are_recorded_as_trl_had_them_while_the_backend_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", processes.TOKEN)
    steps = 12

    class Fault(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 4:
                first.kill()  # with a step on its way to it
                first.wait()
            if state.global_step == 8:
                site.backend()

    with processes.Site(tmp_path / "site") as site:
        first = site.backend()
        of = trainer(tmp_path / "out", max_steps=steps)
        witness = Witness(of)
        of.add_callback(Fault())
        groupscope.watch(of, name="TRL", backend=site.url, home=tmp_path)
        of.train()
        wait_until(lambda: site.client.runs(kind="recorded").items[0].status == "finished", "all has come")
        assert not list((tmp_path / "recordings").glob("*"))
        assert_recorded_as_trl_had_it(site.client, of, witness, steps=steps)


def test_the_training_is_the_same_with_and_without(backend: Backend, watched: Watched, tmp_path: Path) -> None:
    of, _, _ = watched(reward_weights=[1.0, 0.2])
    alone = trainer(tmp_path / "alone", reward_weights=[1.0, 0.2])
    alone.train()
    for one, other in zip(of.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(one, other)
    wait_until(lambda: not list((tmp_path / "home" / "recordings").glob("*")), "nothing waits")
    [run] = backend.client.runs(kind="recorded").items
    assert run.trained_seconds is not None
    assert run.trained_seconds >= sum(line["step_time"] for line in of.state.log_history if "step_time" in line)
    assert [one["weight"] for one in run.config["rewards"]["functions"]] == [1.0, 0.2], "as it was given"


@pytest.mark.thorough
def test_each_generation_of_a_step_is_recorded_and_metrics_stand_where_trl_logs_them(
    backend: Backend, watched: Watched
) -> None:
    settings = {"gradient_accumulation_steps": 2, "steps_per_generation": 1, "logging_steps": 2, "beta": 0.0}
    _, witness, run = watched(**settings, max_steps=4)
    assert (run.status, run.progress.step) == ("finished", 4)
    assert backend.client.metrics(run.id).series["reward"].step == [1, 3]
    assert len(witness.batches) == 8
    for step in range(4):
        rows = rows_of(backend.client, run.id, step)
        theirs = [value for batch in witness.batches[2 * step : 2 * step + 2] for value in batch["advantages"].tolist()]
        assert [one.advantage for one in rows] == pytest.approx(theirs, abs=1e-6)
        for one in rows:
            trace = backend.client.tokens(one.id)
            assert trace.logprob is not None
            assert None not in trace.logprob
            assert trace.reference_logprob is None


# one is read here, the other in the process beside the training
@pytest.mark.parametrize("made", ["Rows.of", "_batch"])
def test_what_goes_wrong_with_the_record_ends_no_training(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, made: str
) -> None:
    def broken(*_: object) -> Any:
        if made == "Rows.of":
            raise ValueError("a mistake of the record")
        return "no batch"

    monkeypatch.setattr(f"groupscope.trl.{made}", broken)
    assert watched()[0].state.global_step == STEPS
    assert "a part of this run is not recorded; the training goes on" in caplog.text


def test_a_training_goes_on_without_the_process_that_records_it(
    backend: Backend, watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step = groupscope.trl.Watcher.on_step_end

    def killing(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        step(self, args, state, control, **more)
        if state.global_step == 2:
            self._aside._process.kill()

    monkeypatch.setattr(groupscope.trl.Watcher, "on_step_end", killing)
    assert watched()[0].state.global_step == STEPS
    assert "the process that records has ended (status -9)" in caplog.text


@pytest.mark.thorough
def test_what_a_killed_training_handed_over_is_recorded(backend: Backend, tmp_path: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
import groupscope
from processes import wait_until
from test_watch_trl import trainer
from transformers import TrainerCallback

class Killed(TrainerCallback):
    def on_log(self, args, state, control, **_):
        if state.global_step == 2:
            [aside] = [one._aside for one in of.callback_handler.callbacks if hasattr(one, "_aside")]
            wait_until(lambda: aside._bytes == 0, "all is handed over")
            os.kill(os.getpid(), signal.SIGKILL)

of = trainer(Path({str(tmp_path)!r}))
groupscope.watch(of, name="killed", backend={backend.url!r}, home={str(backend.home)!r})
of.add_callback(Killed())
of.train()
"""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), *sys.path]))
    ended = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"GROUPSCOPE_TOKEN": TOKEN, "PYTHONPATH": path}, check=False
    )
    assert ended.returncode == -9
    runs = backend.client.runs
    wait_until(lambda: [run.progress.step for run in runs(kind="recorded").items] == [2], "two steps have come")
    assert each_step(backend.client, runs(kind="recorded").items[0].id, 2) == [PROMPTS] * 2


@pytest.mark.thorough
def test_a_record_that_cannot_begin_ends_no_training(
    backend: Backend, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    (backend.home / "recordings").write_text("no folder")
    of, _, run = watched()
    assert of.state.global_step == STEPS
    assert run is None
    assert "File exists" in caplog.text


@pytest.mark.thorough
def test_each_training_of_a_trainer_is_a_run_however_it_ends_and_has_the_name_that_was_given_last(
    backend: Backend, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, _, _ = watched()
    of.evaluate(of.train_dataset.select(range(2)))  # as a script does without us

    def broken(error: BaseException) -> None:
        with monkeypatch.context() as changed:
            changed.setattr(of, "training_step", Mock(side_effect=error))
            with pytest.raises(type(error)):
                of.train()

    broken(ZeroDivisionError("no such answer"))
    broken(KeyboardInterrupt())
    groupscope.watch(of, name="again", backend=backend.url)
    of.train()  # from the beginning
    runs = backend.client.runs(kind="recorded").items
    assert [(run.name, run.status, run.progress.step, run.error and run.error.message) for run in runs] == [
        ("again", "finished", STEPS, None),
        ("TRL", "stopped", 0, None),
        ("TRL", "failed", 0, "ZeroDivisionError: no such answer"),
        ("TRL", "finished", STEPS, None),
    ]


@pytest.mark.thorough
def test_a_step_that_finds_no_room_to_wait_is_missing_and_the_log_says_so(
    backend: Backend, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = groupscope.trl.Watcher.on_step_end

    def no_room(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        with monkeypatch.context() as room:
            if state.global_step == 2:
                room.setattr(groupscope.aside, "MOST_BYTES", 0)
                room.setattr(groupscope.aside, "SMALL_BYTES", 1000)
            step(self, args, state, control, **more)

    monkeypatch.setattr(groupscope.trl.Watcher, "on_step_end", no_room)
    _, _, run = watched()
    assert (run.status, run.progress.step) == ("finished", STEPS)
    assert each_step(backend.client, run.id, STEPS) == [PROMPTS, 0, PROMPTS]
    assert backend.client.metrics(run.id).series["reward"].step == [0, 1, 2]
    [line] = backend.client.logs(run.id).items
    assert line.message.startswith("steps that could not be recorded whole: 1, the first of them step 1")


@pytest.mark.thorough
def test_log_probs_that_are_far_apart_have_no_ratio_and_lose_no_group(
    backend: Backend, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = groupscope.trl.Rows.put

    def far(self: Any, name: str, rows: torch.Tensor, values: torch.Tensor) -> None:
        put(self, name, rows, values - 5000.0 if name == "logprob" else values)

    monkeypatch.setattr(groupscope.trl.Rows, "put", far)
    first = rows_of(backend.client, watched()[2].id, 0)[0]
    assert set(backend.client.tokens(first.id).kl or ()) == {None}
    assert first.kl_mean is None


@pytest.mark.thorough
def test_a_training_that_goes_on_from_a_checkpoint_is_the_next_attempt(
    backend: Backend, watched: Watched, tmp_path: Path
) -> None:
    _, _, run = watched(save_strategy="steps", save_steps=2)
    of = trainer(tmp_path / "out", max_steps=5)
    groupscope.watch(of, backend=backend.url, run_id=run.id)
    of.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    [run] = backend.client.runs(kind="recorded").items
    assert (run.status, run.attempt, run.progress.step) == ("finished", 2, 5)
    assert each_step(backend.client, run.id, 5) == [PROMPTS] * 5
    assert backend.client.metrics(run.id).series["reward"].step == [0, 1, 2, 3, 4]


@pytest.mark.thorough
def test_rows_trained_on_again_are_recorded_once_with_their_first_pass(backend: Backend, watched: Watched) -> None:
    _, witness, run = watched(num_iterations=2, max_steps=4)
    assert (run.status, run.progress.step) == ("finished", 4)
    assert each_step(backend.client, run.id, 4) == [PROMPTS, 0, PROMPTS, 0]
    for step, batch in zip((0, 2), witness.batches, strict=True):
        for row, one in enumerate(rows_of(backend.client, run.id, step)):
            trace = backend.client.tokens(one.id)
            old = batch["old_per_token_logps"][row, : len(trace.token_ids)].tolist()
            assert trace.old_logprob == pytest.approx(old, abs=1e-6)
            assert trace.logprob == pytest.approx(old, abs=1e-4)  # the first pass has the weights that sampled


@pytest.mark.thorough
def test_what_tools_said_is_seen_not_to_be_trained_on(backend: Backend, watched: Watched) -> None:
    def rollout(prompts: list[str], of: Any) -> dict[str, Any]:
        ids = [of.processing_class(prompt)["input_ids"] for prompt in prompts]
        said = [[10 + row, 20, 30, 40] for row in range(len(prompts))]
        values = [[-0.5, -1.0, 0.0, -2.0]] * len(prompts)
        mask = [[1, 1, 0, 1]] * len(prompts)
        return {"prompt_ids": ids, "completion_ids": said, "logprobs": values, "env_mask": mask}

    for one in rows_of(backend.client, watched(rollout=rollout)[2].id, 0):
        trace = backend.client.tokens(one.id)
        assert (trace.trained, trace.sampling_logprob) == ([True, True, False, True], [-0.5, -1.0, 0.0, -2.0])
        assert (trace.token_ids[1:], one.finish_reason) == ([20, 30, 40], "length")


@pytest.mark.thorough
def test_a_completion_left_out_for_its_length_is_seen_not_to_be_trained_on(backend: Backend, watched: Watched) -> None:
    _, witness, run = watched(mask_truncated_completions=True, max_completion_length=9)
    trained = []
    for step, batch in enumerate(witness.batches):
        for row, one in enumerate(rows_of(backend.client, run.id, step)):
            counted = bool(batch["completion_mask"][row].any())
            assert one.finish_reason == ("stop" if counted else "length")
            assert backend.client.tokens(one.id).trained == (None if counted else [False] * one.token_count)
            trained.append(counted)
    assert set(trained) == {True, False}


def test_messages_of_a_completion_are_its_turns() -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    turns = groupscope.trl.turns_in(
        [
            {"role": "assistant", "content": "so", "tool_calls": [call]},
            {"role": "tool", "name": "add", "content": "{'error': \"b is missing\"}"},
            {"role": "assistant", "content": "I cannot"},
        ]
    )
    assert [(turn.role, turn.text, turn.tool, turn.failed) for turn in turns] == [
        ("assistant", "so", None, False),
        ("assistant", '{"a": 1}', "add", False),
        ("tool", "{'error': \"b is missing\"}", "add", True),
        ("assistant", "I cannot", None, False),
    ]
    assert groupscope.trl.turns_in([{"role": "assistant", "content": "42"}]) == groupscope.trl.turns_in("42") == []


def rloo(folder: Path) -> Any:
    from datasets import Dataset
    from trl import RLOOConfig, RLOOTrainer

    of = trainer(folder)
    names = (
        "max_steps",
        "num_generations",
        "per_device_train_batch_size",
        "max_completion_length",
        "logging_steps",
        "seed",
    )
    settings = {name: getattr(of.args, name) for name in names}
    return RLOOTrainer(
        model=of.model,
        processing_class=of.processing_class,
        reward_funcs=[right, short],
        args=RLOOConfig(str(folder), beta=0.0, save_strategy="no", report_to=[], use_cpu=True, bf16=False, **settings),
        train_dataset=Dataset.from_list(list(of.train_dataset)),
    )


def test_rloo_is_recorded_as_trl_had_it(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    of = rloo(tmp_path)
    witness = Witness(of)
    groupscope.watch(of, backend=backend.url, home=backend.home)
    of.train()
    [run] = backend.client.runs(kind="recorded").items
    assert (run.status, run.progress.step) == ("finished", STEPS)
    assert run.config["algorithm"]["advantage"] == {"kind": "leave_one_out"}
    assert run.config["algorithm"]["surrogate"] is None
    for step, batch in enumerate(witness.batches):
        rows = rows_of(backend.client, run.id, step)
        assert [one.advantage for one in rows] == pytest.approx(batch["advantages"].tolist(), abs=1e-6)
        for one, ids, mask in zip(rows, batch["completion_ids"], batch["completion_mask"], strict=True):
            trace = backend.client.tokens(one.id)
            assert trace.token_ids == ids[: int(mask.sum())].tolist()
            assert (trace.ratio, trace.old_logprob) == (None, None)
            assert trace.logprob is not None


def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, *, scaling: float, **tree: Any) -> Any:
    """What the kernel of TRL's packed rows computes, which this machine has not: each segment sees its own path, causally."""
    q, k, v = (one[0].transpose(0, 1) for one in (query, key, value))
    k, v = (one.repeat_interleave(q.shape[1] // one.shape[1], 1) for one in (k, v))
    starts, ends = tree["tree_cu_seqlens_q"].tolist(), tree["tree_cu_seqlens_k"].tolist()
    out = torch.zeros_like(q)
    for at in range(len(starts) - 1):
        there = tree["tree_kv_index"][ends[at] : ends[at + 1]]
        own = q[starts[at] : starts[at + 1]]
        scores = torch.einsum("qhd,khd->hqk", own, k[there]) * scaling
        seen = torch.ones(len(own), len(there), dtype=torch.bool).tril(len(there) - len(own))
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        out[starts[at] : starts[at + 1]] = torch.einsum("hqk,khd->qhd", weights, v[there])
    return out.unsqueeze(0), None


class RolloutWorker:
    """Has scored all samples before the training begins, as TRL's own does in another process."""

    def __init__(self, samples: list[Any]) -> None:
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        for one in samples:
            self.rollout_buffer.put(one)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def test_asynchronous_grpo_is_recorded_with_the_steps_that_train_on_its_samples(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np
    from datasets import Dataset
    from transformers import AttentionInterface
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    place = "trl.experimental.async_grpo.async_grpo_trainer.get_peak_flops_per_device"
    monkeypatch.setattr(place, lambda *_: None)  # it asks CUDA
    samples = [
        RolloutSample(
            prompt=[{"role": "user", "content": f"What is {group}?"}],
            completion=[{"role": "assistant", "content": f"{member}"}],
            input_ids=np.array([3, 4 + group, 5 + member, 1]),
            completion_mask=np.array([0, 0, 1, 1]),
            old_log_probs=np.array([0, 0, -0.5 - member, -0.25], np.float32),
            advantage=member - 1.5,
            model_version=0 if (group, member) != (1, 2) else -9,  # too old: TRL drops it
            group_id=group,
            metrics={
                "reward": float(member),
                "reward_std": 1.0,
                "rewards/right": float(member) if member else math.nan,
            },
        )
        for group in range(6)  # one micro-batch is packed ahead
        for member in range(SIZE)
    ]
    settings = {
        "per_device_train_batch_size": SIZE,
        "max_steps": STEPS,
        "token_budget": 0,
        "num_generations": SIZE,
        "max_staleness": 5,
    }
    of = AsyncGRPOTrainer(
        str(Path(worker.models.__file__).parent / "tiny_arithmetic"),
        reward_funcs=[],
        args=AsyncGRPOConfig(
            str(tmp_path), use_cpu=True, bf16=False, report_to=[], save_strategy="no", logging_steps=1, **settings
        ),
        train_dataset=Dataset.from_dict({"prompt": ["p"] * 8}),
        rollout_worker=RolloutWorker(samples),
        weight_transfer=RolloutWorker([]),
    )
    AttentionInterface.register("tree_fa3", attention)
    groupscope.watch(of, name="async", backend=backend.url, home=backend.home)
    of.train()
    [run] = backend.client.runs(kind="recorded").items
    assert (run.name, run.status, run.progress.step) == ("async", "finished", STEPS)
    assert run.config["algorithm"]["advantage"]["std"] == "population"
    expected = [one for one in samples if one.model_version == 0][: STEPS * SIZE]
    found = [
        (group, one)
        for step in range(STEPS)
        for group in groups_of(backend.client, run.id, step)
        for one in group.completions
    ]
    assert [len(rows_of(backend.client, run.id, step)) for step in range(STEPS)] == [SIZE] * STEPS
    for group, one in found:
        [sample] = [
            each
            for each in expected
            if (f"What is {each.group_id}?", each.completion[0]["content"]) == (group.prompt, one.text)
        ]
        assert (one.reward, one.advantage) == (sample.metrics["reward"], sample.advantage)
        assert {score.name: score.raw for score in one.rewards} == {"right": one.reward or None}
        trace = backend.client.tokens(one.id)
        assert trace.token_ids == sample.input_ids[2:].tolist()
        assert trace.sampling_logprob == sample.old_log_probs[2:].tolist()
        assert trace.texts[0]
    series = backend.client.metrics(run.id).series
    assert series["loss"].step == list(range(STEPS))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "x" * 201}, r"groupscope.watch cannot record this: name: Value should have at most 200"),
        ({"names": "x"}, r"groupscope.watch has no option names: it has name, tags, notes, run_id, backend, home"),
        ({"tags": "mine"}, r"groupscope.watch cannot record this: tags: "),
    ],
)
def test_what_watch_cannot_do_is_said_before_the_training(
    options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    with pytest.raises(CannotStart, match=said):
        groupscope.watch(trainer(tmp_path), **{"home": tmp_path, **options})


def test_a_trainer_that_samples_no_groups_is_refused(tmp_path: Path) -> None:
    from trl import SFTConfig, SFTTrainer

    of = trainer(tmp_path)
    rows = of.train_dataset.map(lambda row: {"completion": row["answer"]})
    sft = SFTTrainer(
        of.model,
        SFTConfig(str(tmp_path), use_cpu=True, bf16=False, report_to=[]),
        train_dataset=rows,
        processing_class=of.processing_class,
    )
    for one in (sft, of.model, None):
        with pytest.raises(
            CannotStart, match=f"cannot follow {type(one).__name__}: it follows TRL's GRPOTrainer, RLOOTrainer"
        ):
            groupscope.watch(one)
