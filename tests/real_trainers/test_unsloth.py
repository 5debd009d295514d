"""`groupscope.watch` on the trainer that Unsloth's release writes from TRL's, which trains here on a CPU, as Unsloth's own tests import it.

Not there are its models, whose kernels need a GPU: Unsloth's class trains a model of transformers'.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from serving import TOKEN, Backend

import groupscope
import worker.models

pytestmark = [pytest.mark.trainers, pytest.mark.usefixtures("one_thread")]

STEPS, SIZE = 3, 4
Row = tuple[list[int], float, dict[str, list[float]]]  # its tokens, its advantage, and values of these
ASKED = ["1+1", "(12+34)x5-6", "3x4", "7-(2x3)", "90-81+7", "2+2x2"]  # prompts of different lengths


@pytest.fixture(scope="module")
def unsloth(tmp_path_factory: pytest.TempPathFactory) -> Any:
    os.environ |= {
        "UNSLOTH_ALLOW_CPU": "1",
        "UNSLOTH_COMPILE_LOCATION": str(tmp_path_factory.mktemp("unsloth") / "written"),
        "UNSLOTH_COMPILE_DISABLE": "1",
        "UNSLOTH_DISABLE_STATISTICS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    import unsloth
    from unsloth.models import rl

    rl._patch_trl_rl_trainers("grpo_trainer")  # where it may run on a CPU, `import unsloth` leaves this out
    return unsloth


def length(completions: list[str], **_: Any) -> list[float]:
    return [len(text) / 10 for text in completions]


def even(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
    return [None if len(ids) == 3 else float(sum(ids) % 2) for ids in completion_ids]


def trainer(folder: Path, **changes: Any) -> Any:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    from unsloth.models._utils import _mark_requested_float32
    from unsloth.models.vision import FastBaseModel

    def load() -> Any:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        model.for_training = partial(FastBaseModel.for_training, model)  # these three as Unsloth's loader does
        model.for_inference = partial(FastBaseModel.for_inference, model)
        return _mark_requested_float32(model, True)

    source = str(Path(worker.models.__file__).parent / "tiny_arithmetic")
    settings = {
        "max_steps": STEPS,
        "num_generations": SIZE,
        "per_device_train_batch_size": 2 * SIZE,
        "gradient_accumulation_steps": 1,
        "max_completion_length": 12,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "optim": "adamw_torch",  # that of Unsloth's configuration needs bitsandbytes
        "learning_rate": 1e-3,
        "seed": 3,
        "reward_weights": [1.0, 0.5],
        **changes,
    }
    of = GRPOTrainer(
        model=load(),
        processing_class=AutoTokenizer.from_pretrained(source, padding_side="left"),
        reward_funcs=[length, even],
        args=GRPOConfig(output_dir=str(folder), **settings),
        train_dataset=Dataset.from_list([{"prompt": f"Calculate {one}", "answer": one} for one in ASKED]),
    )
    assert type(of).__name__ == "UnslothGRPOTrainer"
    return of


NAMES = ("logprob", "old_logprob", "reference_logprob")


class Witness:
    """What Unsloth's class had: batches as they came out of the generation, and what it computed each loss from."""

    def __init__(self, of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[dict[str, torch.Tensor]] = []
        self.losses: list[list[Row]] = []
        generate, loss = of._generate_and_score_completions, type(of).compute_loss.__globals__["UnslothEfficientGRPO"]
        forward = loss.forward

        def generating(inputs: Any) -> Any:
            output = generate(inputs)
            self.batches.append({name: one for name, one in output.items() if isinstance(one, torch.Tensor)})
            return output

        def computing(ctx: Any, *args: Any) -> Any:
            """Its `ids` and `mask` say which token each value is of."""
            *values, _, _, ids, mask, advantages = args[:8]
            there = [mask[row].bool() for row in range(len(ids))]
            self.losses.append(
                [
                    (
                        ids[row, there[row]].tolist(),
                        advantages[row].item(),
                        {
                            name: one[row, there[row]].tolist()
                            for name, one in zip(NAMES, values, strict=True)
                            if one is not None
                        },
                    )
                    for row in range(len(ids))
                ]
            )
            return forward(ctx, *args)

        of._generate_and_score_completions = generating
        monkeypatch.setattr(loss, "forward", staticmethod(computing))


@pytest.mark.parametrize(
    ("changes", "names", "parts", "each"),
    [
        ({"beta": 0.04, "gradient_accumulation_steps": 2}, {"logprob", "reference_logprob"}, 2, 1),
        ({"num_iterations": 2, "max_steps": 6}, {"logprob", "old_logprob"}, 1, 2),
    ],
)
def test_what_is_recorded_is_what_unsloths_trainer_had(
    unsloth: Any,
    backend: Backend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    names: set[str],
    parts: int,
    each: int,
) -> None:
    """How many parts a step has, and how often each batch is trained on."""
    monkeypatch.setenv("GROUPSCOPE_HOME", str(backend.home))
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    of = trainer(tmp_path / "out", **changes)
    witness = Witness(of, monkeypatch)
    groupscope.watch(of, backend=backend.url)
    of.train()

    [run] = backend.client.runs(kind="recorded").items
    steps = of.state.global_step
    assert (run.name, run.status, run.progress.step) == ("Unsloth on tiny_arithmetic", "finished", steps)
    assert run.config["trainer"] == {"name": "Unsloth", "version": unsloth.__version__}
    logged = [line for line in of.state.log_history if "loss" in line]
    series = backend.client.metrics(run.id).series
    for name in set(logged[0]) - {"step"}:
        known = {line["step"] - 1: line[name] for line in logged if name in line}
        assert (name, series[name].step) == (name, list(known))
        assert (name, series[name].value) == (name, pytest.approx(list(known.values())))
    assert len(witness.batches) == steps // each
    assert len(witness.losses) == steps * parts
    lengths = set()
    for number, batch in enumerate(witness.batches):
        step = number * each
        found = backend.client.groups(run.id, step=step, sort="index").items
        rows = [one for group in found for one in backend.client.group(group.id).completions]
        assert [group.answer for group in found] == [one.prompt.removeprefix("Calculate ") for one in found]
        assert [one.advantage for one in rows] == pytest.approx(batch["advantages"].tolist(), abs=1e-6)
        traces = [backend.client.tokens(one.id) for one in rows]
        for row, trace in enumerate(traces):
            assert trace.token_ids == batch["completion_ids"][row, : batch["completion_mask"][row].sum()].tolist()
            lengths.add(int(batch["prompt_mask"][row].sum()))
            assert trace.ratio == pytest.approx([1.0] * len(trace.token_ids), abs=1e-5)
        recorded = [
            (trace.token_ids, one.advantage, {name: getattr(trace, name) for name in names})
            for one, trace in zip(rows, traces, strict=True)
        ]
        theirs = [row for loss in witness.losses[step * parts : (step + 1) * parts] for row in loss]
        for (ids, advantage, values), (their_ids, their_advantage, known) in zip(
            sorted(recorded, key=order), sorted(theirs, key=order), strict=True
        ):
            assert ids == their_ids
            assert advantage == pytest.approx(their_advantage, abs=1e-6)
            assert set(known) == names
            for name in names:
                assert values[name] == pytest.approx(known[name], abs=1e-6), name
    assert len(lengths) > 2


def test_unsloths_training_is_the_same_with_and_without(
    unsloth: Any, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)
    of = trainer(tmp_path / "watched", beta=0.04)
    groupscope.watch(of, backend=backend.url, home=backend.home)
    of.train()
    alone = trainer(tmp_path / "alone", beta=0.04)
    alone.train()
    for one, other in zip(of.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert [run.status for run in backend.client.runs(kind="recorded").items] == ["finished"]


def order(row: Row) -> Any:
    return row[0], round(row[1], 4), row[2]["logprob"]
