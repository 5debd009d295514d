"""Runs on preference pairs, end to end without a backend: what they tell, what they leave, and that a resume changes nothing."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import pytest
import torch
from pydantic import BaseModel, TypeAdapter
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from witness import Killed, Witness
from worker_models import CPU, no_memory_once

from backend.bucket.bucket import Bucket
from backend.contract.preference import DpoConfig, RewardModelConfig
from backend.contract.protocol import Report, Start
from backend.contract.records import Progress
from worker.checkpoint import damage
from worker.errors import Interrupted, RunFailure
from worker.policy.classifier import load_reward_model
from worker.policy.sources import TINY_ARITHMETIC, resolve
from worker.preferences.objective import BradleyTerry
from worker.preferences.pairs import Pairs, stored_pairs
from worker.preferences.run import PAIRS_FILE, Means, train_on_pairs
from worker.reporter import Channels, Ending, Place
from worker.rewards.resources import RewardResources
from worker.rewards.scoring import RewardScorer
from worker.store import Store

Config = RewardModelConfig | DpoConfig
READ: TypeAdapter[Config] = TypeAdapter(Config)
PAIRS = {"kind": "sampled", "prompts": 24, "held_out_prompts": 8, "group_size": 4}
BUDGET = {"steps": 6, "pairs_per_step": 4, "eval_every": 3, "checkpoint_every": 3}
KINDS = pytest.mark.parametrize("kind", ["reward_model", "dpo"])

# Whole runs: right, but too slow for `make check`.
pytestmark = pytest.mark.slow


class PairWitness(Witness):
    """Keeps also what is shown, and finds the metrics of updates and evaluations."""

    def __init__(self, kill_at_step: int | None = None) -> None:
        super().__init__(kill_at_step)
        self.shown: list[Progress] = []

    def _metrics(self, metric: str) -> dict[int, dict[str, float | None]]:
        reports = [m for _, m in self.messages if isinstance(m, Report) and metric in m.metrics]
        return {m.step: m.metrics for m in reports if m.step is not None}

    @property
    def updates(self) -> dict[int, dict[str, float | None]]:
        return self._metrics("grad_norm")

    @property
    def evaluations(self) -> dict[int, dict[str, float | None]]:
        return self._metrics("eval/accuracy")

    @property
    def sampled(self) -> bool:
        """It did not find the pairs of an earlier attempt."""
        return any(progress.phase == "pairs" for progress in self.shown)


def configured(kind: str, **changes: object) -> Config:
    optimizer = {"learning_rate": 3e-4, "warmup_steps": 1}
    budget = BUDGET | ({"eval_items": 4} if kind == "dpo" else {})
    return READ.validate_python({"kind": kind, "pairs": PAIRS, "optimizer": optimizer, "budget": budget} | changes)


def train(
    config: Config,
    store: Path,
    witness: PairWitness,
    *,
    attempt: int = 1,
    resume: Path | None = None,
    rows: bytes = b"",
    own: Path | None = None,
    shutting_down: Callable[[], bool] = lambda: False,
    bucket: Bucket | None = None,
    meanwhile: Callable[[Progress], None] = lambda _: None,
) -> Ending:
    torch.set_num_threads(1)
    source = resolve(TINY_ARITHMETIC, converted=store, root=None, checkpoint=None)
    means = Means(source, CPU, lambda _: rows, lambda rewards: RewardScorer(rewards, RewardResources(own=own)))
    place = Place(1, attempt, Store(store, bucket, 2**30), "store", resume, "CPU", {})

    def show(progress: Progress) -> None:
        witness.shown.append(progress)
        meanwhile(progress)

    channels = Channels(witness.send, show, lambda: cast(Any, witness.requested), lambda: None, shutting_down)
    return train_on_pairs(config, means, place, channels)


def pairs_of(folder: Path, config: Config) -> Pairs:
    """Those that the run stored."""
    origin = config.model_dump_json(include={"model", "pairs", "budget"})
    pairs = stored_pairs(folder / "run-1" / PAIRS_FILE, origin=origin)
    assert pairs is not None
    return pairs


@dataclass
class Trained:
    """A run of six steps, with an evaluation before, between and after them."""

    config: Config
    witness: PairWitness
    folder: Path

    @property
    def left(self) -> Path:
        return self.folder / self.witness.checkpoints[-1].path


@pytest.fixture(scope="module", params=["reward_model", "dpo"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Nobody changes it."""
    one = Trained(configured(request.param), PairWitness(), tmp_path_factory.mktemp("trained"))
    assert train(one.config, one.folder, one.witness) == "finished"
    return one


