"""Runs on preference pairs, end to end without a backend: what they tell, what they leave, and that a resume changes nothing."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pytest
import torch
from pydantic import BaseModel, TypeAdapter
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from worker_models import no_memory_once

from backend.bucket.bucket import Bucket
from backend.contract.preference import DpoConfig, RewardModelConfig
from backend.contract.protocol import CheckpointReport, Report, Start
from backend.contract.records import Progress
from worker.checkpoint import damage
from worker.errors import Interrupted, RunFailure
from worker.policy.classifier import load_reward_model
from worker.policy.sources import TINY_ARITHMETIC, resolve
from worker.preferences.objective import BradleyTerry
from worker.preferences.pairs import stored_pairs
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


class Killed(Exception):
    """Stands for the end of the process."""


class Witness:
    """Keeps what a run sends; ends it like a kill at the report of a training step."""

    def __init__(self, kill_at_step: int | None = None) -> None:
        self.messages: list[BaseModel] = []
        self.shown: list[Progress] = []
        self.requested = "nothing"
        self._kill_at = kill_at_step

    def send(self, kind: str, message: BaseModel) -> None:
        if isinstance(message, Report) and "grad_norm" in message.metrics and message.step == self._kill_at:
            raise Killed
        self.messages.append(message)

    def _reports(self, metric: str) -> dict[int, dict[str, float | None]]:
        reports = [m for m in self.messages if isinstance(m, Report) and m.step is not None and metric in m.metrics]
        return {m.step: m.metrics for m in reports if m.step is not None}

    @property
    def steps(self) -> dict[int, dict[str, float | None]]:
        return self._reports("grad_norm")

    @property
    def evaluations(self) -> dict[int, dict[str, float | None]]:
        return self._reports("eval/accuracy")

    @property
    def checkpoints(self) -> list[CheckpointReport]:
        return [m for m in self.messages if isinstance(m, CheckpointReport)]


def configured(kind: str, **changes: object) -> Config:
    config: dict[str, object] = {
        "kind": kind,
        "pairs": PAIRS,
        "optimizer": {"learning_rate": 3e-4, "warmup_steps": 1},
        "budget": BUDGET | ({"eval_items": 4} if kind == "dpo" else {}),
    }
    return READ.validate_python(config | changes)


def train(
    config: Config,
    store: Path,
    witness: Witness,
    *,
    attempt: int = 1,
    resume: Path | None = None,
    rows: bytes = b"",
    own: Path | None = None,
    shutting_down: Callable[[], bool] = lambda: False,
    bucket: Bucket | None = None,
) -> Ending:
    torch.set_num_threads(1)
    source = resolve(TINY_ARITHMETIC, converted=store, root=None, checkpoint=None)
    means = Means(
        source, torch.device("cpu"), lambda _: rows, lambda rewards: RewardScorer(rewards, RewardResources(own=own))
    )
    place = Place(1, attempt, Store(store, bucket, 2**30), "store", resume, "CPU", {})
    channels = Channels(
        send=witness.send,
        show=witness.shown.append,
        requested=lambda: witness.requested,  # type: ignore[return-value,arg-type]
        between_steps=lambda: None,
        shutting_down=shutting_down,
    )
    return train_on_pairs(config, means, place, channels)


@dataclass
class Trained:
    """A run of six steps, with an evaluation before, between and after them."""

    config: Config
    witness: Witness
    folder: Path

    @property
    def left(self) -> Path:
        return self.folder / self.witness.checkpoints[-1].path


@pytest.fixture(scope="module", params=["reward_model", "dpo"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Nobody changes it."""
    one = Trained(configured(request.param), Witness(), tmp_path_factory.mktemp("trained"))
    assert train(one.config, one.folder, one.witness) == "finished"
    return one


DPO = pytest.mark.parametrize("trained", ["dpo"], indirect=True)


def untimed(metrics: dict[str, float | None]) -> dict[str, float | None]:
    return {name: value for name, value in metrics.items() if name not in ("step_time", "peak_memory")}


def test_what_goes_on_from_a_checkpoint_is_the_run_that_was_never_interrupted(trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.folder, tmp_path, dirs_exist_ok=True)
    half, second = trained.witness.checkpoints[0], Witness()
    assert damage(tmp_path / half.path, half.sha256) is None
    train(trained.config, tmp_path, second, attempt=2, resume=tmp_path / half.path)
    assert_goes_on(trained, second, tmp_path)


