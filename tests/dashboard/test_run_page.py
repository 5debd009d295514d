"""A run's page against a real backend: its head, its charts, what is stored with it."""

from hashlib import sha256

import pytest
import recorded
from on_screen import Open, figures, shown
from serving import Backend
from streamlit.testing.v1 import AppTest

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.records import Progress, RewardFile, RunError
from dashboard.format import MISSING, number


def test_a_recorded_run_that_does_not_say_how_long_it_is_to_be_is_not_said_to_be_finishing(
    open_page: Open, backend: Backend
) -> None:
    run_id = backend.client.record(recorded.THEIRS).run_id
    backend.client.start(run_id, p.Start(attempt=1, from_step=0, device=""))
    for step in range(3):
        backend.client.report(
            run_id, p.Report(attempt=1, seq=step, step=step, metrics={"reward": 0.5}, seconds=2.0 * step)
        )
    shown_of_it = figures(open_page("run", id=run_id))
    assert (shown_of_it["Steps done"], shown_of_it["Time left"]) == ("3", MISSING)
    assert backend.client.run(run_id).progress.eta_seconds == 0.0


def test_the_header_says_how_the_run_stands_progress_inside_a_step_moves_and_its_end_leaves_a_clone_and_no_command(
    open_page: Open, backend: Backend, trained: int
) -> None:
    at = open_page("run", id=trained)
    assert at.text[0].value == "quick **one**"
    assert "running" in shown(at)
    assert figures(at)["Steps done"] == "3 of 100"
    assert figures(at)["Time left"].endswith(" s")
    assert figures(at)["Now"] == "sampling 96 / 16"
    assert figures(at)["Held-out pass@1"] == "52 %"
    assert figures(at)["Reward, last 10"] == number(backend.client.run(trained).recent_reward)

    progress = Progress(step=3, total_steps=100, phase="update", done=1, total=2)
    backend.client.heartbeat(trained, p.Heartbeat(attempt=1, worker="recorder", progress=progress))
    at.run()
    assert figures(at)["Now"] == "updating 1 / 2"  # more does not fit into the figure on a laptop

    backend.client.finish(trained, p.Finish(attempt=1, outcome="finished"))
    at = open_page("run", id=trained)
    assert not at.button
    assert [link.label for link in at.get("page_link")] == ["Clone", "Sweep"]


def charts(at: AppTest) -> int:
    return len(at.get("vega_lite_chart"))


def scroll_down(at: AppTest, run_id: int) -> AppTest:
    """Past what a browser is given at first, to the end."""
    for start in range(6, 18, 3):
        at.session_state[f"below-{run_id}-{start}"] = True
    return at.run()


def test_the_main_metrics_are_on_charts_and_the_others_one_choice_away_those_that_only_this_run_knows_too(
    open_page: Open, backend: Backend, trained: int
) -> None:
    at = open_page("run", id=trained)
    assert charts(at) == 6
    at.session_state[f"below-{trained}-6"] = True
    at.run()
    assert charts(at) == 9
    assert "Below: Clipped tokens · Loss ·" in shown(at)
    scroll_down(at, trained)
    assert charts(at) == 15
    assert "Below:" not in shown(at)
    assert "About 0 is expected" in shown(at)
    assert "0.04 × the KL aggregated like the loss (sequence mean)" in shown(at)

    backend.client.report(trained, p.Report(attempt=1, seq=900, step=3, metrics={"my/**own**": 1.0}))
    at = scroll_down(open_page("run", id=trained, more="my/**own**"), trained)
    assert charts(at) == 16
    assert "my\\/\\*\\*own\\*\\*" in shown(at)


def test_where_long_completions_weigh_more_the_loss_is_not_said_to_be_near_0(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client, algorithm={"aggregation": "sequence_sum"})
    recorded.train(backend.client, run_id, steps=2, total=10, prompts=2, group_size=2)
    at = scroll_down(open_page("run", id=run_id), run_id)
    assert "It need not be near 0: under sequence sum longer completions weigh more" in shown(at)
    assert "About 0 is expected" not in shown(at)
    assert "Time per step (step_time)" in at.multiselect(key="more").options

    at.multiselect(key="more").set_value(["step_time"]).run()
    assert charts(at) == 16
    assert "**Time per step**" in shown(at)


