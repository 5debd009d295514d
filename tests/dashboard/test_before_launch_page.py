"""Before launch on the New run page: what is asked, what is waited for, what is shown, and a form that never changes."""

from typing import cast

import pytest
import recorded
from acting import as_submitted
from on_screen import Open, draft_of, press, texts
from serving import Backend, one_for_all
from streamlit.testing.v1 import AppTest

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.records import Progress, Run, RunError
from dashboard.form.preflight import parts_html
from dashboard.format import size
from dashboard.stored import get

SCRIPT = "<script>alert('script')</script>"

backend = pytest.fixture(one_for_all)  # every sample is claimed by the test that asked for it


def asked(open_page: Open, backend: Backend) -> tuple[AppTest, Run]:
    """The page after a press of the button, and the sample that it queued."""
    at = open_page("new-run")
    return at, sampled(at, backend)


def sampled(at: AppTest, backend: Backend) -> Run:
    """The sample that a press of the button queues."""
    press(at, "Sample before launch")
    return backend.client.run(cast(int, draft_of(at).sample_id))


def answer(backend: Backend, sample: Run, *rewards: list[float | None], text: str = "") -> None:
    """What a worker reports: a group for each list of rewards."""
    claim = recorded.claim(backend.client, sample.id, kind="sample")
    groups = [
        recorded.group_of(place, each, texts=[text] * len(each) if text else None) for place, each in enumerate(rewards)
    ]
    backend.client.report(sample.id, p.Report(attempt=claim.attempt, seq=0, step=0, groups=groups, metrics={}))
    recorded.finish(backend.client, sample.id, claim)


def answered(open_page: Open, backend: Backend, *rewards: list[float | None], text: str = "") -> AppTest:
    """The page once its sample has come back with these rewards."""
    at, sample = asked(open_page, backend)
    answer(backend, sample, *rewards, text=text)
    at.run()
    assert not at.exception
    return at


def loaded_again(open_page: Open, **query: object) -> AppTest:
    """The page at that address in a session that has never seen it."""
    at = open_page("new-run")
    del at.session_state["draft"]
    for name, value in query.items():
        at.query_params[name] = str(value)
    at.session_state["part"] = "Before launch"
    at.run()
    assert not at.exception
    return at


def test_the_sample_asks_what_the_form_says_and_brings_the_form_along_to_a_page_that_is_loaded_again(
    open_page: Open, backend: Backend
) -> None:
    at = open_page("new-run", recipe="rloo")
    for path, number in (("sampling.group_size", 20), ("budget.seed", 11), ("budget.steps", 77)):
        at.number_input(key=draft_of(at).key(path)).set_value(number).run()
    at.text_input(key=draft_of(at).key("name")).set_value("mine").run()
    before = dict(draft_of(at).config)
    assert before != draft_of(at).kept
    sample = sampled(at, backend)
    config = sample.config
    assert (config["task"], config["rewards"]) == (before["task"], get(as_submitted(before), "rewards"))
    assert (config["algorithm"], config["seed"]) == (before["algorithm"], 11)
    assert (config["task_prompts"], config["group_size"]) == (4, 20)  # enough for the form's own group size
    assert config["launch"] == before == draft_of(at).config == draft_of(at).kept
    assert at.query_params["sample"] == str(sample.id)
    assert at.query_params["part"] == "Before launch"

    answer(backend, sample, [1.0, 0.1] * 8)
    again = loaded_again(open_page, sample=sample.id, recipe="rloo")
    assert draft_of(again).config == before
    assert draft_of(again).name == "mine"
    assert "8 of 16 completions right" in texts(again)
    again.run()  # the recipe in the address fills no form that is filled
    assert draft_of(again).get("budget.steps") == 77


def test_while_it_works_it_says_how_far_it_is_and_it_can_be_cancelled(open_page: Open, backend: Backend) -> None:
    at, sample = asked(open_page, backend)
    assert "queued" in str(at.get("progress")[0].proto.text)  # type: ignore[attr-defined]
    claim = recorded.claim(backend.client, sample.id, kind="sample")
    beat = Progress(total_steps=1, phase="rollout", done=16, total=64)
    backend.client.heartbeat(sample.id, p.Heartbeat(attempt=claim.attempt, progress=beat, worker="recorder"))
    at.run()
    progress = at.get("progress")[0].proto  # type: ignore[attr-defined]
    assert "sampling 16 of 64 completions" in progress.text
    assert progress.value == 25
    press(at, "Cancel")
    assert backend.client.run(sample.id).requested == "stop"
    backend.client.finish(sample.id, p.Finish(attempt=claim.attempt, outcome="stopped"))
    at.run()
    assert "This sample was cancelled. The form is as it was." in texts(at)


def test_a_sample_that_no_worker_can_take_says_what_is_missing_until_it_is_cancelled(
    open_page: Open, backend: Backend
) -> None:
    assert backend.client.ask(p.ClaimRequest(worker=recorded.WORKER)).claim is None
    judged: Json = {"kind": "judge", "name": "judge", "endpoint": "our-judge"}
    config: Json = {"kind": "sample", "task": {"kind": "arithmetic"}, "rewards": {"functions": [judged]}}
    sample = backend.client.create_run(config)
    at = loaded_again(open_page, sample=sample.id)
    said = str(at.get("progress")[0].proto.text).replace("\\", "")  # type: ignore[attr-defined]
    assert "no connected worker has the judge our-judge: the run waits until one has" in said
    press(at, "Cancel")
    assert backend.client.run(sample.id).status == "stopped"


