"""Python functions as rewards: what they are given, what they may return, and which may be named."""

from pathlib import Path

import pytest
from scorers import error, raws

from backend.contract.base import Json
from backend.contract.reward import Correctness, Gate, Python, Rewards
from worker.rewards.resources import RewardResources, RewardUnavailable
from worker.rewards.scoring import RewardScorer, Sample, Scores
from worker.tasks.items import Item

pytestmark = pytest.mark.slow  # each starts a process

TURNS = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "And 2 + 2?"})
COLUMNS: dict[str, Json] = {"prompt": "And 2 + 2?", "level": 3, "tags": ["sum", "easy"]}
CHAT = Item("dataset:1", "And 2 + 2?", TURNS, "4", {"kind": "exact"}, COLUMNS)
RAW = Item("dataset:2", "2 + 2 = ", None, "4", {"kind": "exact"}, {"answer": 4})


def given(folder: Path, body: str, item: Item = CHAT, texts: tuple[str, ...] = ("4",)) -> Scores:
    """Scores by a function of this body, over the `prompts`, `completions` and `columns` that it is given."""
    (folder / "my_rewards.py").write_text(f"import sys\ndef f(prompts, completions, **columns):\n    {body}\n")
    return scores(folder, item, texts)


def scores(folder: Path, item: Item = CHAT, texts: tuple[str, ...] = ("4",)) -> Scores:
    rewards = Rewards(functions=[Python(name="mine", function="my_rewards:f")], max_unscored=1.0)
    resources = RewardResources(functions=frozenset({"my_rewards:f"}), path=folder)
    with RewardScorer(rewards, resources) as scorer:
        return scorer.score([[Sample(text, 1, item, ()) for text in texts]])


@pytest.mark.parametrize(
    ("item", "completion", "columns"),
    [
        (CHAT, [{"role": "assistant", "content": "4"}], {"level": [3], "tags": [["sum", "easy"]]}),
        (RAW, "4", {"answer": [4]}),
    ],
    ids=["chat", "raw"],
)
def test_it_is_called_as_trl_calls_it(tmp_path: Path, item: Item, completion: object, columns: dict[str, Json]) -> None:
    prompt = list(item.messages) if item.messages else item.question
    expected = ([prompt], [completion], {"completion_ids": [[]]} | columns)
    assert raws(given(tmp_path, f"return [float((prompts, completions, columns) == {expected!r})]", item)) == [1.0]


def test_one_completion_at_a_time_so_that_a_failure_is_its_own(tmp_path: Path) -> None:
    scored = given(tmp_path, "return [len(completions) / (completions[0][0]['content'] != 'x')]", texts=("a", "x", "b"))
    assert raws(scored) == [1.0, None, 1.0]
    assert error(scored, 1).startswith("reward_error: ZeroDivisionError: division by zero")
    assert "my_rewards.py" in error(scored, 1)


def test_it_adds_up_with_the_built_in_rewards_and_opens_their_gates(tmp_path: Path) -> None:
    body = "return (0.5 * len(completions[0][0]['content']),)"
    (tmp_path / "my_rewards.py").write_text(f"def f(completions, **_):\n    {body}\n")
    mine = Python(name="mine", function="my_rewards:f", weight=2.0)
    right = Correctness(name="right", extract="whole", weight=10.0)
    rewards = Rewards(functions=[right, mine], gates=[Gate(reward="right", requires="mine", at_least=1.0)])
    with RewardScorer(rewards, RewardResources(functions=frozenset({"my_rewards:f"}), path=tmp_path)) as scorer:
        scored = scorer.score([[Sample(text, 1, CHAT) for text in ("4", " 4", "four")]])
    assert scored.total.tolist() == [1.0, 12.0, 4.0]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "ModuleNotFoundError: No module named 'my_rewards'"),
        ("", "AttributeError: module 'my_rewards' has no attribute 'f'"),
        ("f = 1", "is not a function but a value of type int"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_what_cannot_be_imported_fails_the_run_and_names_the_setting(
    tmp_path: Path, content: str | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "my_rewards.py").write_text(content)
    with pytest.raises(RewardUnavailable) as caught:
        scores(tmp_path)
    assert caught.value.code == "reward_unavailable"
    assert caught.value.message.startswith("The reward function my_rewards:f ")
    assert says in caught.value.message
    assert "GROUPSCOPE_REWARD_PATH" in caught.value.message
    assert "Traceback" in (caught.value.details or "")


def test_what_the_operator_did_not_allow_is_never_imported(tmp_path: Path) -> None:
    (tmp_path / "my_rewards.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\ndef f(**_):\n    return [1]\n")
    rewards = Rewards(functions=[Python(name="mine", function="my_rewards:f")])
    with pytest.raises(RewardUnavailable, match="GROUPSCOPE_REWARD_FUNCTIONS") as caught:
        RewardScorer(rewards, RewardResources(functions=frozenset({"my_rewards:g"}), path=tmp_path))
    assert "my_rewards:g" in caught.value.message
    assert not (tmp_path / "imported").exists()


def test_a_module_in_the_folder_hides_none_of_python_and_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError")
    (tmp_path / "worker.py").write_text("raise RuntimeError")
    assert raws(given(tmp_path, "import json, worker; return [len(json.dumps(worker.__name__))]")) == [8.0]
