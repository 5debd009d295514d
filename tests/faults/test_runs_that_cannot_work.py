"""A run that cannot work fails with a reason that a person understands, and the worker takes the next one."""

import json
from collections.abc import Callable, Iterator

import pytest
from processes import Site, error_of, tiny_run

pytestmark = pytest.mark.slow

FOREVER = {"name": "slow", "kind": "pattern", "syntax": "regex", "patterns": ["([^!]+)+!"], "weight": 1.0}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One worker, which meets all of them."""
    with Site(tmp_path_factory.mktemp("site") / "home") as one:
        one.backend()
        one.worker()
        yield one


def missing_model(site: Site) -> dict[str, object]:
    return tiny_run(2, model={"source": "nobody/no-such-model"})


def missing_local_model(site: Site) -> dict[str, object]:
    return tiny_run(2, model={"source": "local:nothing/here"})


def unknown_generator(site: Site) -> dict[str, object]:
    return tiny_run(2, task={"kind": "reasoning_gym", "dataset": "basic_arithmetics"})


def unreachable_data_set(site: Site) -> dict[str, object]:
    return tiny_run(2, task={"kind": "dataset", "source": "hub:nobody/no-such-data"})


def prompt_beyond_the_context(site: Site) -> dict[str, object]:
    lines = [json.dumps({"prompt": f"{number} " + "Calculate 1 + 1 " * 120, "answer": "2"}) for number in range(20)]
    upload = site.client.upload("long.jsonl", "\n".join(lines).encode())
    return tiny_run(2, task={"kind": "dataset", "source": f"upload:{upload.id}"})


def reward_that_hangs(site: Site) -> dict[str, object]:
    whole = {"prompts_per_step": 2, "group_size": 4}  # an answer as long as the model makes it
    return tiny_run(2, sampling=whole, rewards={"functions": [FOREVER], "time_limit": 0.3})


def adapters_on_no_layer(site: Site) -> dict[str, object]:
    return tiny_run(2, model={"lora": {"target_modules": ["no_such_layer"]}})


# What cannot work -> its code, and what its message says.
WRONG: dict[Callable[[Site], dict[str, object]], tuple[str, str]] = {
    missing_model: ("model_unavailable", "nobody/no-such-model"),
    missing_local_model: ("model_unavailable", "model root"),
    unknown_generator: ("task_unknown", "basic_arithmetic"),
    unreachable_data_set: ("dataset_unreachable", "nobody/no-such-data"),
    prompt_beyond_the_context: ("prompt_too_long", "context of 512"),
    reward_that_hangs: ("reward_errors", "slow"),
    adapters_on_no_layer: ("lora_target_modules", "all-linear"),
}


@pytest.fixture(scope="module")
def runs(site: Site) -> dict[object, int]:
    """One of each in the queue, and after them one that can work."""
    configs = {configure: configure(site) for configure in WRONG} | {tiny_run: tiny_run(1, every=0)}
    return {configure: site.client.create_run(config).id for configure, config in configs.items()}


@pytest.mark.parametrize("configure", WRONG, ids=lambda configure: configure.__name__)
def test_it_fails_once_with_its_reason(
    site: Site, runs: dict[object, int], configure: Callable[[Site], dict[str, object]]
) -> None:
    code, says = WRONG[configure]
    ended = site.wait_for_end(runs[configure])
    assert ended.status == "failed"
    assert error_of(ended).code == code
    assert says in error_of(ended).message
    assert "Traceback" not in error_of(ended).message
    assert ended.attempt == 1  # a mistake would be made again: it is not tried again


def test_after_all_of_them_the_next_run_trains(site: Site, runs: dict[object, int]) -> None:
    assert site.wait_for_end(runs[tiny_run]).status == "finished"


def test_a_person_who_tries_a_checkpoint_is_served_between_two_steps_of_a_busy_worker(site: Site) -> None:
    run = site.client.create_run(tiny_run(300, every=2))
    site.wait_for_step(run.id, 3)
    tried = site.client.create_run(
        {
            "kind": "sample",
            "model": {"source": f"run:{run.id}@2"},
            "prompts": ["Calculate 2 + 2 x 6"],
            "answer": "14",
            "group_size": 4,
            "rewards": {},
        }
    )
    assert site.wait_for_end(tried.id).status == "finished"
    assert site.client.run(run.id).status == "running"
    group = site.client.group(site.client.groups(tried.id).items[0].id)
    assert [completion.reward is not None for completion in group.completions] == [True] * 4
    site.client.command(run.id, "stop")
