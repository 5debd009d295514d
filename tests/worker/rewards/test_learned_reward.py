"""A reward model as a reward, from its source to the total."""

from pathlib import Path

import pytest
import torch
from scorers import error, raws

from backend.contract.reward import Correctness, LearnedReward, Rewards
from worker.errors import RunFailure
from worker.policy.classifier import RewardModel, new_reward_model
from worker.policy.sources import TINY_ARITHMETIC, resolve
from worker.rewards.resources import reward_resources
from worker.rewards.scoring import RewardScorer, Sample, Scores
from worker.settings import Settings
from worker.tasks.items import Item

CPU = torch.device("cpu")
ITEM = Item("one", "2 + 2", ({"role": "user", "content": "2 + 2"},), "4", {"kind": "exact"})
SOURCE = "run:7@20"
TEXTS = ("4", "5", "four, I think")


@pytest.fixture(scope="module")
def model() -> RewardModel:
    tiny = resolve(TINY_ARITHMETIC, converted=Path("/nowhere"), root=None, checkpoint=None)
    return new_reward_model(tiny, CPU, "float32", seed=0)


@pytest.fixture
def checkpoint(model: RewardModel, tmp_path: Path) -> Path:
    folder = Settings(home=tmp_path).store / "run-7" / "step-20-attempt-1"
    model.save(folder / "model")
    return folder


def scored(rewards: Rewards, home: Path, checkpoints: dict[str, Path], *texts: str) -> Scores:
    settings = Settings(home=home, model_root=home)
    with (
        reward_resources(rewards, settings, CPU, "float32", checkpoints) as resources,
        RewardScorer(rewards, resources) as scorer,
    ):
        return scorer.score([[Sample(text, 1, ITEM) for text in texts]])


@pytest.mark.slow
def test_its_logit_is_the_score_also_beside_a_function_that_is_only_measured(
    model: RewardModel, checkpoint: Path, tmp_path: Path
) -> None:
    right = Correctness(name="right", extract="whole", weight=0.0)
    rewards = Rewards(functions=[LearnedReward(name="learned", source=SOURCE, weight=2.0), right])
    scores = scored(rewards, tmp_path, {SOURCE: checkpoint}, *TEXTS)
    assert ITEM.messages is not None
    expected = model.scores([model.token_ids(ITEM.messages, text) for text in TEXTS])
    assert raws(scores) == pytest.approx(expected, abs=1e-5)
    assert [parts[1].raw for parts in scores.components] == [1.0, 0.0, 0.0]
    assert scores.total.tolist() == pytest.approx([2 * score for score in expected], abs=1e-5)


def test_a_model_below_the_root_serves_too(checkpoint: Path, tmp_path: Path) -> None:
    learned = LearnedReward(name="learned", source="local:checkpoints/run-7/step-20-attempt-1/model")
    assert raws(scored(Rewards(functions=[learned]), tmp_path, {}, "4")) != [None]


def test_a_text_beyond_its_context_stays_unscored(checkpoint: Path, tmp_path: Path) -> None:
    rewards = Rewards(functions=[LearnedReward(name="learned", source=SOURCE)], max_unscored=0.5)
    scores = scored(rewards, tmp_path, {SOURCE: checkpoint}, "4", "1 " * 600)
    assert raws(scores)[0] is not None
    assert "reads at most 512" in error(scores, 1)


def test_a_score_that_is_no_number_stays_unscored(checkpoint: Path, tmp_path: Path) -> None:
    broken = Rewards(functions=[LearnedReward(name="learned", source=SOURCE)], max_unscored=1.0)
    settings = Settings(home=tmp_path)
    with reward_resources(broken, settings, CPU, "float32", {SOURCE: checkpoint}) as resources:
        head = resources.models["learned"].model.get_parameter("score.weight")
        torch.nn.init.constant_(head, torch.nan)
        with RewardScorer(broken, resources) as scorer:
            scores = scorer.score([[Sample("4", 1, ITEM)]])
    assert error(scores).startswith("reward_value: the reward model gave nan")


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        (SOURCE, "model_unavailable", "cannot reach that checkpoint"),
        (TINY_ARITHMETIC, "reward_model_unavailable", "not a sequence classifier"),
        ("local:nothing", "model_unavailable", "no model directory"),
    ],
)
def test_a_model_that_cannot_score_fails_the_run_with_its_reason(
    tmp_path: Path, source: str, code: str, says: str
) -> None:
    with pytest.raises(RunFailure, match=says, check=lambda one: one.code == code):
        scored(Rewards(functions=[LearnedReward(name="learned", source=source)]), tmp_path, {}, "4")