def test_a_range_of_steps_in_the_address_is_all_that_the_charts_show_and_one_that_is_none_shows_the_whole_run(
    open_page: Open, trained: int
) -> None:
    at = open_page("run", id=trained, range="1-2")
    assert at.button(key="zoom-out").label == "Steps 1 to 2: show all"
    assert '"domain": [1, 2]' in at.get("vega_lite_chart")[0].proto.spec

    at.button(key="zoom-out").click().run()
    assert "range" not in at.query_params
    assert '"domain": [0, 100]' in at.get("vega_lite_chart")[0].proto.spec

    for none in ("", "5-2", "a-b", "1-1", "99999999999999999999-3"):
        at = open_page("run", id=trained, range=none)
        assert '"domain": [0, 100]' in at.get("vega_lite_chart")[0].proto.spec, none
        assert not [button for button in at.button if button.key == "zoom-out"], none


BROKEN = RewardFile(name="right.py", error="right.py, line 1: SyntaxError: '(' was never closed\nmore")
WITHOUT_IT = recorded.WORKER.model_copy(update={"reward_files": [BROKEN]})


@pytest.mark.parametrize(
    ("worker", "why"),
    [
        (None, "No worker is connected: the run waits in the queue until one is."),
        (
            WITHOUT_IT,
            "No connected worker has the function right.py:reward: the run waits until one has; "
            "right.py, line 1: SyntaxError: '(' was never closed.",
        ),
    ],
)
def test_a_queued_run_that_no_worker_can_take_says_why_it_waits(
    open_page: Open, backend: Backend, worker: p.WorkerInfo | None, why: str
) -> None:
    own: Json = {"kind": "python", "name": "right", "function": "right.py:reward"}
    run_id = recorded.queue(backend.client, rewards={"functions": [own]})
    assert worker is None or backend.client.ask(p.ClaimRequest(worker=worker)).claim is None
    at = open_page("run", id=run_id)
    assert [str(one.value).replace("\\", "") for one in at.warning] == [why]
    assert figures(at)["Queue"] == "waiting"
    assert "It waits for a worker that can take it" in shown(at)
    assert "as soon as a worker is free" not in shown(at)


def test_until_the_first_step_is_done_the_page_says_what_is_happening_in_the_place_of_empty_charts(
    open_page: Open, backend: Backend
) -> None:
    assert backend.client.ask(p.ClaimRequest(worker=recorded.WORKER)).claim is None  # one is connected
    run_id = recorded.queue(backend.client)
    at = open_page("run", id=run_id)
    assert charts(at) == 0
    assert figures(at)["Queue"] == "next"
    assert "It starts as soon as a worker is free" in shown(at)
    assert "the charts begin when the first one is done" in shown(at)
    claim = recorded.claim(backend.client, run_id)
    assert "A worker has taken the run and starts" in shown(at.run())

    def beat(phase: str, done: int | None = None, total: int | None = None) -> str:
        progress = Progress(step=0, total_steps=100, phase=phase, done=done, total=total)
        backend.client.heartbeat(run_id, p.Heartbeat(attempt=claim.attempt, worker="recorder", progress=progress))
        return shown(at.run())

    assert "Before the first step: loading the model" in beat("loading the model")
    assert "First step: sampling 12 of 64" in beat("rollout", 12, 64)
    report = p.Report(attempt=claim.attempt, seq=0, step=0, metrics={"eval/pass@1": 0.5})
    backend.client.report(run_id, report)
    assert "First step: updating the weights" in beat("update")
    assert charts(at) == 1
    report = p.Report(attempt=claim.attempt, seq=1, step=0, groups=[], metrics={"loss": 0.1, "reward": 0.5})
    backend.client.report(run_id, report)
    assert "First step" not in shown(at.run())
    assert charts(at) == 3


def test_a_run_that_ended_before_its_first_step_and_one_that_is_not_there_say_so_in_words(
    open_page: Open, backend: Backend
) -> None:
    run_id = recorded.queue(backend.client)
    backend.client.command(run_id, "stop")
    at = open_page("run", id=run_id)
    assert "No step was done, so there is nothing to draw" in shown(at)
    assert charts(at) == 0

    at = open_page("run", id=999)
    assert [said.value for said in at.info] == ["Run 999 does not exist; it may have been deleted."]
    assert [link.label for link in at.get("page_link")][-1] == "All runs"

    assert "does not name a run" in shown(open_page("run"))
    assert "does not name a run" in shown(open_page("run", id="x"))


@pytest.mark.parametrize(("verb", "status", "label"), [("pause", "pausing", "Pauses"), ("stop", "stopping", "Stops")])
def test_a_button_asks_and_the_page_says_so(
    open_page: Open, backend: Backend, trained: int, verb: str, status: str, label: str
) -> None:
    at = open_page("run", id=trained)
    at.button(key=f"command-{verb}").click().run()
    assert backend.client.run(trained).requested == verb
    assert status in shown(at)
    assert "Time left" not in figures(at)
    assert figures(at)[label] == "after this step"


