"""A judge and a reward model in real runs: what they need reaches the worker, and secrets reach nobody else."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from judge_service import Service, hang, says
from processes import Site, assert_failed, tiny_run, wait_until

pytestmark = pytest.mark.slow

KEY = "sk-a-secret-of-the-operator"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service.serving() as one:
        yield one


@pytest.fixture
def site(tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    (tmp_path / "spy.py").write_text(
        "import os\ndef spy(completions, **_):\n    return [float('sk-a' in str(dict(os.environ)))]\n"
    )
    judge = {"url": f"{service.url}/v1", "model": "judge-1", "api_key_env": "JUDGE_KEY", "requests_per_minute": 1e6}
    how = {"judges": json.dumps({"strict": judge}), "reward_functions": "spy:spy", "reward_path": tmp_path}
    monkeypatch.setenv("JUDGE_KEY", KEY)
    with Site(tmp_path / "home", **how) as one:
        yield one


def test_a_reward_model_and_a_judge_score_beside_correctness_that_is_only_measured(
    site: Site, service: Service
) -> None:
    service.act = says('{"score": 10}')
    site.backend()
    site.worker()
    pairs = {"kind": "sampled", "prompts": 8, "held_out_prompts": 4, "group_size": 4}
    budget = {"steps": 1, "pairs_per_step": 2, "eval_every": 0}
    trained = site.run_to_end({"kind": "reward_model", "pairs": pairs, "budget": budget})
    assert trained.error is None
    functions = [
        {"name": "learned", "kind": "reward_model", "source": f"run:{trained.id}@1"},
        {"name": "kind", "kind": "judge", "endpoint": "strict", "weight": 0.5},
        {"name": "right", "kind": "correctness", "weight": 0.0},
        {"name": "spy", "kind": "python", "function": "spy:spy", "weight": 1.0},
    ]
    run = site.run_to_end(tiny_run(1, every=0, rewards={"functions": functions}))
    assert run.error is None
    groups = [group for group in site.client.groups(run.id).items if group.state != "probe"]
    completions = [one for group in groups for one in site.client.group(group.id).completions]
    assert len(completions) == 8
    for completion in completions:
        learned, kind, right, spy = completion.rewards
        assert learned.raw is not None
        assert kind.raw == 1.0
        assert right.raw in (0.0, 1.0)
        assert spy.raw == 0.0  # the child sees no key
        assert completion.reward == pytest.approx(learned.raw + 0.5)
    assert all(headers["Authorization"] == f"Bearer {KEY}" for headers in service.headers)
    assert KEY not in (site.home / "worker.main.log").read_text()


@pytest.mark.thorough
def test_a_judge_without_a_verdict_fails_the_run_in_words_and_the_next_run_trains(site: Site, service: Service) -> None:
    service.act = says(f"I will not rate that, {KEY}")
    site.backend()
    site.worker()
    judged = [{"name": "kind", "kind": "judge", "endpoint": "strict"}]
    run = site.client.create_run(tiny_run(1, every=0, rewards={"functions": judged}))
    plain = site.client.create_run(tiny_run(1, every=0))
    says_no = "the judge 'strict' holds no number; it replied: I will not rate that, [key]"
    assert_failed(site.wait_for_end(run.id), "reward_errors", says_no)
    assert site.wait_for_end(plain.id).status == "finished"


@pytest.mark.thorough
def test_a_worker_told_to_end_does_not_wait_for_a_judge(site: Site, service: Service) -> None:
    service.act = hang
    site.backend()
    worker = site.worker()
    judged = [{"name": "kind", "kind": "judge", "endpoint": "strict"}]
    run = site.client.create_run(tiny_run(1, every=0, rewards={"functions": judged}))
    wait_until(lambda: service.bodies, "the judge is asked")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    assert (site.client.run(run.id).status, site.client.run(run.id).failures) == ("queued", 0)
