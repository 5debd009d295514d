"""The loop, end to end, without a backend: what it tells, and that a resumed run is the run that was never interrupted."""

import errno
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from threading import Condition
from unittest.mock import Mock

import pytest
import torch
from full_disk import disk_of
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from witness import Killed, Witness, configured, train
from worker_models import weights_hash

from backend.contract.grpo import GrpoConfig
from backend.contract.protocol import CheckpointReport, Report
from backend.contract.records import Progress
from worker.checkpoint import damage
from worker.failure import failure
from worker.policy.loading import load_policy
from worker.policy.policy import Policy
from worker.policy.sources import Pretrained, resolve

# Whole runs: right, but too slow for `make check`.
pytestmark = pytest.mark.slow
ADAPTERS = {"model": {"lora": {"rank": 4, "alpha": 8}}}
ONE_STEP = {"steps": 1, "eval_every": 0}


@dataclass
class Trained:
    """A run of two steps, with an evaluation before, between and after them."""

    witness: Witness
    folder: Path
    ending: str
    policy: Policy


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Nobody changes it."""
    config = configured(budget={"steps": 2, "checkpoint_every": 2, "eval_every": 1, "eval_items": 5, "eval_samples": 2})
    witness, folder = Witness(), tmp_path_factory.mktemp("trained")
    return Trained(witness, folder, *train(config, folder, witness))


class Screen(list[Progress]):
    """What is shown, for somebody who waits for something to begin."""

    def __init__(self) -> None:
        super().__init__()
        self._more = Condition()

    def append(self, progress: Progress) -> None:
        with self._more:
            super().append(progress)
            self._more.notify_all()

    def wait_for_rollout(self, step: int) -> None:
        with self._more:
            begun = self._more.wait_for(lambda: any((one.step, one.phase) == (step, "rollout") for one in self), 120)
        assert begun, "training waited until a report was sent"


def history(report: Report) -> object:
    """Everything of a step that must not depend on an interruption: texts, rewards, advantages, log-probs, loss."""
    timed = ("time/", "step_time", "tokens_per_second", "peak_memory")
    metrics = {name: value for name, value in report.metrics.items() if not name.startswith(timed)}
    return json.loads(report.model_dump_json(include={"step", "groups"})), metrics


ROWS = [
    {"prompt": f"Calculate {a} + {b}{rest}", "answer": str(a + b * factor), "from": name}
    for name, rest, factor in (("sums", "", 1), ("products", " x 3", 3))
    for a in range(1, 6)
    for b in range(1, 6)
]
SOURCES = {"kind": "dataset", "source": "upload:1", "source_column": "from", "shares": {"sums": 0.3, "products": 0.7}}
CURRICULUM = {"prompts_per_step": 3, "group_size": 4, "curriculum": {"half_life": 2}}


VARIANTS: dict[str, dict[str, object]] = {
    "a curriculum over several sources with dynamic sampling": {
        "task": SOURCES,
        "sampling": CURRICULUM,
        "algorithm": {"dead_groups": "resample"},
    },
    "adapters, two updates a batch": ADAPTERS | {"algorithm": {"updates_per_batch": 2}},
    "a critic, and the KL in the reward": {
        "algorithm": {"advantage": {"kind": "gae"}, "kl": {"placement": "reward", "estimator": "k1"}}
    },
    "a reference that follows": {"algorithm": {"kl": {"reference": "synced", "sync_every": 2}}},
}


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(variant, id=name, marks=[pytest.mark.thorough] if place else [])
        for place, (name, variant) in enumerate(VARIANTS.items())
    ],
)
def test_what_goes_on_from_a_checkpoint_is_the_run_that_was_never_interrupted(
    tmp_path: Path, variant: dict[str, object]
) -> None:
    config = configured(**variant, budget={"steps": 4, "checkpoint_every": 3, "eval_every": 0})
    straight, second = Witness(), Witness()
    _, whole = train(config, tmp_path, straight, rows=ROWS)
    [saved, last] = straight.checkpoints
    assert (saved.step, last.step, damage(tmp_path / saved.path, saved.sha256)) == (3, 4, None)
    _, resumed = train(config, tmp_path, second, resume=tmp_path / saved.path, attempt=2, rows=ROWS)
    assert list(second.steps) == [3]
    assert history(second.steps[3]) == history(straight.steps[3])
    assert weights_hash(resumed) == weights_hash(whole)


def test_each_step_tells_its_groups_metrics_and_traces(trained: Trained) -> None:
    witness = trained.witness
    assert trained.ending == "finished"
    assert [m.seq for _, m in witness.messages if isinstance(m, Report)] == list(
        range(len(witness.messages) - 1 - len(witness.checkpoints))
    )
    report = witness.steps[0]
    assert [len(group.completions) for group in report.groups] == [4, 4, 4]
    assert report.trace is not None
    dead = [group for group in report.groups if group.state != "live"]  # the first completion is best and worst
    assert report.trace.rows == 3 * 2 - len(dead)
    for name in "reward reward_std group_reward_std frac_reward_zero_std kl loss grad_norm time/rollout".split():
        assert report.metrics[name] is not None, name
    evaluations = {
        m.step: m.metrics for _, m in witness.messages if isinstance(m, Report) and m.step is not None and not m.groups
    }
    assert sorted(evaluations) == [0, 1, 2]
    names = "pass@1 pass@2 scored_items greedy_pass@1 reward mean_length"
    assert set(evaluations[0]) == {f"eval/{name}" for name in names.split()}


@pytest.mark.parametrize(("asked", "ending"), [("pause", "paused"), ("stop", "stopped")])
def test_what_a_person_asks_for_takes_effect_at_the_next_step_boundary(tmp_path: Path, asked: str, ending: str) -> None:
    witness = Witness()

    class Asking(list[Progress]):
        def append(self, progress: Progress) -> None:
            """Somebody who watches asks during the first update."""
            if progress.phase == "update":
                witness.requested = asked

    config = configured(budget={"steps": 6, "eval_every": 0})
    reached, _ = train(config, tmp_path, witness, shown=Asking())
    assert reached == ending
    assert sorted(witness.steps) == [0]
    assert [checkpoint.step for checkpoint in witness.checkpoints] == [1]


@pytest.mark.parametrize("adapters", [False, True], ids=["all weights", "adapters"])
def test_what_a_run_leaves_opens_with_from_pretrained_and_starts_another_run(
    trained: Trained, tmp_path: Path, adapters: bool
) -> None:
    policy, witness, folder = trained.policy, trained.witness, trained.folder
    if adapters:
        witness, folder = Witness(), tmp_path
        _, policy = train(configured(**ADAPTERS, budget=ONE_STEP), tmp_path, witness)
    left = folder / witness.checkpoints[-1].path
    prompt = torch.tensor([AutoTokenizer.from_pretrained(left / "model").encode("Calculate 2 + 2 x 6")])
    source = resolve("run:1@1", converted=tmp_path, root=None, checkpoint=left)
    again = load_policy(GrpoConfig().model, source, torch.device("cpu"))
    with torch.no_grad():
        expected = policy.model(input_ids=prompt).logits
        assert torch.allclose(again.model(input_ids=prompt).logits, expected, atol=1e-5)
        if not adapters:
            opened = AutoModelForCausalLM.from_pretrained(left / "model", dtype=torch.float32)
            assert torch.equal(opened(input_ids=prompt).logits, expected)


def test_post_update_logprobs_show_what_became_likelier_and_a_reference_for_nothing_is_neither_held_nor_saved(
    tmp_path: Path,
) -> None:
    witness, no_kl = Witness(), {"kl": {"beta": 0.0, "reference": "synced"}}
    config = configured(telemetry={"logprob_after_update": True}, algorithm=no_kl, budget=ONE_STEP)
    train(config, tmp_path, witness)
    assert not (tmp_path / witness.checkpoints[-1].path / "reference.safetensors").exists()
    live = [one for group in witness.steps[0].groups if group.state == "live" for one in group.completions]
    values = [(one.advantage, one.logprob_sum, one.logprob_sum_after) for one in live]
    assert sum(advantage * (after - before) for advantage, before, after in values) > 0  # type: ignore[operator]


@pytest.mark.thorough
def test_a_shutdown_in_the_middle_of_a_rollout_ends_there_and_loses_no_step(tmp_path: Path) -> None:
    witness, shown = Witness(), list[Progress]()
    config = configured(budget={"steps": 2, "eval_every": 0, "checkpoint_every": 0})
    ending, _ = train(
        config, tmp_path, witness, shown=shown, shut_down_when=lambda: sum(p.step == 1 for p in shown) == 3
    )
    assert ending == "released"
    assert (shown[-2].phase, shown[-1].phase) == ("rollout", "checkpoint")
    assert [checkpoint.step for checkpoint in witness.checkpoints] == [1]
    straight, resumed = Witness(), Witness()
    train(config, tmp_path / "straight", straight)
    train(config, tmp_path, resumed, resume=tmp_path / witness.checkpoints[-1].path, attempt=2)
    assert history(resumed.steps[1]) == history(straight.steps[1])


def test_a_checkpoint_that_another_backends_run_left_under_the_same_number_is_replaced_and_told(
    trained: Trained, tmp_path: Path
) -> None:
    shutil.copytree(trained.folder, tmp_path, dirs_exist_ok=True)
    other, witness = configured(budget={"steps": 2, "checkpoint_every": 2, "eval_every": 0, "seed": 1}), Witness()
    _, policy = train(other, tmp_path, witness)
    [told] = witness.checkpoints
    assert told.path == trained.witness.checkpoints[-1].path
    assert damage(tmp_path / told.path, told.sha256) is None
    saved = load_policy(GrpoConfig().model, Pretrained(str(tmp_path / told.path / "model")), torch.device("cpu"))
    assert weights_hash(saved) == weights_hash(policy) != weights_hash(trained.policy), "another seed, another run"


def test_traces_too_large_to_send_and_a_disk_too_small_for_the_checkpoints_are_said(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2_000_000))
    monkeypatch.setattr("backend.contract.trace_file.MAX_BYTES", 1000)
    witness = Witness()
    ending, _ = train(configured(budget={"steps": 2, "eval_every": 0, "checkpoint_every": 1}), tmp_path, witness)
    assert ending == "finished"
    assert witness.steps[0].trace is None
    assert any("above" in line.message and "extremes" in line.message for line in witness.said)
    [line] = [line for line in witness.said if "GiB are free" in line.message]
    assert line.level == "warning"
    assert "up to 2 checkpoints" in line.message
    assert not any("GiB are free" in line.message for line in trained.witness.said)


@pytest.mark.thorough
def test_the_share_of_unscored_completions_is_the_steps_however_few_are_sampled_again(tmp_path: Path) -> None:
    answers = {"2 + 2 x 6": "14", "3 + 4 x 2": "11", "5 + 3 x 2": "11", "3 + 5 x 2": "nobody knows"}  # never scored
    config = configured(
        task={"kind": "dataset", "source": "upload:1", "answer_column": "answer", "held_out": 0},
        rewards={"functions": [{"kind": "correctness", "name": "right", "match": "numeric"}], "max_unscored": 0.5},
        sampling={"prompts_per_step": 4, "group_size": 4},
        algorithm={"dead_groups": "resample"},
        budget={"steps": 3, "eval_every": 0},
    )
    witness = Witness()
    rows = [{"prompt": f"Calculate {asked}", "answer": answer} for asked, answer in answers.items()]
    ending, _ = train(config, tmp_path, witness, rows=rows)
    assert ending == "finished"
    assert any(group.state == "filtered" for report in witness.steps.values() for group in report.groups)
    sampled = [sum(len(group.completions) for group in witness.steps[step].groups) for step in range(3)]
    counted = [witness.steps[step].metrics["num_samples"] for step in range(3)]
    assert counted == [sum(sampled[: step + 1]) for step in range(3)], "those that were taken out count, too"


def test_the_next_step_begins_while_a_report_or_a_checkpoint_is_still_on_its_way(tmp_path: Path) -> None:
    shown, waited = Screen(), list[object]()

    class Slow(Witness):
        def send(self, kind: str, message: BaseModel) -> None:
            done = None
            if isinstance(message, Report) and message.groups and message.step is not None and message.step < 3:
                done = message.step + 1
            elif isinstance(message, CheckpointReport) and message.step < 4:
                done = message.step
            if done is not None:
                shown.wait_for_rollout(done)
            waited.append(done)
            super().send(kind, message)

    witness = Slow()
    config = configured(budget={"steps": 4, "eval_every": 0, "checkpoint_every": 3})
    assert train(config, tmp_path, witness, shown=shown)[0] == "finished"
    assert {1, 2, 3} <= set(waited)
    for place, (_, message) in enumerate(witness.messages):
        if isinstance(message, CheckpointReport):  # comes after the reports below it
            before = [one.step for _, one in witness.messages[:place] if isinstance(one, Report) and one.groups]
            assert before == list(range(message.step))


@pytest.mark.thorough
def test_what_goes_wrong_while_a_report_is_stored_ends_the_run_and_nothing_is_told_after_it(tmp_path: Path) -> None:
    witness, shown = Witness(kill_at_step=2), list[Progress]()
    with pytest.raises(Killed):
        train(configured(budget={"steps": 60, "eval_every": 0}), tmp_path, witness, shown=shown)
    assert sorted(witness.steps) == [0, 1]
    assert witness.checkpoints == []
    assert max(one.step for one in shown) < 20


def test_a_checkpoint_that_finds_no_room_now_or_in_the_background_ends_the_run_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, witness = configured(budget={"steps": 40, "eval_every": 0, "checkpoint_every": 1}), Witness()
    with disk_of(100_000), pytest.raises(Exception, match="too large") as caught:
        train(config, tmp_path, witness)
    assert failure(1, caught.value).error.code == "disk_full"
    assert not list((tmp_path / "run-1").iterdir())
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("worker.checkpoint._force_to_disk", full)
    with pytest.raises(OSError, match="No space left"):
        train(config, tmp_path, witness)
    assert witness.checkpoints == []
    assert not list((tmp_path / "run-1").iterdir())


@pytest.mark.thorough
def test_a_checkpoint_behind_a_report_that_fails_gives_its_space_back(tmp_path: Path) -> None:
    shown = Screen()

    class Late(Witness):
        def send(self, kind: str, message: BaseModel) -> None:
            """The report of step 0 fails once checkpoint 1 is written."""
            if isinstance(message, Report) and message.groups:
                shown.wait_for_rollout(1)
                raise Killed
            super().send(kind, message)

    with pytest.raises(Killed):
        train(configured(budget={"steps": 40, "eval_every": 0, "checkpoint_every": 1}), tmp_path, Late(), shown=shown)
    assert not list((tmp_path / "run-1").iterdir())
