"""The script that is made of a configuration, run under TRL as it stands: it trains, and its run stands beside ours."""

import json
import runpy
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import recorded
from acting import as_submitted
from importing import groups_of
from serving import TOKEN, Backend

from backend.contract.base import Json
from backend.contract.grpo import GrpoConfig
from backend.contract.records import OwnReward, RewardFile, RewardText
from backend.contract.trl_parser import read_trl
from backend.contract.trl_script import script_of, trl_script

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

OWN = "def short_reward(completions, answer, unit=10):\n    return [1 / (1 + len(text[0]['content']) / unit) for text in completions]\n"
SHORT = "short.py:short_reward"

Run = Callable[[str], None]


@pytest.fixture
def run(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a script in a folder of its own. It is this process that runs it: another would import TRL anew."""
    for name, value in {"HOME": str(backend.home), "TOKEN": TOKEN, "BACKEND_URL": backend.url}.items():
        monkeypatch.setenv(f"GROUPSCOPE_{name}", value)
    monkeypatch.chdir(tmp_path)

    def run_script(script: str) -> None:
        Path("script.py").write_text(script, encoding="utf-8")
        runpy.run_path("script.py", run_name="__main__")["parts"].close()

    return run_script


def config_with(**parts: Json) -> dict[str, Json]:
    small: dict[str, Json] = {
        "sampling": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 24},
        "budget": {"steps": 2, "eval_every": 2, "eval_items": 4, "checkpoint_every": 0, "seed": 3},
        "algorithm": {"updates_per_batch": 2},
        "optimizer": {"schedule": "cosine", "micro_batch_tokens": 200},
    }
    return GrpoConfig.model_validate(small | parts).model_dump(mode="json")


def test_the_script_trains_as_it_stands_and_its_groups_are_here(backend: Backend, tmp_path: Path, run: Run) -> None:
    rewards: Json = {
        "functions": [
            {"kind": "correctness", "name": "correctness", "weight": 0.9},
            {"kind": "format", "name": "format", "weight": 0.1},
            {"kind": "length", "name": "length", "weight": 0, "maximum": 12},
        ],
        "gates": [{"reward": "correctness", "requires": "format"}],
    }
    run(trl_script(config_with(rewards=rewards), 'a "run"\n'))
    [made] = backend.client.runs(kind="recorded").items
    assert (made.name, made.status, made.progress.step) == ('a "run"\n', "finished", 4)  # TRL counts updates
    groups = [group for step in (0, 2) for group in groups_of(backend, made.id, step)]
    assert len(groups) == 2 * 2
    for group in groups:
        assert len(group.completions) == 4
        for one in group.completions:
            raw = {score.name: score.raw for score in one.rewards}
            assert one.reward == pytest.approx(0.9 * raw["correctness"] + 0.1 * raw["format"])
            assert raw["length"] is not None
            assert group.answer is not None
    assert "eval/rewards/correctness/mean" in backend.client.metrics(made.id).series
    assert (tmp_path / "trl-output" / "model.safetensors").exists()


@pytest.mark.thorough
def test_a_runs_own_reward_and_upload_go_with_the_script(backend: Backend, tmp_path: Path, run: Run) -> None:
    rows = "\n".join(json.dumps({"prompt": f"Say {one}", "answer": str(one)}) for one in range(8)).encode()
    upload = backend.client.upload("rows.jsonl", rows)
    function: Json = {"kind": "python", "name": "short", "function": SHORT, "unit": "group", "arguments": {"unit": 5}}
    task: Json = {"kind": "dataset", "source": f"upload:{upload.id}", "prompt_format": "chat"}
    model: Json = {"lora": {"rank": 2}}
    budget: Json = {"steps": 1, "eval_every": 0, "checkpoint_every": 0}
    config = config_with(task=task, rewards={"functions": [function]}, model=model, budget=budget)
    ours = backend.client.create_run(config, name="ours").id
    offered = RewardFile(name="short.py", functions=[OwnReward(function=SHORT)])
    worker = recorded.WORKER.model_copy(update={"reward_files": [offered]})
    claim = backend.client.ask(recorded.p.ClaimRequest(worker=worker)).claim
    assert claim is not None
    text = RewardText(name="short.py", sha256=sha256(OWN.encode()).hexdigest(), text=OWN)
    backend.client.start(ours, recorded.p.Start(attempt=claim.attempt, from_step=0, device="cpu", reward_texts=[text]))
    script = script_of(backend.client, ours)
    assert read_trl(script, {}) == (as_submitted(config), [])
    run(script)
    [made] = backend.client.runs(kind="recorded").items
    assert (made.name, made.status) == ("ours", "finished")
    for group in groups_of(backend, made.id, 0):
        for each in group.completions:
            assert each.reward == pytest.approx(1 / (1 + len(each.text) / 5))
    assert (tmp_path / "trl-output" / "adapter_model.safetensors").exists()
