"""What the client asks, and what it makes of the answers, without sending anything."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import httpx
import pytest

from gateway import client_flows
from gateway.client_flows import Ask, Budget, CallResult, Connection, GatewayError, StillHeld, asking, calling

ASK = Ask("POST", "/v1/runs/run_1/calls", {"tool": "x.y"}, "token")
DONE = {
    "call": "call_1", "status": "succeeded", "reason": None, "replayed": False, "message": None, "differences": None,
    "result": {"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}], "structuredContent": {"n": 1}},
    "budget": {"turns_left": "unmetered", "tool_calls_left": 9, "later": "field"},
}  # fmt: skip
HELD = {
    "call": "call_1", "status": "held", "reason": "approval.required", "hold": {"hold": "hold_1", "url": "/h", "expires_at": "t"},
    "message": "held", "budget": None,
}  # fmt: skip


class Time:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(client_flows, "time", clock)
    return clock


def answer(status: int, body: Any = None, **headers: str) -> httpx.Response:
    return httpx.Response(status, json=body or {}, headers={name.replace("_", "-"): value for name, value in headers.items()})


def busy(reason: str, after: str = "2") -> httpx.Response:
    return answer(409, {"reason": reason, "detail": "d"}, retry_after=after)


def play(flow: Generator[Any, Any, Any], clock: Time, *answers: httpx.Response | Exception) -> tuple[Any, list[Any]]:
    """Drive a flow with these answers; its result and all it yielded."""
    waiting, yielded = list(answers), [next(flow)]
    try:
        while True:
            step = yielded[-1]
            if isinstance(step, float):
                clock.now += step
                yielded.append(flow.send(None))
                continue
            yielded.append(flow.send(waiting.pop(0)))
    except StopIteration as done:
        assert not waiting
        return done.value, yielded


def test_a_result_is_typed_and_unknown_fields_do_no_harm(clock: Time) -> None:
    result, _ = play(calling(ASK, 60), clock, answer(200, DONE))
    assert isinstance(result, CallResult)
    assert (result.call, result.text, result.structured, result.is_error) == ("call_1", "a\nb", {"n": 1}, False)
    assert result.budget == Budget(turns_left="unmetered", tool_calls_left=9)


def test_a_held_call_is_made_again_after_retry_after_until_it_is_done(clock: Time) -> None:
    result, yielded = play(calling(ASK, 60), clock, answer(202, HELD, retry_after="5"), answer(202, HELD, retry_after="5"), answer(200, DONE))
    assert result.status == "succeeded"
    assert [step for step in yielded if isinstance(step, float)] == [5.0, 5.0]
    assert [step.body for step in yielded if isinstance(step, Ask)] == [ASK.body] * 3


def test_patience_that_ends_before_people_decide_is_still_held(clock: Time) -> None:
    with pytest.raises(StillHeld) as caught:
        play(calling(ASK, 12), clock, *(answer(202, HELD, retry_after="5") for _ in range(3)))
    assert clock.now == 10
    assert (caught.value.hold, caught.value.call, caught.value.reason) == ("hold_1", "call_1", "approval.required")


def test_each_request_waits_at_most_for_what_patience_is_left(clock: Time) -> None:
    _, yielded = play(calling(ASK, 22), clock, answer(202, HELD, retry_after="5"), answer(202, HELD, retry_after="15"), answer(200, DONE))
    asks = [step for step in yielded if isinstance(step, Ask)]
    assert [(ask.query["wait"], ask.extra_s) for ask in asks] == [(20, 20), (17, 17), (2, 2)]


@pytest.mark.parametrize("reason", ["call.in_flight", "budget.in_flight", "ledger.unavailable", "gateway.stopping"])
def test_what_passes_by_itself_is_waited_for(clock: Time, reason: str) -> None:
    result, yielded = play(calling(ASK, 60), clock, busy(reason), answer(200, DONE))
    assert result.call == "call_1"
    assert 2.0 in yielded


@pytest.mark.parametrize("reason", ["call.in_doubt", "budget.tool_calls", "upstream.unavailable", "tool.timeout", "approval.denied"])
def test_any_other_refusal_is_raised_at_once(clock: Time, reason: str) -> None:
    with pytest.raises(GatewayError) as caught:
        play(calling(ASK, 60), clock, busy(reason))
    assert caught.value.reason == reason


def test_a_broken_connection_is_made_good_by_the_same_call(clock: Time) -> None:
    result, _ = play(calling(ASK, 60), clock, httpx.ReadError("cut"), httpx.ConnectError("refused"), answer(200, DONE))
    assert result.call == "call_1"
    with pytest.raises(httpx.ReadError):
        play(calling(ASK, 0), clock, httpx.ReadError("cut"))


def test_a_date_in_retry_after_is_not_taken_for_seconds(clock: Time) -> None:
    _, yielded = play(calling(ASK, 60), clock, busy("call.in_flight", "Wed, 21 Oct 2026 07:28:00 GMT"), answer(200, DONE))
    assert 1.0 in yielded


def test_an_error_carries_what_the_problem_says(clock: Time) -> None:
    problem = {"reason": "run.not_open", "detail": "closed", "hint": "go on", "retryable": False, "call": "call_1", "budget": {"turns_left": 1}}
    with pytest.raises(GatewayError) as caught:
        play(asking(ASK), clock, answer(409, problem))
    error = caught.value
    assert (error.status, error.reason, error.hint, error.retryable, error.call) == (409, "run.not_open", "go on", False, "call_1")
    assert error.budget == Budget(turns_left=1)
    assert error.problem == problem


@pytest.mark.parametrize("page", [b"<html>", b"[]", b""])
def test_an_error_that_is_no_problem_is_an_error_all_the_same(clock: Time, page: bytes) -> None:
    with pytest.raises(GatewayError) as caught:
        play(asking(ASK), clock, httpx.Response(502, content=page))
    assert (caught.value.status, caught.value.reason) == (502, "")


def test_a_request_has_its_bearer_and_a_time_that_covers_the_wait() -> None:
    request = Connection("http://gate/", "key", 30).request(Ask("GET", "/v1/runs", extra_s=20))
    assert request["url"] == "http://gate/v1/runs"
    assert request["headers"] == {"authorization": "Bearer key"}
    assert request["timeout"].read == 50
    assert Connection("http://gate", "key", 30).request(ASK)["headers"] == {"authorization": "Bearer token"}