@pytest.mark.thorough
@DPO
def test_a_worker_of_another_machine_finds_the_pairs_and_the_checkpoint_in_the_bucket(
    trained: Trained, tmp_path: Path, bucket: Bucket
) -> None:
    first, second = Witness(kill_at_step=4), Witness()
    with pytest.raises(Killed):
        train(trained.config, tmp_path / "here", first, bucket=bucket)
    [*_, newest] = first.checkpoints
    there = Store(tmp_path / "there", bucket, 2**30)
    assert there.fetch(newest.path, newest.sha256) is None
    train(trained.config, there.folder, second, attempt=2, resume=there.folder / newest.path, bucket=bucket)
    assert_goes_on(trained, second, there.folder)


def assert_goes_on(straight: Trained, second: Witness, folder: Path) -> None:
    """From step 3, as the run that nobody killed."""
    assert sorted(second.steps) == [3, 4, 5]
    for step in (3, 4, 5):
        assert untimed(second.steps[step]) == untimed(straight.witness.steps[step])
    assert second.evaluations[6] == straight.witness.evaluations[6]
    assert not any(progress.phase == "pairs" for progress in second.shown), "the pairs were sampled once"
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
    assert set(witness.steps[0]) == metrics | shared
    assert {"eval/loss", "eval/accuracy", "eval/margin"} <= set(witness.evaluations[0])
    assert ("eval/pass@1" in witness.evaluations[0]) == dpo
    assert sorted(witness.evaluations) == [0, 3, 6]
    if dpo:
        AutoModelForCausalLM.from_pretrained(trained.left / "model")
    else:
        opened = AutoModelForSequenceClassification.from_pretrained(trained.left / "model")
        assert opened.config.num_labels == 1


def test_each_step_tells_its_pairs_with_the_margins_whose_mean_is_its_metric(trained: Trained) -> None:
    margin = {"reward_model": "margin", "dpo": "rewards/margins"}[trained.config.kind]
    sent_of_steps = [one for one in trained.witness.messages if isinstance(one, Report) and margin in one.metrics]
    assert len(sent_of_steps) == BUDGET["steps"]
    for report in sent_of_steps:
        assert [pair.index for pair in report.pairs] == [0, 1, 2, 3]
        assert fmean(pair.margin or 0.0 for pair in report.pairs) == pytest.approx(report.metrics[margin], abs=1e-6)
        assert all(pair.prompt and pair.chosen != pair.rejected for pair in report.pairs)
    assert any(pair.margin for pair in sent_of_steps[-1].pairs)


@DPO
def test_a_dpo_run_begins_at_log_2_with_margins_of_0(trained: Trained) -> None:
    first = trained.witness.evaluations[0]
    assert first["eval/loss"] == pytest.approx(0.6931472, abs=1e-5)
    assert first["eval/margin"] == pytest.approx(0, abs=1e-5)


@pytest.mark.thorough
def test_adapters_learn_the_pairs_go_on_from_a_checkpoint_and_score_as_a_reward_of_another_run(tmp_path: Path) -> None:
    optimizer = {"learning_rate": 3e-3, "warmup_steps": 1}
    budget = {"steps": 30, "pairs_per_step": 8, "eval_every": 30, "checkpoint_every": 15}
    config = configured(
        "reward_model", model={"lora": {"rank": 4}, "gradient_checkpointing": True}, optimizer=optimizer, budget=budget
    )
    killed, witness = Witness(kill_at_step=16), Witness()
    with pytest.raises(Killed):
        train(config, tmp_path, killed)
    train(config, tmp_path, witness, attempt=2, resume=tmp_path / killed.checkpoints[-1].path)
    assert untimed(witness.steps[15]) == untimed(killed.steps[15])
    witness.messages = [*killed.messages, *witness.messages]
    first, last = (witness.evaluations[step]["eval/loss"] or 0.0 for step in (0, 30))
    assert last < first - 0.1
    checkpoint = tmp_path / witness.checkpoints[-1].path
    source = resolve("run:1@30", converted=tmp_path, root=None, checkpoint=checkpoint, store=tmp_path)
    scorer = load_reward_model(source, torch.device("cpu"), "float32")
    origin = config.model_dump_json(include={"model", "pairs", "budget"})
    pairs = stored_pairs(tmp_path / "run-1" / PAIRS_FILE, origin=origin)
    assert pairs is not None
    with torch.no_grad():
        found = BradleyTerry(scorer).judge(pairs.held_out).loss_N.mean().item()
    assert found == pytest.approx(last, abs=1e-4)


