"""The judge: what it is asked, how its reply is read, and what an endpoint that misbehaves in each way leads to."""

import logging
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from judge_service import Act, Service, answer, hang, says
from scorers import HELLO, endpoint, error, judged, raws

from backend.contract.reward import Gate, Judge, Length, Rewards
from worker.rewards.judge import prompt_text, question
from worker.rewards.resources import RewardResources, RewardUnavailable
from worker.rewards.scoring import RewardErrors, RewardScorer, Sample
from worker.rewards.verdict import NoVerdict, verdict
from worker.tasks.items import Item

KEY = "sk-a-secret-of-the-operator"


def answers(status: int, content: bytes = b"no", **headers: str) -> Act:
    return lambda _, handler: answer(handler, status, content, **headers)


def at_first(first: Act, times: int = 1) -> Act:
    """`first` for so many requests, then a good answer."""
    return lambda service, handler: (first if len(service.bodies) <= times else says("10"))(service, handler)


# ---- what it is asked


def test_it_is_asked_through_the_chat_protocol_with_the_places_filled(service: Service) -> None:
    judge = Judge(name="kind", endpoint="strict", instruction="P:{prompt} C:{completion} A:{answer} {x}", max_tokens=9)
    assert raws(judged(service, "hi {answer} {prompt}", judge=judge)) == [0.5]
    (body,) = service.bodies
    assert service.headers[0]["path"] == "/v1/chat/completions"
    assert body == {
        "model": "judge-1",
        "messages": [{"role": "user", "content": "P:Say hello C:hi {answer} {prompt} A:hello {x}"}],
        "max_tokens": 9,
        "temperature": 0,
    }


def test_hostile_text_reaches_the_judge_as_text(service: Service) -> None:
    texts = ['"}], "model": "other', "\x00 \ud800", "\x1b[2J\u2028", "𝟙𝟜", "{prompt}" * 3, "\\"]
    judged(service, *texts)
    for body, text in zip(sorted(service.bodies, key=lambda one: texts.index(text_of(one))), texts, strict=True):
        assert body["model"] == "judge-1"
        assert text_of(body) == text


def text_of(body: dict[str, Any]) -> str:
    content: str = body["messages"][0]["content"]
    return content.partition("Answer:\n")[2].partition("\n\nReply with")[0]


def test_a_conversation_is_shown_with_its_roles() -> None:
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"})
    assert prompt_text(Item("x", "Hello", messages, None, {})) == "system: Be brief.\n\nuser: Hello"
    assert prompt_text(Item("x", "2 + 2 = ", None, None, {})) == "2 + 2 = "
    without_answer = Item("x", "p", None, None, {})
    assert question("{prompt}{completion}[{answer}]", without_answer, completion="c") == "pc[]"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"instruction": "{prompt}"}, "cannot rate what it is not shown"),
        ({"instruction": "{completion}"}, "cannot rate what it is not shown"),
        ({"minimum": 5, "maximum": 5}, "must be above"),
    ],
)
def test_a_judge_that_is_not_shown_what_it_rates_or_has_no_scale_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Judge(name="a", endpoint="b", **wrong)


# ---- how its reply is read


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('{"score": 7}', 0.7),
        ('At first {"score": 2}, then ```json\n{"reason": "3 of 4", "score": 10}\n``` 4', 1.0),
        ('{"score": "8"}', 0.8),
        ('{"score": 1e1}', 1.0),
        ("7", 0.7),
        ("I would give 3, no: 8.", 0.8),
        ("8/10", 0.8),
        ("8 out of 10.", 0.8),
        ("8.0/10.0", 0.8),
        ("8.5 out of 10.00", 0.85),
        ("Score: 8 of 10", 0.8),
        ("10/10", 1.0),
        ("0", 0.0),
        ("**Score:** 2.5", 0.25),
    ],
)
def test_the_verdict_is_the_last_score_else_the_last_number(reply: str, score: float) -> None:
    assert verdict(reply, 0, 10) == pytest.approx(score)


@pytest.mark.parametrize("reply", ["", "ok", "11", '{"score": -1}', '{"score": NaN}', "1e999", "Infinity", "9" * 5000])
def test_a_reply_without_a_number_of_the_scale_is_no_verdict(reply: str) -> None:
    with pytest.raises(NoVerdict):
        verdict(reply, 0, 10)


