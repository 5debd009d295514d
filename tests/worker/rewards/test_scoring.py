"""The scorer: scores, gates, what a failing function means, and the process that can be killed."""

import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.testing import assert_allclose
from processes import wait_until
from scorers import ITEM, acting, error, raws, samples

from backend.contract.reading import NEWEST
from backend.contract.reward import Correctness, Format, Gate, Length, Pattern, RewardFunction, Rewards
from worker.rewards.function_process import Child, RewardProcessError
from worker.rewards.scoring import RewardContractError, RewardErrors, RewardScorer, Sample, Scores
from worker.tasks.items import Item

# Whole pages, or processes that have to die: right, but too slow for `make check`.
pytestmark = pytest.mark.slow

RIGHT = "<think>2 x 6 = 12; 2 + 12 = 14</think><answer>14</answer>"
TIME_LIMIT = 1.0  # seconds, of what hangs
FORKED = multiprocessing.get_context("fork")  # a worker without the seconds that importing torch takes


@pytest.fixture(scope="module")
def act() -> Iterator[Callable[..., Scores]]:
    """Scores completions that say what the function does."""
    with acting() as scorer:
        yield lambda *texts: scorer.score([samples(*texts)])


def scored(functions: list[RewardFunction], *texts: str, gates: list[Gate] | None = None) -> Scores:
    with RewardScorer(Rewards(functions=functions, gates=gates or [])) as scorer:
        return scorer.score([samples(*texts)])


# ---- what is scored


def test_the_default_rewards_are_nine_tenths_right_and_one_tenth_well_formed() -> None:
    with RewardScorer(Rewards()) as scorer:
        scores = scorer.score([samples(RIGHT, RIGHT.replace(">14<", ">24<"), "<answer>14</answer>", "14", "")])
    assert_allclose(scores.total, [1.0, 0.1, 0.9, 0.0, 0.0])
    assert [(score.name, score.raw, score.weight, score.error) for score in scores.components[2]] == [
        ("correctness", 1.0, 0.9, None),
        ("format", 0.0, 0.1, None),
    ]


def test_a_run_reads_answers_in_the_way_that_its_configuration_says() -> None:
    texts = [f"<answer>{answer}</answer>" for answer in ("**14**", "14 or 15", "24", "14")]
    right = [Correctness(name="right", match="numeric")]
    for reading, expected in ((None, [0.0, 0.0, 0.0, 1.0]), (NEWEST, [1.0, None, 0.0, 1.0])):
        with RewardScorer(Rewards(functions=right, reading=reading, max_unscored=1.0)) as scorer:
            scores = scorer.score([samples(*texts)])
        assert raws(scores) == expected
    assert (error(scores, 1) or "").startswith("reward_value: the answer has several numbers, 14, 15")


def test_a_tag_that_the_prompt_has_opened_counts_as_the_completions() -> None:
    cases = [
        ("a</think><answer>b</answer>", "<|assistant|><think>\n", 1.0),
        ("<think>a</think><answer>b</answer>", "<think>\n", 1.0),
        ("a</think><answer>b</answer>", "Write <think> first.", 0.0),
        ("b</answer>", "<think></think><answer>", 0.0),
        ("a <think></think><answer>b</answer>", "<think>", 0.0),
    ]
    read = [Sample(text, 9, ITEM, read=prompt) for text, prompt, _ in cases]
    for reading, expected in ((NEWEST, [score for *_, score in cases]), (None, [0.0, 1.0, 0.0, 0.0, 0.0])):
        with RewardScorer(Rewards(functions=[Format(name="form")], reading=reading)) as scorer:
            assert raws(scorer.score([read])) == expected


def test_all_five_kinds_of_the_notebook_score_together() -> None:
    functions: list[RewardFunction] = [
        Correctness(name="right", weight=1.0),
        Format(name="form", weight=0.5),
        Length(name="short", weight=0.25, maximum=20, ramp=10),
        Pattern(name="works", weight=0.125, patterns=["=", "because"]),
    ]
    gates = [Gate(reward="right", requires="form"), Gate(reward="short", requires="works", at_least=0.5)]
    scores = scored(functions, RIGHT, "14 because", "<answer>14</answer>", gates=gates)
    assert [[score.raw for score in components] for components in scores.components] == [
        [1.0, 1.0, 0.5, 0.5],
        [0.0, 0.0, 0.5, 0.5],
        [1.0, 0.0, 0.5, 0.0],
    ]
    assert_allclose(scores.total, [1.6875 + 0.0, 0.1875, 0.0])


