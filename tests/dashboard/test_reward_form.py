"""Rewards that need something of a worker, in the form: what workers have is offered, and what nobody has is said."""

from acting import Actor
from on_screen import Open, texts
from serving import Backend
from streamlit.testing.v1 import AppTest

from backend.contract.preference import RewardModelConfig
from backend.contract.protocol import ClaimRequest, Report, WorkerInfo
from dashboard.form.draft import Draft


def with_reward(at: AppTest, function: dict[str, object]) -> AppTest:
    """The form after its only reward became this one."""
    draft: Draft = at.session_state["draft"]
    draft.change({"rewards.functions": [function]})
    return at.run()


def offered(at: AppTest, path: str) -> list[str]:
    (box,) = [one for one in at.selectbox if str(one.key).startswith(f"{path}@")]
    return list(box.options)


def connect(backend: Backend) -> None:
    info = WorkerInfo(name="one", device="CPU", store="/s", judges=["strict"], reward_functions=["a:b", "my:polite"])
    backend.client.ask(ClaimRequest(worker=info))


def test_what_a_connected_worker_has_is_offered(open_page: Open, backend: Backend) -> None:
    connect(backend)
    at = open_page("new-run")
    with_reward(at, {"kind": "judge", "name": "kind", "weight": 1.0, "endpoint": ""})
    assert not at.exception
    assert offered(at, "rewards.functions.0.endpoint") == ["strict"]
    with_reward(at, {"kind": "python", "name": "polite", "weight": 1.0, "function": ""})
    assert not at.exception
    assert offered(at, "rewards.functions.0.function") == ["a:b", "my:polite"]


def test_without_a_worker_the_name_is_typed_and_what_nobody_has_is_said(open_page: Open, backend: Backend) -> None:
    at = with_reward(open_page("new-run"), {"kind": "judge", "name": "kind", "weight": 1.0, "endpoint": "lenient"})
    assert not at.exception
    assert any(str(one.key).startswith("rewards.functions.0.endpoint@") for one in at.text_input)
    connect(backend)
    at.run()
    assert "lenient" in texts(at)
    assert "JUDGES" in texts(at)


def test_finished_reward_models_are_offered_as_sources(open_page: Open, backend: Backend) -> None:
    config = RewardModelConfig.model_validate({"budget": {"steps": 2}}).model_dump(mode="json")
    actors = [Actor(backend.client, f"worker {place}") for place in range(2)]
    finished, _under_way = (backend.client.create_run(config).id for _ in actors)
    for actor in actors:
        actor.begin(0, "reward_model")
    sent = Report(attempt=1, seq=0, step=1, metrics={"loss": 0.5})
    backend.client.report(finished, sent)
    actors[0].finish("finished")
    learned: dict[str, object] = {"kind": "reward_model", "name": "learned", "weight": 1.0, "source": ""}
    at = with_reward(open_page("new-run"), learned)
    assert not at.exception
    assert offered(at, "rewards.functions.0.source") == [f"run:{finished}@2"]