def test_another_scale_is_mapped_to_one() -> None:
    assert verdict("3", 1, 5) == pytest.approx(0.5)
    assert verdict("-1", -1, 1) == 0.0
    assert verdict("0.8/1.0", 0, 1) == pytest.approx(0.8)


def test_a_reply_without_a_verdict_or_cut_short_leaves_the_completion_unscored(service: Service) -> None:
    service.act = says("<b>No</b> number, " + "x" * 1000)
    said = error(judged(service))
    begins = "reward_value: the reply of the judge 'strict' holds no number; it replied: <b>No</b> number, xxx"
    assert said.startswith(begins)
    assert len(said) < 600
    service.act = says("Let me think. There are 10", "length")
    assert "was cut at max_tokens" in error(judged(service))


# ---- an endpoint that misbehaves


@pytest.mark.parametrize(
    "act",
    [
        answers(500),
        answers(503, Retry_After="0"),
        answers(429, Retry_After="0"),
        answers(429),
        lambda _, handler: handler.connection.shutdown(socket.SHUT_RDWR),
        lambda _, handler: answer(handler, 200, b"{}", Content_Length="100"),
    ],
    ids=["500", "503", "429 with a time", "429", "it hangs up", "it hangs up midway"],
)
def test_what_may_pass_is_tried_again(service: Service, act: Act) -> None:
    service.act = at_first(act, 2)
    assert raws(judged(service, timeout_seconds=1.0)) == [1.0]
    assert len(service.bodies) == 3


@pytest.mark.slow
def test_it_waits_as_long_as_it_is_told(service: Service) -> None:
    service.act = at_first(answers(429, Retry_After="1"))
    assert raws(judged(service)) == [1.0]
    assert service.times[1] - service.times[0] >= 1.0


@pytest.mark.parametrize(
    ("act", "says_what", "requests"),
    [
        (answers(500, b"<html>oh</html>"), "HTTP 500: <html>oh</html> (tried 4 times)", 4),
        (answers(400, b"no such model"), "HTTP 400: no such model", 1),
        (answers(401, b"bad key"), "HTTP 401: bad key", 1),
        (answers(404, b""), "HTTP 404: nothing", 1),
        (answers(302, b"", Location="/elsewhere"), "it redirects, which is not followed", 1),
        (answers(307, b"", Location="http://169.254.169.254/"), "it redirects, which is not followed", 1),
        (answers(200, b"not json"), "not a chat completion: not json", 1),
        (answers(200, b"\xff\xfe"), "not a chat completion", 1),
        (answers(200, b'{"choices": []}'), "not a chat completion", 1),
        (answers(200, b'{"choices": [{"message": {"content": null}}]}'), "not a chat completion", 1),
        (answers(200, b"[" * 100_000), "not a chat completion", 1),
        (answers(200, b" " * (2**20 + 1)), "larger than 1,048,576 bytes", 1),
    ],
    ids=["500", "400", "401", "404", "302", "307", "no JSON", "no text", "empty", "null", "nested", "huge"],
)
def test_what_does_not_pass_leaves_the_completion_unscored(
    service: Service, act: Act, says_what: str, requests: int
) -> None:
    service.act = act
    said = error(judged(service))
    assert said.startswith("reward_error: the judge 'strict': ")
    assert says_what in said
    assert len(service.bodies) == requests