def test_progress_is_told_up_to_the_last_completion_and_no_samples_are_no_scores() -> None:
    told: list[int] = []
    with RewardScorer(Rewards()) as scorer:
        nothing = scorer.score([])
        assert (nothing.components, nothing.total.shape) == ([], (0,))
        scorer.score([samples(RIGHT, "", "x")], on_progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 3


def test_hostile_text_travels_to_the_functions_as_it_is() -> None:
    texts = ["\x00", "\ud800", "\u2028\n\r\n", '"}\n{"value": 1}\n', "\x1b[2J" * 100, "𝟙𝟜", "x" * 1_000_000]
    functions: list[RewardFunction] = [Length(name="n", unit="characters", minimum=0, maximum=0, ramp=1_000_000)]
    scores = scored(functions, *texts)
    assert_allclose(scores.total, [1 - len(text) / 1_000_000 for text in texts])


def test_every_step_is_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    outcomes = Child.outcomes

    def counting(child: Child, batch: dict[str, Any], **how: Any) -> Any:
        sizes.append(len(batch["samples"]))
        return outcomes(child, batch, **how)

    monkeypatch.setattr(Child, "outcomes", counting)
    with RewardScorer(Rewards()) as scorer:
        for _ in range(3):
            scorer.score([samples(*[RIGHT] * 128)])
    assert sizes == [128] * 3


# ---- what leaves a completion unscored


@pytest.mark.parametrize(
    "what",
    ["hang", *(pytest.param(one, marks=pytest.mark.thorough) for one in ("hang without the interpreter", "sleep"))],
)
def test_a_function_that_hangs_is_killed_and_only_its_completion_stays_unscored(what: str) -> None:
    with acting(time_limit=TIME_LIMIT) as scorer:
        scores = scorer.score([samples("one", what, "one", "pid")])
    assert error(scores, 1).startswith("reward_timeout: it took longer than 1 s")
    assert [raw is None for raw in raws(scores)] == [False, True, False, False]
    assert np.isnan(scores.total).tolist() == [False, True, False, False]


@pytest.mark.thorough
def test_a_regular_expression_that_backtracks_without_end_is_killed() -> None:
    functions: list[RewardFunction] = [
        Pattern(name="evil", syntax="regex", patterns=["(a+)+$"]),
        Length(name="length", unit="characters", maximum=10),
    ]
    rewards = Rewards(functions=functions, time_limit=TIME_LIMIT, max_unscored=0.5)
    with RewardScorer(rewards) as scorer:
        scores = scorer.score([samples("aaa", "a" * 60 + "b", "b")])
    evil, length = scores.components[1]
    assert evil.raw is None
    assert (evil.error or "").startswith("reward_timeout")
    assert length.raw is not None  # the same completion's other functions still count
    assert_allclose(scores.total, [2.0, np.nan, 1.0])


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("exit at once", "it ended its process (exit code 0)"),
        ("segfault", "it ended its process (SIGSEGV)"),
        ("kill itself", "it ended its process (SIGKILL)"),
        ("write into the protocol", "the function wrote into the pipe of the results"),
    ],
)
def test_a_function_that_crashes_leaves_only_its_completion_unscored(
    act: Callable[..., Scores], what: str, says: str
) -> None:
    scores = act("one", what, "one")
    assert error(scores, 1).startswith(f"reward_crash: {says}")
    assert ("Segmentation fault" in error(scores, 1)) == (what == "segfault"), "its last words"
    assert raws(scores) == [1.0, None, 1.0]


