"""`groupscope.watch` on a real GRPOTrainer of TRL's: what is recorded is what TRL had, and nothing of it is lost."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import wait_until
from serving import TOKEN, Backend

import groupscope
import groupscope.trl
import worker.models
from backend.contract.groups import Group
from worker.tasks.arithmetic import problems

pytestmark = pytest.mark.slow

STEPS, PROMPTS, SIZE = 3, 2, 4


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(text.strip() == one) for text, one in zip(completions, answer, strict=True)]


def short(completions: list[str], **_: Any) -> list[float | None]:
    return [None if not text else 1 / (1 + len(text)) for text in completions]


def trainer(folder: Path, **changes: Any) -> Any:
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


Watched = Callable[..., tuple[Any, Witness]]


@pytest.fixture
def watched(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setenv("GROUPSCOPE_HOME", str(backend.home))
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)

    def train(**changes: Any) -> tuple[Any, Witness]:
        of = trainer(tmp_path / "out", **changes)
        witness = Witness(of)
        groupscope.watch(of, name="TRL", backend=backend.url)
        of.train()
        return of, witness

    return train


def groups_of(backend: Backend, run_id: int, step: int) -> list[Group]:
    found = backend.client.groups(run_id, step=step, sort="index").items
    return [backend.client.group(one.id) for one in found]


def test_every_group_of_every_step_is_recorded_as_trl_had_it(backend: Backend, watched: Watched) -> None:
    of, witness = watched()
    [run] = backend.client.runs(kind="recorded").items
    assert (run.name, run.status, run.progress.step, run.attempt) == ("TRL", "finished", STEPS, 1)
    assert run.config["trainer"] == {"name": "TRL", "version": "1.16.0"}
    logged = [line for line in of.state.log_history if "reward" in line]
    series = backend.client.metrics(run.id).series
    for name in ("reward", "reward_std", "kl", "entropy", "rewards/right/mean", "completions/mean_length", "loss"):
        assert series[name].value == pytest.approx([line[name] for line in logged])
    for step, batch in enumerate(witness.batches):
        groups = groups_of(backend, run.id, step)
        assert [len(one.completions) for one in groups] == [SIZE] * PROMPTS
        assert all(group.answer is not None and group.prompt.startswith("Calculate") for group in groups)
        rows = [one for group in groups for one in group.completions]
        assert [one.advantage for one in rows] == pytest.approx(batch["advantages"].tolist(), abs=1e-6)
        ids, logps, entropies = witness.losses[step]
        for row, one in enumerate(rows):
            trace = backend.client.tokens(one.id)
            length = int(batch["completion_mask"][row].sum())
            assert trace.token_ids == batch["completion_ids"][row, :length].tolist()
            whole = torch.cat([batch["prompt_ids"][row], batch["completion_ids"][row]])
            (place,) = [at for at in range(len(ids)) if torch.equal(ids[at], whole)][:1]
            assert trace.logprob == pytest.approx(logps[place, :length].tolist(), abs=1e-6)
            assert trace.entropy == pytest.approx(entropies[place, :length].tolist(), abs=1e-6)
            assert trace.reference_logprob == pytest.approx(
                batch["ref_per_token_logps"][row, :length].tolist(), abs=1e-6
            )
            assert "".join(trace.texts).startswith(one.text[:3])
            known = [score.raw * score.weight for score in one.rewards if score.raw is not None]
            assert one.reward == pytest.approx(math.fsum(known))


def test_the_training_is_the_same_with_and_without(watched: Watched, tmp_path: Path) -> None:
    of, _ = watched()
    alone = trainer(tmp_path / "alone")
    alone.train()
    for one, other in zip(of.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(one, other)
    wait_until(lambda: not list((tmp_path / "home" / "recordings").glob("*")), "nothing waits")


def test_each_generation_of_a_step_is_recorded_and_metrics_stand_where_trl_logs_them(
    backend: Backend, watched: Watched
) -> None:
    _, witness = watched(gradient_accumulation_steps=2, steps_per_generation=1, logging_steps=2, beta=0.0, max_steps=4)
    [run] = backend.client.runs(kind="recorded").items
    assert (run.status, run.progress.step) == ("finished", 4)
    assert backend.client.metrics(run.id).series["reward"].step == [1, 3]
    assert len(witness.batches) == 8
    for step in range(4):
        rows = [one for group in groups_of(backend, run.id, step) for one in group.completions]
        theirs = [value for batch in witness.batches[2 * step : 2 * step + 2] for value in batch["advantages"].tolist()]
        assert [one.advantage for one in rows] == pytest.approx(theirs, abs=1e-6)
        for one in rows:
            trace = backend.client.tokens(one.id)
            assert trace.logprob is not None
            assert None not in trace.logprob
            assert trace.reference_logprob is None


def test_what_goes_wrong_with_the_record_ends_no_training(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a mistake of the record")

    monkeypatch.setattr("groupscope.trl.Watcher._groups", broken)
    of, _ = watched()
    assert of.state.global_step == STEPS
    assert "a part of this run is not recorded; the training goes on" in caplog.text


def test_what_a_script_does_before_and_after_the_training_is_as_without(backend: Backend, watched: Watched) -> None:
    of, _ = watched()
    of.evaluate(of.train_dataset.select(range(2)))
    of.train()  # again, from the beginning: another run
    runs = backend.client.runs(kind="recorded").items
    assert [(run.status, run.progress.step) for run in runs] == [("finished", STEPS)] * 2


def test_a_record_that_cannot_begin_ends_no_training(
    backend: Backend, watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("groupscope.outbox.os.fsync", full)
    of, _ = watched()
    assert of.state.global_step == STEPS
    assert not backend.client.runs(kind="recorded").items
    assert "No space left" in caplog.text


def test_a_training_that_breaks_off_and_begins_again_is_two_runs(
    backend: Backend, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, _ = watched()
    with monkeypatch.context() as broken:
        broken.setattr(of, "training_step", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            of.train()
    of.train()
    ended = [(run.status, run.progress.step) for run in backend.client.runs(kind="recorded").items]
    assert ended == [("finished", STEPS), ("failed", 0), ("finished", STEPS)]


def test_log_probs_that_are_far_apart_have_no_ratio_and_lose_no_group(
    backend: Backend, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = groupscope.trl.Rows.put

    def far(self: Any, name: str, rows: torch.Tensor, values: torch.Tensor) -> None:
        put(self, name, rows, values - 5000.0 if name == "logprob" else values)

    monkeypatch.setattr(groupscope.trl.Rows, "put", far)
    watched()
    [run] = backend.client.runs(kind="recorded").items
    [first, *_] = groups_of(backend, run.id, 0)
    trace = backend.client.tokens(first.completions[0].id)
    assert trace.kl is not None
    assert set(trace.kl) == {None}
    assert first.completions[0].kl_mean is None
