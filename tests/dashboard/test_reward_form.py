"""Rewards that need something of a worker, in the form: what workers have is offered, and what is missing or wrong is said."""

import pytest
import streamlit as st
from acting import Actor
from on_screen import Open, draft_of, texts
from serving import Backend
from streamlit.testing.v1 import AppTest

from backend.contract.preference import RewardModelConfig
from backend.contract.protocol import ClaimRequest, WorkerInfo
from backend.contract.records import OwnReward, RewardFile
from dashboard.form import own_rewards

SHORT = RewardFile(
    name="short.py",
    functions=[
        OwnReward(
            function="short.py:reward",
            help="Few words score 1.",
            unit="completion",
            arguments={"most": 50, "share": 0.5, "strict": True, "word": "so"},
        ),
        OwnReward(function="short.py:reward_rare", help="", unit="group", arguments={}),
    ],
)
BROKEN = RewardFile(
    name="broken.py",
    error="broken.py, line 3: SyntaxError: invalid syntax\nTraceback (most …",
    passed_over={"lower": "line 7: lower takes neither completion"},
)
PATH = "rewards.functions.0"


def connect(backend: Backend, *files: RewardFile, **has: list[str]) -> None:
    info = {"name": "one", "device": "CPU", "store": "/s", "reward_files": list(files)}
    backend.client.ask(ClaimRequest(worker=WorkerInfo.model_validate(info | has)))
    st.cache_data.clear()


def with_reward(at: AppTest, kind: str = "python", **fields: object) -> AppTest:
    """The form after its only reward became this one."""
    draft_of(at).change({"rewards.functions": [{"kind": kind, "name": kind, "weight": 1.0, **fields}]})
    at.run()
    assert not at.exception
    return at


def with_python(at: AppTest, **fields: object) -> AppTest:
    return with_reward(at, **({"function": ""} | fields))


def offered(at: AppTest, field: str) -> list[str]:
    (box,) = [one for one in at.selectbox if str(one.key).startswith(f"{PATH}.{field}@")]
    return list(box.options)


def choose(at: AppTest, function: str) -> dict[str, object]:
    (box,) = [one for one in at.selectbox if str(one.key).startswith(f"{PATH}.function@")]
    box.select(function).run()
    assert not at.exception
    chosen = draft_of(at).get(PATH)
    assert isinstance(chosen, dict)
    return dict(chosen)


def test_a_chosen_function_brings_its_help_its_settings_as_fields_its_unit_and_its_name_which_follows_it(
    open_page: Open, backend: Backend
) -> None:
    connect(backend, SHORT)
    at = with_python(open_page("new-run"))
    assert choose(at, "short.py:reward") == {
        "kind": "python",
        "name": "short",
        "weight": 1.0,
        "function": "short.py:reward",
        "unit": "completion",
        "arguments": {"most": 50, "share": 0.5, "strict": True, "word": "so"},
    }
    assert "Few words score 1." in texts(at)
    kinds = {
        str(one.key).partition("@")[0].removeprefix(f"{PATH}.arguments."): type(one).__name__
        for one in [*at.number_input, *at.text_input, *at.checkbox, *at.toggle]
        if str(one.key).startswith(f"{PATH}.arguments.")
    }
    assert kinds.keys() == {"most", "share", "strict", "word"}
    assert choose(at, "short.py:reward_rare")["unit"] == "group"
    assert choose(at, "short.py:reward_rare")["arguments"] == {}

    assert choose(at, "short.py:reward")["name"] == "short"
    assert choose(at, "short.py:reward_rare")["name"] == "rare"

    with_python(at)
    (box,) = [one for one in at.selectbox if str(one.key).startswith(f"{PATH}.function@")]
    box.select(None).run()
    assert draft_of(at).get(f"{PATH}.name") == "python"
    assert choose(at, "short.py:reward")["name"] == "short"
    assert choose(with_python(at, name=""), "short.py:reward")["name"] == "short"
    assert choose(with_python(at, name="python-2"), "short.py:reward")["name"] == "short"

    for name in ("mine", "python_style"):
        assert choose(with_python(at, name=name), "short.py:reward")["name"] == name


def test_a_file_that_cannot_be_used_says_why_and_the_form_is_drawn_again_once_it_has_changed_and_not_before(
    open_page: Open, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(backend, SHORT, BROKEN)
    at = with_python(open_page("new-run"))
    assert "broken.py, line 3: SyntaxError: invalid syntax" in texts(at)
    assert "broken.py:lower is not offered: line 7: lower takes neither completion" in texts(at)
    assert "Traceback" not in texts(at)
    choose(at, "short.py:reward")
    assert "SyntaxError" not in texts(at)

    connect(backend, BROKEN)
    drawn: list[str] = []
    monkeypatch.setattr(own_rewards, "draw_again", lambda: drawn.append("again"))
    with_python(at)
    own_rewards._look([[BROKEN]])
    assert drawn == []
    connect(backend, SHORT)
    own_rewards._look([[BROKEN]])
    assert drawn == ["again"]
    at.run()
    assert "SyntaxError" not in texts(at)

    with_python(at, function="short.py:reward")
    watched: list[object] = []  # by the lab, so that the start beside it has the warnings
    monkeypatch.setattr(own_rewards, "_look", watched.append)
    at.session_state["part"] = "Before launch"
    at.run()
    assert watched == [[[SHORT]]]


def test_a_column_that_a_function_takes_and_the_data_lacks_is_said_at_it(open_page: Open, backend: Backend) -> None:
    taking = OwnReward(function="topics.py:reward", needs=["topic"])
    connect(backend, RewardFile(name="topics.py", functions=[taking]))
    at = with_python(open_page("new-run"), function="topics.py:reward")
    upload = backend.client.upload("x.jsonl", b'{"prompt": "a"}\n{"prompt": "b"}\n')
    data = {"kind": "dataset", "source": f"upload:{upload.id}", "answer_column": None, "template": "{prompt}"}
    draft_of(at).change({"task": {**data, "prompt_column": "prompt", "held_out": 0.5, "shares": {}}})
    at.run()
    said = "topics.py:reward takes topic, and the data has no such column; its columns are prompt"
    assert texts(at).count(said) == 2  # beside the form, and at the function


def test_what_a_connected_worker_has_is_offered_and_what_nobody_has_is_typed_and_said(
    open_page: Open, backend: Backend
) -> None:
    at = with_reward(open_page("new-run"), "judge", endpoint="lenient")
    assert any(str(one.key).startswith(f"{PATH}.endpoint@") for one in at.text_input)
    connect(backend, judges=["strict"], reward_functions=["a:b", "my:polite"])
    at.run()
    assert "lenient" in texts(at)
    assert "JUDGES" in texts(at)
    with_reward(at, "judge", endpoint="")
    assert offered(at, "endpoint") == ["strict"]
    with_python(at)
    assert offered(at, "function") == ["a:b", "my:polite"]


def test_finished_reward_models_are_offered_as_sources(open_page: Open, backend: Backend) -> None:
    config = RewardModelConfig.model_validate({"budget": {"steps": 2}}).model_dump(mode="json")
    actors = [Actor(backend.client, f"worker {place}") for place in range(2)]
    finished, _under_way = (backend.client.create_run(config).id for _ in actors)
    for actor in actors:
        actor.begin(0, "reward_model")
    actors[0].report(1, metrics={"loss": 0.5}, groups=[])
    actors[0].finish()
    assert offered(with_reward(open_page("new-run"), "reward_model", source=""), "source") == [f"run:{finished}@2"]