def test_a_function_that_raises_leaves_its_traceback(act: Callable[..., Scores]) -> None:
    raised = {
        "raise": "ZeroDivisionError: division by zero",
        "raise a lone surrogate": "ValueError",
        "raise without words": "Wordless",
        "exit": "SystemExit: 3",
        "recurse": "RecursionError",
        "eat memory": "MemoryError",
        "fill the disk": "OSError: [Errno 27] File too large",
    }
    scores = act("pid", *raised, "pid")
    for place, says in enumerate(raised.values(), 1):
        assert error(scores, place).startswith("reward_error: ")
        assert says in error(scores, place)
        assert "misbehaving.py" in error(scores, place)
        assert len(error(scores, place)) < 3000
    first, *failed, last = raws(scores)
    assert (first, set(failed)) == (last, {None})  # the process goes on


def test_no_number_is_unscored_never_zero_and_every_real_number_is_a_score(act: Callable[..., Scores]) -> None:
    none = ("nan", "inf", "-inf", "none", "1e308", "too large an integer")
    scores = act(*none, "float32", "bool", "one")
    assert all(error(scores, place).startswith("reward_value: it returned") for place in range(len(none)))
    assert raws(scores) == [None] * len(none) + [0.5, 1.0, 1.0]
    assert np.isnan(scores.total).tolist() == [True] * len(none) + [False] * 3


# ---- what fails the run


@pytest.mark.parametrize(
    ("what", "got"),
    [
        ("text", "str of length 1"),
        ("list", "list of length 1"),
        ("three scores", "list of length 3"),
        ("complex", "complex"),
        ("array", "ndarray"),
    ],
)
def test_what_is_no_number_breaks_the_contract_is_never_broadcast_and_the_scorer_starts_afresh(
    act: Callable[..., Scores], what: str, got: str
) -> None:
    with pytest.raises(RewardContractError) as caught:
        act("one", what, "one")
    assert caught.value.code == "reward_contract"
    assert caught.value.message == (
        f"the reward 'act' must return one number for each completion; it returned a value of type {got}"
    )
    assert raws(act("one", "float32", "numpy true", "array of no dimension")) == [1.0, 0.5, 1.0, 0.25]


def test_too_many_unscored_completions_fail_the_run_with_counts_and_the_first_traceback() -> None:
    with acting(max_unscored=0.2) as scorer:
        scorer.score([samples("raise", "one", "one", "one", "one")])  # a fifth is allowed
        with pytest.raises(RewardErrors) as caught:
            scorer.score([samples("raise", "nan", "one", "one", "one")])
    assert caught.value.code == "reward_errors"
    assert caught.value.message.startswith(
        "at least 2 of 5 completions could not be scored, more than the share of 0.2"
    )
    assert "ZeroDivisionError: division by zero" in caught.value.message
    assert "Traceback" in (caught.value.details or "")


def test_a_function_that_is_only_measured_may_fail_everywhere_without_failing_the_run() -> None:
    no_reference = Item("x", "x", None, None, {"kind": "exact"})
    functions = [Correctness(name="correctness", weight=0.0), Format(name="format")]
    with RewardScorer(Rewards(functions=functions, max_unscored=0.0)) as scorer:
        scores = scorer.score([[Sample(RIGHT, 25, no_reference)] * 2])
    assert [components[0].raw for components in scores.components] == [None, None]
    assert all(components[0].error for components in scores.components)
    assert scores.total.tolist() == [1.0, 1.0]


def test_a_few_that_are_drawn_again_are_judged_by_the_size_of_their_step() -> None:
    def score(scorer: RewardScorer, *texts: str) -> None:
        with scorer.begin(len(texts), step_size=10) as scoring:
            scoring.add(0, samples(*texts))
            scoring.finish()

    with acting(max_unscored=0.2) as scorer:
        score(scorer, "raise", "nan", "one", "one")
        with pytest.raises(RewardErrors, match="3 of 10 completions"):
            score(scorer, "raise", "nan", "raise", "one")


@pytest.mark.thorough
def test_a_function_that_always_hangs_fails_the_run_without_waiting_for_every_completion() -> None:
    told: list[int] = []
    with (  # of 20 two are sure to be too many
        acting(max_unscored=0.05, time_limit=TIME_LIMIT) as scorer,
        pytest.raises(RewardErrors, match="2 of 20 completions"),
    ):
        scorer.score([samples(*["hang"] * 20)], told.append)
    assert max(told, default=0) < 3


