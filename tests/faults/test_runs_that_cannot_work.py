"""A run that cannot work fails with a reason that a person understands, and the worker takes the next one."""

import json
from collections.abc import Iterator

import pytest
from processes import Site, assert_failed, tiny_run

pytestmark = pytest.mark.slow

FOREVER = {"name": "slow", "kind": "pattern", "syntax": "regex", "patterns": ["([^!]+)+!"], "weight": 1.0}
WHOLE = {"prompts_per_step": 2, "group_size": 4}  # an answer is as long as the model makes it


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One worker, which meets all of them."""
    with Site(tmp_path_factory.mktemp("site") / "home") as one:
        one.backend()
        one.worker()
        yield one


# What cannot work: the code of its error, what the message says, and the part of the configuration.
WRONG: dict[str, tuple[str, str, dict[str, object]]] = {
    "model": ("model_unavailable", "nobody/no-such-model", {"model": {"source": "nobody/no-such-model"}}),
    "local model": ("model_unavailable", "model root", {"model": {"source": "local:nothing/here"}}),
    "gym": ("task_unknown", "basic_arithmetic", {"task": {"kind": "reasoning_gym", "dataset": "basic_arithmetics"}}),
    "data": ("dataset_unreachable", "nobody/no-data", {"task": {"kind": "dataset", "source": "hub:nobody/no-data"}}),
    "prompt": ("prompts_unfit", "model's context (512)", {"task": {"kind": "dataset", "source": "upload:1"}}),
    "reward": ("reward_errors", "slow", {"sampling": WHOLE, "rewards": {"functions": [FOREVER], "time_limit": 0.3}}),
    "adapters": ("lora_target_modules", "all-linear", {"model": {"lora": {"target_modules": ["no_such_layer"]}}}),
}


@pytest.fixture(scope="module")
def runs(site: Site) -> dict[str, int]:
    """One of each in the queue, and after them one that can work."""
    lines = [json.dumps({"prompt": f"{number} " + "Calculate 1 + 1 " * 120, "answer": "2"}) for number in range(20)]
    assert site.client.upload("long.jsonl", "\n".join(lines).encode()).id == 1
    configs = {name: tiny_run(2, **part) for name, (_, _, part) in WRONG.items()} | {"plain": tiny_run(1, every=0)}
    return {name: site.client.create_run(config).id for name, config in configs.items()}


@pytest.mark.parametrize("name", WRONG)
def test_it_fails_once_with_its_reason(site: Site, runs: dict[str, int], name: str) -> None:
    code, says, _ = WRONG[name]
    ended = site.wait_for_end(runs[name])
    assert "Traceback" not in assert_failed(ended, code, says)
    assert ended.attempt == 1  # a mistake would be made again: it is not tried again


def test_after_all_of_them_the_next_run_trains(site: Site, runs: dict[str, int]) -> None:
    assert site.wait_for_end(runs["plain"]).status == "finished"


def test_a_person_who_tries_a_checkpoint_is_served_between_two_steps_of_a_busy_worker(site: Site) -> None:
    run = site.client.create_run(tiny_run(300, every=2))
    site.wait_for_step(run.id, 3)
    asked = {"prompts": ["Calculate 2 + 2 x 6"], "answer": "14", "group_size": 4, "rewards": {}}
    tried = site.run_to_end({"kind": "sample", "model": {"source": f"run:{run.id}@2"}, **asked})
    assert tried.status == "finished"
    assert site.client.run(run.id).status == "running"
    group = site.client.group(site.client.groups(tried.id).items[0].id)
    assert [completion.reward is not None for completion in group.completions] == [True] * 4
    site.client.command(run.id, "stop")