DPO = pytest.mark.parametrize("trained", ["dpo"], indirect=True)


def untimed(metrics: dict[str, float | None]) -> dict[str, float | None]:
    return {name: value for name, value in metrics.items() if name not in ("step_time", "peak_memory")}


def test_what_goes_on_from_a_checkpoint_is_the_run_that_was_never_interrupted(trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.folder, tmp_path, dirs_exist_ok=True)
    half, second = trained.witness.checkpoints[0], PairWitness()
    assert damage(tmp_path / half.path, half.sha256) is None
    train(trained.config, tmp_path, second, attempt=2, resume=tmp_path / half.path)
    assert_goes_on(trained, second, tmp_path)


@pytest.mark.thorough
@DPO
def test_a_worker_of_another_machine_finds_the_pairs_and_the_checkpoint_in_the_bucket(
    trained: Trained, tmp_path: Path, bucket: Bucket
) -> None:
    first, second = PairWitness(kill_at_step=4), PairWitness()
    with pytest.raises(Killed):
        train(trained.config, tmp_path / "here", first, bucket=bucket)
    [*_, newest] = first.checkpoints
    there = Store(tmp_path / "there", bucket, 2**30)
    assert there.fetch(newest.path, newest.sha256) is None
    train(trained.config, there.folder, second, attempt=2, resume=there.folder / newest.path, bucket=bucket)
    assert_goes_on(trained, second, there.folder)


def assert_goes_on(straight: Trained, second: PairWitness, folder: Path) -> None:
    """From step 3, as the run that nobody killed."""
    assert sorted(second.updates) == [3, 4, 5]
    for step in (3, 4, 5):
        assert untimed(second.updates[step]) == untimed(straight.witness.updates[step])
    assert second.evaluations[6] == straight.witness.evaluations[6]
    assert not second.sampled
    asked = {"dpo": ["reference_logprobs.safetensors"], "reward_model": []}[straight.config.kind]
    assert [path.name for path in straight.left.glob("reference*")] == asked
    for tensors in ("model/model.safetensors", *asked):
        left = folder / second.checkpoints[-1].path / tensors
        assert (straight.left / tensors).read_bytes() == left.read_bytes()


def test_a_run_tells_what_it_learns_and_leaves_a_model_that_opens(trained: Trained) -> None:
    witness, dpo = trained.witness, trained.config.kind == "dpo"
    of_dpo = {f"rewards/{name}" for name in ("chosen", "rejected", "accuracies", "margins")}
    of_dpo |= {"loss", "logps/chosen", "logps/rejected"}
    metrics = of_dpo if dpo else {"loss", "accuracy", "margin", "mean_reward"}
    shared = {"grad_norm", "learning_rate", "step_time", "num_tokens", "peak_memory"}
    assert set(witness.updates[0]) == metrics | shared
    assert {"eval/loss", "eval/accuracy", "eval/margin"} <= set(witness.evaluations[0])
    assert ("eval/pass@1" in witness.evaluations[0]) == dpo
    assert sorted(witness.evaluations) == [0, 3, 6]
    if dpo:
        before = witness.evaluations[0]
        assert (before["eval/loss"], before["eval/margin"]) == pytest.approx((0.6931472, 0), abs=1e-5)  # log 2
        AutoModelForCausalLM.from_pretrained(trained.left / "model")
    else:
        opened = AutoModelForSequenceClassification.from_pretrained(trained.left / "model")
        assert opened.config.num_labels == 1


def test_each_step_tells_its_pairs_with_the_margins_whose_mean_is_its_metric(trained: Trained) -> None:
    margin = {"reward_model": "margin", "dpo": "rewards/margins"}[trained.config.kind]
    reports = [one for _, one in trained.witness.messages if isinstance(one, Report) and margin in one.metrics]
    assert len(reports) == BUDGET["steps"]
    for report in reports:
        assert [pair.index for pair in report.pairs] == [0, 1, 2, 3]
        assert fmean(pair.margin or 0.0 for pair in report.pairs) == pytest.approx(report.metrics[margin], abs=1e-6)
        assert all(pair.prompt and pair.chosen != pair.rejected for pair in report.pairs)
    assert any(pair.margin for pair in reports[-1].pairs)