def test_a_finished_sample_shows_rate_forecast_and_groups_the_preflight_counts_with_it_and_changes_since_are_said(
    open_page: Open, backend: Backend
) -> None:
    at = answered(open_page, backend, [1.0] * 12 + [0.1] * 4, [0.1] * 16)
    said = texts(at)
    assert "12 of 32 completions right (38 %) · 2 groups: 1 live, 1 dead" in said
    assert "At group size 8 about 52 % of the groups will be dead" in said
    assert "measured by the rewards on 2 prompts, success rate 0.375" in said
    assert "Each completion is compared with its own group" in said
    sample_id = cast(int, draft_of(at).sample_id)
    [equal] = backend.client.groups(sample_id, state="zero_variance").items
    dead = loaded_again(open_page, sample=sample_id, group=equal.id)
    assert "**Dead:** all 16 scored completions got 0.100" in texts(dead)

    draft_of(at).change({"sampling.temperature": 0.5, "task.high": 12})
    at.run()
    assert "The form's task and decoding changed after this sample" in texts(at)
    assert "unknown until the model's answers are sampled: **Sample before launch**" in texts(at)


def test_the_panel_counts_dead_groups_by_the_rewards_as_the_lab_does(open_page: Open, backend: Backend) -> None:
    at = answered(open_page, backend, [0.1] * 8 + [0.0] * 8)  # none is right, but their rewards differ
    words = "but their rewards differ: all rewards will be equal in less than 1 % of the groups of 8"
    assert f"No completion counts as right, {words}" in texts(at)
    at.segmented_control(key="part").set_value("Form").run()
    said = texts(at)
    assert "| G = 2 | G = 4 | **G = 8** | G = 16 |" in said
    assert "| 47 % | 8 % | **< 1 %** | < 1 % |" in said


def test_a_reward_that_raises_and_a_hostile_completion_are_shown_as_text_and_fewer_than_16_without_a_forecast(
    open_page: Open, backend: Backend
) -> None:
    at = answered(open_page, backend, [None] * 4 + [1.0] * 12, text=SCRIPT)
    said = texts(at)
    assert (
        "Rewards failed on some of the 16 completions: correctness on 4. The first error: Traceback: the verifier gave up"
        in said
    )
    assert "A run fails if more than 20 % are unscored; this one would fail." in said
    assert "appear here once a prompt has at least 16 scored completions" in said
    html = "".join(str(element.proto.body) for element in at.get("html"))  # type: ignore[attr-defined]
    assert "&lt;script&gt;" in html
    assert SCRIPT not in html


def test_a_sample_that_failed_says_why_and_that_a_run_would_fail_too(open_page: Open, backend: Backend) -> None:
    at, sample = asked(open_page, backend)
    error = RunError(code="reward_contract", message=f"the reward {SCRIPT} returned a str", details="line 7")
    recorded.fail(backend.client, sample.id, recorded.claim(backend.client, sample.id, kind="sample"), error)
    at.run()
    assert "a run of this form would fail in the same way" in texts(at)
    assert f"the reward {SCRIPT} returned a str" in [code.value for code in at.code]


def test_a_form_that_cannot_be_sampled_says_what_is_wrong_and_queues_nothing(open_page: Open) -> None:
    at = open_page("new-run")
    draft_of(at).change({"sampling.temperature": -1.0})
    at.run()
    press(at, "Sample before launch")
    assert draft_of(at).sample_id is None
    assert "decoding.temperature" in texts(at)
    assert draft_of(at).get("sampling.temperature") == -1.0


def test_where_no_reward_says_what_is_right_a_person_does_and_the_form_keeps_it(
    open_page: Open, backend: Backend
) -> None:
    at = open_page("new-run")
    draft_of(at).change({"rewards.functions": [{"kind": "format", "name": "format", "weight": 1, "tags": ["answer"]}]})
    at.run()
    answer(backend, sampled(at, backend), [1.0] * 4 + [0.5] * 12)
    at.run()
    assert "4 of 16 completions right" in texts(at)
    next(one for one in at.number_input if str(one.key).startswith("before-launch-threshold")).set_value(0.5).run()
    assert "16 of 16 completions right" in texts(at)
    at.segmented_control(key="part").set_value("Form").run()
    at.text_input(key=draft_of(at).key("name")).set_value("mine").run()
    assert "measured by the rewards on 1 prompt, success rate 1.00" in texts(at)
    at.segmented_control(key="part").set_value("Before launch").run()
    assert "16 of 16 completions right" in texts(at)


def test_parts_are_drawn_largest_first_a_strange_name_is_escaped_and_without_parts_there_is_no_bar() -> None:
    html = parts_html({"weights": 2**20, SCRIPT: 3 * 2**20, "cache": 0}, size, f"advice {SCRIPT}")
    assert html.index("3.0 MiB") < html.index("1.0 MiB")
    assert "75 %" in html
    assert "KV cache" not in html
    assert "<script>" not in html
    assert parts_html({}, size, "") == ""

    def page() -> None:
        from dashboard.form.preflight import show_parts

        show_parts({}, str, "")

    assert not AppTest.from_function(page).run().exception