@pytest.mark.parametrize(("asked", "ending"), [("pause", "paused"), ("stop", "stopped")])
def test_what_a_person_asks_for_takes_effect_at_the_next_step_boundary(tmp_path: Path, asked: str, ending: str) -> None:
    class Watched(Witness):
        def __init__(self) -> None:
            """Somebody who watches asks during the first update."""
            super().__init__()
            self.shown = Screen()

    class Screen(list[Progress]):
        def append(self, progress: Progress) -> None:
            if progress.phase == "update":
                witness.requested = asked

    witness = Watched()
    assert train(configured("reward_model"), tmp_path, witness) == ending
    assert sorted(witness.steps) == [0]
    assert [checkpoint.step for checkpoint in witness.checkpoints] == [1]


def test_held_out_pairs_are_of_other_prompts_and_sampled_again_only_for_another_configuration(
    trained: Trained, tmp_path: Path
) -> None:
    origin = trained.config.model_dump_json(include={"model", "pairs", "budget"})
    path = Path(shutil.copy(trained.folder / "run-1" / PAIRS_FILE, tmp_path))
    pairs = stored_pairs(path, origin=origin)
    assert pairs is not None
    assert len(pairs.train) + len(pairs.held_out) + pairs.undecided == 24 + 8
    assert not {pair.prompt_id for pair in pairs.train} & {pair.prompt_id for pair in pairs.held_out}
    assert all(pair.chosen.text != pair.rejected.text for pair in pairs.train)
    assert stored_pairs(path, origin="another") is None
    path.write_text(path.read_text()[:-40])
    assert stored_pairs(path, origin=origin) is None


@pytest.mark.parametrize("done", [6, (24 + 8) * 4], ids=["sampled", "scored"])
def test_a_shutdown_while_pairs_are_sampled_or_scored_ends_there(tmp_path: Path, done: int) -> None:
    witness = Witness()
    with pytest.raises(Interrupted):
        train(
            configured("reward_model"),
            tmp_path,
            witness,
            shutting_down=lambda: bool(witness.shown) and (witness.shown[-1].done or 0) >= done,
        )
    assert witness.shown[-1].phase == "pairs"
    assert not (tmp_path / "run-1" / PAIRS_FILE).exists()  # not all of them were scored


@pytest.mark.thorough
def test_prompts_whose_completions_are_all_alike_give_no_pairs_and_the_run_says_so(tmp_path: Path) -> None:
    rewards = {"functions": [{"kind": "format", "name": "format", "tags": ["poem"]}]}
    with pytest.raises(RunFailure, match="32 gave none"):
        train(configured("reward_model", pairs=PAIRS | {"rewards": rewards}), tmp_path, Witness())


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
    origin = config.model_dump_json(include={"model", "pairs", "budget"})
    pairs = stored_pairs(folder / "run-1" / PAIRS_FILE, origin=origin)
    assert pairs is not None
    longer = {len(pair.chosen.text) > len(pair.rejected.text) for pair in pairs.train}
    return {(True,): FIRST, (False,): SECOND}[tuple(longer)]  # type: ignore[index]


def started_with(witness: Witness) -> list[str]:
    [start] = [one for one in witness.messages if isinstance(one, Start)]
    return [one.text for one in start.reward_texts]


class KilledBeforeStart(Witness):
    def send(self, kind: str, message: BaseModel) -> None:
        if kind == "start":
            raise Killed
        super().send(kind, message)