@pytest.mark.thorough
def test_adapters_learn_the_pairs_go_on_from_a_checkpoint_and_score_as_a_reward_of_another_run(tmp_path: Path) -> None:
    optimizer = {"learning_rate": 3e-3, "warmup_steps": 1}
    budget = {"steps": 30, "pairs_per_step": 8, "eval_every": 30, "checkpoint_every": 15}
    config = configured(
        "reward_model", model={"lora": {"rank": 4}, "gradient_checkpointing": True}, optimizer=optimizer, budget=budget
    )
    killed, witness = PairWitness(kill_at_step=16), PairWitness()
    with pytest.raises(Killed):
        train(config, tmp_path, killed)
    train(config, tmp_path, witness, attempt=2, resume=tmp_path / killed.checkpoints[-1].path)
    assert untimed(witness.updates[15]) == untimed(killed.updates[15])
    first, last = (one["eval/loss"] or 0.0 for one in (killed.evaluations[0], witness.evaluations[30]))
    assert last < first - 0.1
    checkpoint = tmp_path / witness.checkpoints[-1].path
    source = resolve("run:1@30", converted=tmp_path, root=None, checkpoint=checkpoint, store=tmp_path)
    scorer = load_reward_model(source, CPU, "float32")
    with torch.no_grad():
        found = BradleyTerry(scorer).judge(pairs_of(tmp_path, config).held_out).loss_N.mean().item()
    assert found == pytest.approx(last, abs=1e-4)


@pytest.mark.parametrize(("asked", "ending"), [("pause", "paused"), ("stop", "stopped")])
def test_what_a_person_asks_for_takes_effect_at_the_next_step_boundary(tmp_path: Path, asked: str, ending: str) -> None:
    witness = PairWitness()

    def ask(progress: Progress) -> None:
        if progress.phase == "update":
            witness.requested = asked

    assert train(configured("reward_model"), tmp_path, witness, meanwhile=ask) == ending
    assert sorted(witness.updates) == [0]
    assert [checkpoint.step for checkpoint in witness.checkpoints] == [1]


def test_held_out_pairs_are_of_other_prompts_and_sampled_again_only_for_another_configuration(
    trained: Trained, tmp_path: Path
) -> None:
    path = Path(shutil.copy(trained.folder / "run-1" / PAIRS_FILE, tmp_path))
    pairs = pairs_of(trained.folder, trained.config)
    assert len(pairs.train) + len(pairs.held_out) + pairs.undecided == 24 + 8
    assert not {pair.prompt_id for pair in pairs.train} & {pair.prompt_id for pair in pairs.held_out}
    assert all(pair.chosen.text != pair.rejected.text for pair in pairs.train)
    assert stored_pairs(path, origin="another") is None
    path.write_text(path.read_text()[:-40])
    assert stored_pairs(path, origin=trained.config.model_dump_json(include={"model", "pairs", "budget"})) is None


@pytest.mark.parametrize("done", [6, (24 + 8) * 4], ids=["sampled", "scored"])
def test_a_shutdown_while_pairs_are_sampled_or_scored_ends_there(tmp_path: Path, done: int) -> None:
    witness = PairWitness()

    def shutting_down() -> bool:
        return bool(witness.shown) and witness.shown[-1].phase == "pairs" and (witness.shown[-1].done or 0) >= done

    with pytest.raises(Interrupted):
        train(configured("reward_model"), tmp_path, witness, shutting_down=shutting_down)
    assert witness.shown[-1].phase == "pairs"
    assert not (tmp_path / "run-1" / PAIRS_FILE).exists()  # not all of them were scored


@pytest.mark.thorough
def test_prompts_whose_completions_are_all_alike_give_no_pairs_and_the_run_says_so(tmp_path: Path) -> None:
    rewards = {"functions": [{"kind": "format", "name": "format", "tags": ["poem"]}]}
    with pytest.raises(RunFailure, match="32 gave none"):
        train(configured("reward_model", pairs=PAIRS | {"rewards": rewards}), tmp_path, PairWitness())


# ---- a person's own reward, in a file that is edited meanwhile

OWN = {"functions": [{"kind": "python", "name": "own", "function": "own.py:reward"}]}
FIRST = "def reward(completion):\n    return len(completion)\n"
SECOND = "def reward(completion):\n    return -len(completion)\n"


def with_own(kind: str, own: Path) -> Config:
    """A run whose pairs are chosen by a file of the folder, which prefers long completions."""
    own.mkdir()
    (own / "own.py").write_text(FIRST)
    budget = {"steps": 1, "pairs_per_step": 4, "eval_every": 1} | ({"eval_items": 4} if kind == "dpo" else {})
    return configured(kind, pairs=PAIRS | {"rewards": OWN}, budget=budget)


def chosen_by(folder: Path, config: Config) -> str:
    """The text that chose the pairs that are stored, by what is in them: the longer or the shorter completions."""
    longer = {len(pair.chosen.text) > len(pair.rejected.text) for pair in pairs_of(folder, config).train}
    return {(True,): FIRST, (False,): SECOND}[tuple(longer)]  # type: ignore[index]


