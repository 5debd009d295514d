"""Judges of today: they refuse parameters, think, write in parts, decline, and say errors within good answers."""

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from judge_service import Act, Service, answer, says
from scorers import error, judged, raws

from backend.contract.reading import NEWEST

PARAMETERS = {"max_tokens", "max_completion_tokens", "temperature"}
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 5}}
BUSY = {"message": "Provider returned error", "code": 429, "metadata": {"retry_after": 0.2}}
THINKING = {"role": "assistant", "content": None, "reasoning_content": "Is it 3?"}
PARTS = [{"type": "thinking", "thinking": "a 3?"}, {"type": "text", "text": "Score: "}, {"type": "text", "text": "8"}]


def sends(body: object, status: int = 200) -> Act:
    return lambda _, handler: answer(handler, status, body if isinstance(body, bytes) else json.dumps(body).encode())


def chat(message: object, finish: str = "stop", usage: object = USAGE, **beside: object) -> dict[str, object]:
    return {"choices": [{"message": message, "finish_reason": finish, **beside}], "usage": usage}


@pytest.mark.parametrize(
    ("names", "status", "said"),
    [
        (["max_tokens"], 400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        (["max_tokens"], 400, 'json: unknown field "max_tokens"'),
        (["temperature"], 400, "'temperature' does not support 0. Only the default (1) value is supported."),
        (["temperature"], 400, "Unrecognized request argument supplied: temperature. Known: model, max_tokens"),
        (["temperature"], 422, "Input validation error: `temperature` must be strictly positive"),
        (["temperature"], 422, {"detail": [{"loc": ["body", "temperature"], "msg": "extra fields not permitted"}]}),
        (["temperature"], 200, {"error": {"message": "temperature is deprecated for this model", "code": 400}}),
        ([*PARAMETERS], 400, "additional properties are not allowed: max_tokens, max_completion_tokens, temperature"),
    ],
)
def test_a_parameter_that_is_refused_once_is_not_sent_again(
    service: Service, caplog: pytest.LogCaptureFixture, names: list[str], status: int, said: object
) -> None:
    def act(one: Service, handler: BaseHTTPRequestHandler) -> None:
        is_refused = any(name in handler.body for name in names)  # type: ignore[attr-defined]
        (sends(said, status) if is_refused else says("10"))(one, handler)

    service.act = act
    assert raws(judged(service, *map(str, range(12)))) == [1.0] * 12
    assert len(service.bodies) == 12 + len(names)
    assert all(bool(body.keys() & PARAMETERS) == (len(names) == 1) for body in service.bodies[-12:])
    assert caplog.text.count("refuses") == len(names)


@pytest.mark.parametrize(
    ("said", "requests"),
    [
        ("max_tokens is too large: 9999. This model supports at most 4096 completion tokens", 2),
        ({"detail": [{"loc": ["prompt"], "msg": "required", "input": {"max_tokens": 9, "temperature": 0}}]}, 2),
        ("max_tokens, max_completion_tokens and temperature are not supported, and nothing else is", 5),
    ],
)
def test_a_refusal_that_no_parameter_mends_is_the_error(service: Service, said: object, requests: int) -> None:
    service.act = sends(said, 400)
    assert "HTTP 400: " in error(judged(service, "a", "b"), 1)
    assert len(service.bodies) == requests


def test_the_operator_may_name_both_and_what_was_cached_is_found(service: Service, tmp_path: Path) -> None:
    how: dict[str, Any] = {"cache": tmp_path / "cache"}
    judged(service, **how)
    judged(service, **how, max_tokens_parameter="max_completion_tokens")  # the same question
    judged(service, **how, max_tokens_parameter="max_completion_tokens", temperature=None)
    sent = [body.keys() & PARAMETERS for body in service.bodies]
    assert sent == [{"max_tokens", "temperature"}, {"max_completion_tokens"}]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (chat(THINKING, "length"), "still thinking when max_tokens ended; raise max_tokens"),
        (chat({"content": "<think>Score: 3"}, "length"), "still thinking when max_tokens ended; raise max_tokens"),
        (chat(THINKING), "has no text, only thoughts"),
        (chat({"content": "<think>Score: 3</think>\n8"}), 0.8),
        (chat({"content": PARTS}), 0.8),
        (chat({"content": None, "refusal": "I can't rate this 3."}), "is a refusal: I can't rate this 3."),
        (chat({"content": "Score: 3"}, "content_filter"), "is a refusal"),
        (chat({"content": "Score: 3"}, "max_tokens"), "was cut at max_tokens"),
        (chat({"content": "8"}, usage=USAGE | {"prompt_tokens": 100.0}), 0.8),
        ({"error": {"message": "no such model", "code": 404}, "usage": USAGE}, "HTTP 200 with an error in it"),
    ],
)
def test_what_comes_back_is_said_and_its_tokens_count_once(service: Service, body: object, expected: object) -> None:
    service.act, metrics = sends(body), dict[str, float]()
    scores = judged(service, "a", "a", metrics=metrics, reading=NEWEST)
    assert raws(scores) == [expected] * 2 if isinstance(expected, float) else str(expected) in error(scores)
    assert (metrics["judge/kind/prompt_tokens"], metrics["judge/kind/completion_tokens"]) == (100, 7)
    assert len(service.bodies) == 1


@pytest.mark.parametrize("usage", [None, [], *({"prompt_tokens": tokens} for tokens in (None, 10**400, "x"))])
def test_a_usage_of_another_kind_costs_no_reply(service: Service, usage: object) -> None:
    service.act = sends(chat({"content": "8"}, usage=usage))
    assert raws(judged(service)) == [0.8]
    service.act = sends(b'data: {"choices": [{"delta": {"content": "8"}}]}\n\ndata: [DONE]\n')
    assert "its reply is a stream, which was not asked for: data:" in error(judged(service))


@pytest.mark.parametrize(
    ("body", "pause"),
    [
        ({"error": BUSY, "usage": USAGE}, 0.2),
        (chat({"content": None}, "error", error=BUSY), 0.2),
        (chat({"content": "Score: 3"}, "error"), 0),
        ({"error": "Rate limit reached. Please try again in 200ms", "usage": USAGE}, 0.2),
        ({"object": "error", "message": "busy", "code": 503, "usage": USAGE}, 0),
    ],
)
def test_an_error_in_a_good_answer_is_tried_again_if_it_may_pass(service: Service, body: object, pause: float) -> None:
    metrics: dict[str, float] = {}
    service.act = lambda one, handler: (sends(body) if len(one.bodies) == 1 else says("10"))(one, handler)
    assert raws(judged(service, metrics=metrics)) == [1.0]
    assert service.times[1] - service.times[0] >= pause
    assert metrics["judge/kind/prompt_tokens"] == 200


@pytest.mark.parametrize(
    ("text", "first", "newest"), [("Score: 7 (scale 0-10)", 1.0, 0.7), ("<think>2</think> 3, 4 or 5", 0.5, None)]
)
def test_a_run_reads_verdicts_in_its_own_way(service: Service, text: str, first: float, newest: float | None) -> None:
    service.act = says(text)
    assert [raws(judged(service, reading=reading)) for reading in (None, NEWEST)] == [[first], [newest]]
