"""A function of one's own is called with a group as TRL's trainer calls it: recorded from a real one, name for name, in order."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from worker_models import random_policy

from backend.contract.reward import Python, Rewards
from worker.rewards.resources import RewardResources
from worker.rewards.scoring import RewardScorer, Sample
from worker.tasks.items import Item

pytestmark = pytest.mark.slow  # importing TRL takes seconds

GROUP = 4
TRLS_OWN = ("trainer_state", "log_extra", "log_metric")  # objects of its trainer
CHATS = [
    {"prompt": [{"role": "user", "content": f"{n} + {n}"}], "solution": str(2 * n), "level": n, "tags": ["sum", str(n)]}
    for n in (1, 2)
]
RAWS = [{"prompt": f"{n} + {n} = ", "answer": 2 * n} for n in (1, 2)]


def trls_calls(rows: list[dict[str, Any]], folder: Path) -> dict[str, list[Any]]:
    """What TRL's trainer gives a reward function in a step over the rows."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    calls: list[dict[str, Any]] = []

    def record(**given: Any) -> list[float]:
        calls.append({name: copy.deepcopy(value) for name, value in given.items() if name not in TRLS_OWN})
        return [0.0] * len(given["completions"])

    quiet = {"use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no", "disable_tqdm": True}
    sizes = {"max_completion_length": 6, "per_device_train_batch_size": GROUP * len(rows), "num_generations": GROUP}
    policy = random_policy(300, dtype=torch.float32)
    trainer = GRPOTrainer(
        model=policy.model,
        reward_funcs=record,
        args=GRPOConfig(output_dir=str(folder), max_steps=1, **quiet, **sizes),
        train_dataset=Dataset.from_list(rows),
        processing_class=policy.tokenizer,
    )
    trainer.train()
    [call] = calls
    return call


@pytest.mark.parametrize("rows", [CHATS, RAWS], ids=["chat", "raw"])
def test_a_group_gets_what_trl_gives(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    theirs = trls_calls(rows, tmp_path / "trl")
    folder, seen = tmp_path / "rewards", tmp_path / "seen.jsonl"
    folder.mkdir()
    (folder / "own.py").write_text(
        "import json\ndef reward(**given):\n"
        f"    with open({str(seen)!r}, 'a') as file:\n"
        "        file.write(json.dumps(given) + '\\n')\n"
        "    return [0] * len(given['completions'])\n"
    )
    rewards = Rewards(functions=[Python(name="own", function="own.py:reward", unit="group")])
    with RewardScorer(rewards, RewardResources(own=folder)) as scorer:
        scorer.score([[sample(theirs, row * GROUP + at) for at in range(GROUP)] for row in range(len(rows))])
    calls = [json.loads(line) for line in seen.read_text().splitlines()]
    assert len(calls) == len(rows)
    for group, call in enumerate(calls):
        of_group = slice(group * GROUP, (group + 1) * GROUP)
        assert list(call.items()) == [(name, values[of_group]) for name, values in theirs.items()]


def sample(theirs: dict[str, list[Any]], at: int) -> Sample:
    """One completion of TRL's, as our rollout would hand it on."""
    prompt, said = theirs["prompts"][at], theirs["completions"][at]
    names = [name for name in theirs if name not in ("prompts", "completions", "completion_ids")]
    columns = {name: theirs[name][at] for name in names}
    chat = None if isinstance(prompt, str) else tuple(prompt)
    item = Item(f"dataset:{prompt}", str(prompt), chat, None, {"kind": "exact"}, {"prompt": prompt, **columns})
    ids = theirs["completion_ids"][at]
    return Sample(said if isinstance(said, str) else said[0]["content"], len(ids), item, ids)