def started_with(witness: PairWitness) -> list[str]:
    [start] = [one for _, one in witness.messages if isinstance(one, Start)]
    return [one.text for one in start.reward_texts]


class KilledBeforeStart(PairWitness):
    def send(self, kind: str, message: BaseModel) -> None:
        if kind == "start":
            raise Killed
        super().send(kind, message)


def test_what_chose_the_pairs_evaluates_them_whatever_becomes_of_the_file_meanwhile(tmp_path: Path) -> None:
    own, witness = tmp_path / "rewards", PairWitness()

    def edit(progress: Progress) -> None:
        if progress.phase == "pairs":
            (own / "own.py").write_text(SECOND)

    config = with_own("dpo", own)
    assert train(config, tmp_path, witness, own=own, meanwhile=edit) == "finished"
    assert (own / "own.py").read_text() == SECOND
    assert started_with(witness) == [chosen_by(tmp_path, config)] == [FIRST]
    assert (witness.evaluations[0]["eval/reward"] or 0.0) > 0


def test_a_later_attempt_knows_what_chose_the_pairs_that_it_finds(tmp_path: Path) -> None:
    own = tmp_path / "rewards"
    config = with_own("reward_model", own)
    with pytest.raises(Killed):
        train(config, tmp_path, KilledBeforeStart(), own=own)
    (own / "own.py").write_text(SECOND)
    witness = PairWitness()
    train(config, tmp_path, witness, attempt=2, own=own)
    assert not witness.sampled
    assert started_with(witness) == [chosen_by(tmp_path, config)] == [FIRST]


@pytest.mark.thorough
def test_pairs_are_chosen_again_if_something_else_than_what_chose_them_would_evaluate_them(tmp_path: Path) -> None:
    own = tmp_path / "rewards"
    config = with_own("dpo", own)
    with pytest.raises(Killed):
        train(config, tmp_path, KilledBeforeStart(), own=own)
    assert chosen_by(tmp_path, config) == FIRST
    unchanged = PairWitness()
    train(config, tmp_path, unchanged, attempt=2, own=own)
    assert not unchanged.sampled
    (own / "own.py").write_text(SECOND)
    witness = PairWitness()
    train(config, tmp_path, witness, attempt=3, own=own)
    assert started_with(witness) == [chosen_by(tmp_path, config)] == [SECOND]


ROWS = [
    {"prompt": f"Calculate {a} + 2 x 6", "chosen": f"<answer>{a + 12}", "rejected": f"<answer>{6 * (a + 2)}"}
    for a in range(1, 9)
]


def jsonl(rows: Sequence[Mapping[str, object]]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows)


@KINDS
def test_a_run_trains_on_a_persons_own_pairs(kind: str, tmp_path: Path) -> None:
    witness = PairWitness()
    budget = {"steps": 2, "pairs_per_step": 4, "eval_every": 2}
    config = configured(kind, pairs={"kind": "dataset", "source": "upload:1", "held_out": 0.25}, budget=budget)
    same = {"prompt": "Calculate 9 + 2 x 6", "chosen": "21", "rejected": "21"}
    train(config, tmp_path, witness, rows=jsonl([*ROWS, same]))
    [started] = [line.message for line in witness.said if "pairs to train on" in line.message]
    assert "1 without a difference left out" in started
    assert sorted(witness.updates) == [0, 1]
    assert "eval/pass@1" not in witness.evaluations[0]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"chosen": "b"}, "no column rejected"),
        ({"chosen": [{"role": "user", "content": "b"}], "rejected": "c"}, "must end with the assistant's"),
        ({"prompt": "a" * 4000, "chosen": "b", "rejected": "c"}, "was made for 512"),
    ],
)
def test_pairs_that_cannot_be_trained_on_are_refused_by_name(tmp_path: Path, row: dict[str, object], says: str) -> None:
    pairs = {"kind": "dataset", "source": "upload:1", "held_out": 0}
    config = configured("reward_model", pairs=pairs, budget={"steps": 1, "eval_every": 0})
    with pytest.raises(RunFailure, match=says):
        train(config, tmp_path, PairWitness(), rows=jsonl([{"prompt": "a"} | row]))


def test_a_dpo_run_whose_update_finds_no_memory_takes_it_from_the_sampler_of_its_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_memory_once(monkeypatch)
    witness = PairWitness()
    budget = {"steps": 1, "pairs_per_step": 4, "eval_every": 1, "eval_items": 4, "eval_samples": 1}
    assert train(configured("dpo", budget=budget), tmp_path, witness) == "finished"
    assert list(witness.updates) == [0]