def test_a_process_that_cannot_start_says_why() -> None:
    scorer = RewardScorer(Rewards(), functions_module="worker.rewards.nowhere")
    with pytest.raises(RewardProcessError) as caught:
        scorer.score([samples(RIGHT)])
    assert "No module named 'worker.rewards.nowhere'" in (caught.value.details or "")


# ---- the process


def test_one_process_serves_every_call_although_a_launcher_asks_it_to_end_and_is_replaced_if_it_dies(
    act: Callable[..., Scores],
) -> None:
    pids = raws(act("pid", "pid"))
    pid = int(pids[0] or 0)
    os.kill(pid, signal.SIGTERM)
    assert {*pids, *raws(act("pid"))} == {pid}
    os.kill(pid, signal.SIGKILL)
    other, one = raws(act("pid", "one"))
    assert other != pid
    assert one == 1.0


def test_what_functions_print_is_logged_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), acting() as scorer:
        assert raws(scorer.score([samples("print", "one")])) == [1.0, 1.0]
        # What was printed may arrive after the scores, and is then logged with the next ones.
        wait_until(
            lambda: scorer.score([samples("one")]) and "and from below it" in caplog.text, "what was printed is logged"
        )
    messages = [record.getMessage() for record in caplog.records]
    assert "hello from a reward function" in messages[0]
    assert not any("\n" in message for message in messages)


def test_a_function_that_prints_without_end_is_killed_and_64_kib_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), acting(time_limit=TIME_LIMIT) as scorer:
        before = psutil.Process().memory_info().rss
        scores = scorer.score([samples("print without end", "one")])
        assert psutil.Process().memory_info().rss - before < 10 * 2**20
    assert error(scores, 0).startswith("reward_timeout: it took longer than 1 s")
    assert raws(scores) == [None, 1.0]
    length, is_marked = next((len(text), "(truncated)" in text) for text in caplog.messages)
    assert is_marked
    assert 64 * 1024 < length < 70_000


def test_functions_have_no_stdin_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPSCOPE_TOKEN", "secret")
    with acting() as scorer:
        assert raws(scorer.score([samples("read stdin", "environment")])) == [0.0, 0.0]


def test_a_forked_function_answers_once(act: Callable[..., Scores]) -> None:
    assert raws(act("fork twice", "fork twice", "float32")) == [1.0, 1.0, 0.5]


def group(leader: int) -> list[int]:
    """The processes of its group that have not ended."""
    found = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == leader and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def test_nothing_that_a_function_started_outlives_the_scorer() -> None:
    with acting() as scorer:
        (pid,) = raws(scorer.score([samples("fork")]))
        assert pid is not None
        assert group(int(pid)) != []
    wait_until(lambda: group(int(pid)) == [], "its sleeper has ended")


def see_paused() -> None:
    with acting(time_limit=TIME_LIMIT) as scorer:
        sys.exit(scorer.score([samples("pause the worker", "one")]).total.tolist() != [1.0, 1.0])


@pytest.mark.thorough
def test_results_count_however_late_a_paused_worker_looks() -> None:
    worker = FORKED.Process(target=see_paused)
    worker.start()
    wait_until(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED, "it is paused")
    resume = time.monotonic() + 2 * TIME_LIMIT
    wait_until(lambda: time.monotonic() > resume, "the time limit is over")
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGCONT)
    worker.join(30)
    assert worker.exitcode == 0


def score_without_end(what: str, pids: Connection) -> None:
    with acting(time_limit=TIME_LIMIT) as scorer:
        pids.send(scorer.score([samples("pid")]).components[0][0].raw)
        scorer.score([samples(what)])


@pytest.mark.parametrize("what", ["sleep", pytest.param("hang without the interpreter", marks=pytest.mark.thorough)])
def test_a_hanging_function_dies_even_if_the_worker_was_killed(what: str) -> None:
    heard, told = FORKED.Pipe(duplex=False)
    worker = FORKED.Process(target=score_without_end, args=(what, told))
    worker.start()
    assert heard.poll(60.0)
    child = int(heard.recv())
    worker.kill()
    worker.join()
    wait_until(lambda: group(child) == [], "it has ended")