def test_a_failed_run_says_why_and_what_to_do(open_page: Open, backend: Backend) -> None:
    run_id, claimed = recorded.started(backend.client)
    error = RunError(code="reward_errors", message="6 of 8 completions unscored", details="Traceback: boom")
    recorded.fail(backend.client, run_id, claimed, error)
    at = open_page("run", id=run_id)
    assert [code.value for code in at.code] == ["6 of 8 completions unscored", "Traceback: boom"]
    assert at.expander[0].label == "Traceback"
    assert "fix the reward function" in shown(at)
    at.button(key="command-retry").click().run()
    assert backend.client.run(run_id).status == "queued"


def test_what_was_just_queued_says_what_will_appear_and_shows_its_configuration_and_a_sample_has_no_charts(
    open_page: Open, backend: Backend
) -> None:
    run_id = recorded.queue(backend.client, optimizer={"learning_rate": 0.00123})
    assert "No groups yet" in shown(open_page("run", id=run_id, tab="groups"))
    assert "No lines yet" in shown(open_page("run", id=run_id, tab="log"))
    assert "No checkpoint yet" in shown(open_page("run", id=run_id, tab="checkpoints"))

    at = open_page("run", id=run_id, tab="configuration")
    assert any("learning_rate: 0.00123" in code.value for code in at.code)
    # null, true and false are painted like errors by a highlighter
    assert {code.language for code in at.code} == {"plaintext"}
    assert "16 prompts × 8 completions = 128 completions a step" in shown(at)

    at = open_page("run", id=backend.client.create_run({"kind": "sample", "prompts": ["1 + 1"]}).id)
    assert [tab.label for tab in at.tabs] == ["Groups", "Configuration", "Log"]
    assert "No groups yet" in shown(at)


def test_the_commit_of_the_model_and_the_texts_that_scored_a_run_are_named_with_their_attempts(
    open_page: Open, backend: Backend
) -> None:
    run_id = recorded.scored_by_files(backend.client, ["one", "other", "other", "last"])
    said = [box.label for box in open_page("run", id=run_id, tab="configuration").expander]
    hashes = [sha256(text.encode()).hexdigest()[:12] for text in ("last", "other", "one")]
    attempts = ["since attempt 4", "attempts 2 to 3", "attempt 1"]
    assert said == [f"**right.py** · {of} · SHA-256 {one}…" for of, one in zip(attempts, hashes, strict=True)]

    run_id = recorded.queue(backend.client, model={"source": "owner/name_x@main"})
    recorded.claim(backend.client, run_id, model_commit="0123456789" * 4)
    page = shown(open_page("run", id=run_id, tab="configuration")).replace("\\", "")
    assert "weights and the tokenizer of owner/name_x at commit " + "0123456789" * 4 in page


def test_the_log_has_the_newest_line_at_the_bottom_and_filters_by_level(
    open_page: Open, backend: Backend, trained: int
) -> None:
    lines = [p.LogLine(level="warning", message="first"), p.LogLine(message="second")]
    backend.client.report(trained, p.Report(attempt=1, seq=900, logs=lines))
    at = open_page("run", id=trained, tab="log")
    assert at.code[0].value.splitlines()[-1].endswith("info     second")
    at.pills(key="levels").set_value(["warning"]).run()
    assert at.code[0].value.splitlines()[-1].endswith("warning  first")
    at.pills(key="levels").set_value(["error"]).run()
    assert "No line of these levels among the newest: choose others above." in shown(at)
    assert "No lines yet" not in shown(at)


@pytest.mark.parametrize(
    ("checkpoints", "begins"),
    [
        (
            [1, 2],
            "It goes on from its last checkpoint, after step 2; what it did after that, up to step 3, is done again.",
        ),
        ([3], "It goes on from its last checkpoint, after step 3."),
        ([], "It has no checkpoint, and begins again with the first step."),
    ],
)
def test_a_stopped_run_offers_to_continue_and_says_from_where(
    open_page: Open, backend: Backend, checkpoints: list[int], begins: str
) -> None:
    run_id, claim = recorded.started(backend.client)
    for step in range(3):
        backend.client.report(run_id, p.Report(attempt=claim.attempt, seq=step, step=step, metrics={"reward": 0.5}))
    for step in checkpoints:
        backend.client.checkpoint(run_id, recorded.checkpoint_of(claim.attempt, step, run_id))
    recorded.finish(backend.client, run_id, claim, "stopped")
    at = open_page("run", id=run_id)
    assert f"It can go on: press **Continue**. {begins}" in shown(at)
    again = at.button(key="command-retry")
    assert again.label == "Continue"
    assert begins in again.help
    again.click().run()
    assert backend.client.run(run_id).status == "queued"
    assert "It can go on" not in shown(at)