def test_what_chose_the_pairs_evaluates_them_whatever_becomes_of_the_file_meanwhile(tmp_path: Path) -> None:
    own = tmp_path / "rewards"

    class Edited(Witness):
        def __init__(self) -> None:
            super().__init__()
            self.shown = Editor()

    class Editor(list[Progress]):
        def append(self, progress: Progress) -> None:
            if progress.phase == "pairs":
                (own / "own.py").write_text(SECOND)

    config, witness = with_own("dpo", own), Edited()
    assert train(config, tmp_path, witness, own=own) == "finished"
    assert (own / "own.py").read_text() == SECOND
    assert started_with(witness) == [chosen_by(tmp_path, config)] == [FIRST]
    assert (witness.evaluations[0]["eval/reward"] or 0.0) > 0


def test_a_later_attempt_knows_what_chose_the_pairs_that_it_finds(tmp_path: Path) -> None:
    own = tmp_path / "rewards"
    config = with_own("reward_model", own)
    with pytest.raises(Killed):
        train(config, tmp_path, KilledBeforeStart(), own=own)
    (own / "own.py").write_text(SECOND)
    witness = Witness()
    train(config, tmp_path, witness, attempt=2, own=own)
    assert not any(progress.phase == "pairs" for progress in witness.shown)
    assert started_with(witness) == [chosen_by(tmp_path, config)] == [FIRST]


@pytest.mark.thorough
def test_pairs_are_chosen_again_if_something_else_than_what_chose_them_would_evaluate_them(tmp_path: Path) -> None:
    own = tmp_path / "rewards"
    config = with_own("dpo", own)
    with pytest.raises(Killed):
        train(config, tmp_path, KilledBeforeStart(), own=own)
    assert chosen_by(tmp_path, config) == FIRST
    unchanged = Witness()
    train(config, tmp_path, unchanged, attempt=2, own=own)
    assert not any(progress.phase == "pairs" for progress in unchanged.shown)
    (own / "own.py").write_text(SECOND)
    witness = Witness()
    train(config, tmp_path, witness, attempt=3, own=own)
    assert started_with(witness) == [chosen_by(tmp_path, config)] == [SECOND]


ROWS = [
    {
        "prompt": f"Calculate {a} + 2 x 6",
        "chosen": f"<answer>{a + 12}</answer>",
        "rejected": f"<answer>{6 * (a + 2)}</answer>",
    }
    for a in range(1, 9)
]


def jsonl(rows: Sequence[Mapping[str, object]]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows)


@KINDS
def test_a_run_trains_on_a_persons_own_pairs(kind: str, tmp_path: Path) -> None:
    witness = Witness()
    budget = {"steps": 2, "pairs_per_step": 4, "eval_every": 2}
    config = configured(kind, pairs={"kind": "dataset", "source": "upload:1", "held_out": 0.25}, budget=budget)
    same = {"prompt": "Calculate 9 + 2 x 6", "chosen": "21", "rejected": "21"}
    train(config, tmp_path, witness, rows=jsonl([*ROWS, same]))
    [started] = [
        m for m in witness.messages if isinstance(m, Report) and m.logs and "pairs to train on" in m.logs[0].message
    ]
    assert "1 without a difference left out" in started.logs[0].message
    assert sorted(witness.steps) == [0, 1]
    assert "eval/pass@1" not in witness.evaluations[0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a", "chosen": "b"}, "no column rejected"),
        (
            {"prompt": "a", "chosen": [{"role": "user", "content": "b"}], "rejected": "c"},
            "must end with the assistant's",
        ),
        ({"prompt": "a" * 4000, "chosen": "b", "rejected": "c"}, "was made for 512"),
    ],
)
def test_pairs_that_cannot_be_trained_on_are_refused_by_name(
    tmp_path: Path, row: dict[str, object], message: str
) -> None:
    config = configured(
        "reward_model",
        pairs={"kind": "dataset", "source": "upload:1", "held_out": 0},
        budget={"steps": 1, "eval_every": 0},
    )
    with pytest.raises(RunFailure, match=message):
        train(config, tmp_path, Witness(), rows=jsonl([row]))


def test_a_dpo_run_whose_update_finds_no_memory_takes_it_from_the_sampler_of_its_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_memory_once(monkeypatch)
    witness = Witness()
    budget = {"steps": 1, "pairs_per_step": 4, "eval_every": 1, "eval_items": 4, "eval_samples": 1}
    assert train(configured("dpo", budget=budget), tmp_path, witness) == "finished"
    assert list(witness.steps) == [0]