def drip(_: Service, handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            threading.Event().wait(0.02)
    except OSError:
        handler.close_connection = True


@pytest.mark.slow
@pytest.mark.parametrize("act", [hang, drip])
def test_a_reply_that_never_ends_is_given_up(service: Service, act: Act) -> None:
    service.act = act
    assert "it took longer than 0.2 s (tried 4 times)" in error(judged(service, timeout_seconds=0.2))


@pytest.mark.slow
def test_an_endpoint_that_is_down_fails_the_run_and_is_not_tried_for_ever(service: Service) -> None:
    service.act = answers(503, b"down for maintenance")
    with pytest.raises(
        RewardErrors, match="by the reward 'kind': reward_error: the judge 'strict': HTTP 503: down for"
    ):
        judged(service, *map(str, range(20)), max_unscored=0.2, max_concurrent=1)
    assert len(service.bodies) <= 4 + 20  # four times at first, then once each


def test_nobody_listens(service: Service) -> None:
    service.server_close()
    assert "it does not answer: ConnectError" in error(judged(service))


# ---- bounds, cost and secrets


@pytest.mark.slow
def test_requests_start_no_faster_than_allowed(service: Service) -> None:
    began = time.monotonic()
    judged(service, *map(str, range(4)), requests_per_minute=600)
    assert max(service.times) - began >= 0.3


def test_the_same_question_is_never_paid_twice(service: Service, tmp_path: Path) -> None:
    cache, first, second = tmp_path / "cache.sqlite", dict[str, float](), dict[str, float]()
    assert raws(judged(service, "a", "b", "a", cache=cache, metrics=first)) == [0.5, 0.5, 0.5]
    assert first == {"judge/kind/prompt_tokens": 200.0, "judge/kind/completion_tokens": 14.0, "judge/kind/cached": 1.0}
    assert raws(judged(service, "b", "c", cache=cache, metrics=second)) == [0.5, 0.5]
    assert second == {"judge/kind/prompt_tokens": 100.0, "judge/kind/completion_tokens": 7.0, "judge/kind/cached": 1.0}
    judged(service, "b", cache=cache, model="judge-2")  # another model is another question
    assert len(service.bodies) == 4


def test_a_cache_that_cannot_be_used_costs_money_only(service: Service, tmp_path: Path) -> None:
    (tmp_path / "cache.sqlite").write_bytes(b"not a database at all, and longer than a header of one" * 10)
    assert raws(judged(service, "a", "b", cache=tmp_path / "cache.sqlite")) == [0.5, 0.5]
    assert raws(judged(service, "a", cache=tmp_path / "no" / "folder")) == [0.5]


@pytest.mark.slow
def test_the_key_is_sent_and_never_told(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    cache = tmp_path / "cache.sqlite"
    said = list[str]()
    with caplog.at_level(logging.DEBUG):
        for act in (says(f"you sent {KEY}"), answers(401, f"wrong key {KEY}".encode()), answers(500, KEY.encode())):
            service.act = act
            said.append(error(judged(service, str(len(said)), cache=cache, api_key_env="JUDGE_KEY")))
    assert all(headers["Authorization"] == f"Bearer {KEY}" for headers in service.headers)
    assert all("[key]" in text and KEY not in text for text in said)
    assert KEY not in caplog.text
    assert KEY.encode() not in cache.read_bytes()


def test_a_key_that_the_environment_lacks_is_named(service: Service) -> None:
    said = error(judged(service, api_key_env="JUDGE_KEY_THAT_IS_NOT_SET"))
    assert "no JUDGE_KEY_THAT_IS_NOT_SET, which GROUPSCOPE_JUDGES names" in said
    assert service.bodies == []


def test_a_judge_that_the_operator_did_not_name_fails_the_run() -> None:
    rewards = Rewards(functions=[Judge(name="kind", endpoint="strict")])
    with pytest.raises(RewardUnavailable, match="GROUPSCOPE_JUDGES"):
        RewardScorer(rewards)


# ---- with the other rewards


def test_a_judge_beside_a_function_and_a_gate(service: Service) -> None:
    service.act = lambda one, handler: says("10" if "aaa" in str(one.bodies[-1]) else "5")(one, handler)
    functions = [Judge(name="kind", endpoint="strict"), Length(name="short", unit="characters", maximum=3, ramp=1)]
    rewards = Rewards(functions=functions, gates=[Gate(reward="kind", requires="short")])
    with RewardScorer(rewards, RewardResources(judges={"strict": endpoint(service, max_concurrent=1)})) as scorer:
        scores = scorer.score([[Sample(text, 1, HELLO) for text in ("aaa", "bb", "too long")]])
    assert [[score.raw for score in parts] for parts in scores.components] == [[1.0, 1.0], [0.5, 1.0], [0.5, 0.0]]
    assert scores.total.tolist() == [2.0, 1.5, 0.0]


def test_whoever_ends_the_wait_is_heard_and_nothing_more_is_asked(service: Service) -> None:
    class Shutdown(Exception):
        pass

    def stop(_: int) -> None:
        raise Shutdown

    service.act = hang
    with pytest.raises(Shutdown):
        judged(service, *map(str, range(50)), on_progress=stop, max_concurrent=2, timeout_seconds=2.0)
    assert len(service.bodies) <= 2
