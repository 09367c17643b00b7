"""A request state belongs to one call of one run, or to one request of one principal, for an hour."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.model import CallRequest, Malformed
from gateway.doors.mcp.states import LIFETIME_MS, Pending, States
from gateway.wire.jsonrpc import RpcError
from tests.fakes import FakeClock

CLOCK = FakeClock()
STATES = States([b"k" * 32], CLOCK)
CALL = CallRequest("crm.pay", {"amount": 5, "to": ["a", 2**70]}, "mcp", operation_id="op")
PENDING = Pending("call_1_1", 3)


def test_a_call_s_state_names_its_question() -> None:
    state = STATES.of_call("run_1", CALL, PENDING)
    again = CallRequest("crm.pay", {"to": ["a", 2**70], "amount": 5.0}, "mcp", operation_id="op", call_id="another", turn=7)
    assert STATES.pending(state, "run_1", again, 9) == PENDING


@pytest.mark.parametrize(
    ("run", "request_"),
    [
        ("run_2", CALL),
        ("run_1", CallRequest("crm.put", CALL.arguments, "mcp", operation_id="op")),
        ("run_1", CallRequest("crm.pay", {"amount": 6, "to": ["a", 2**70]}, "mcp", operation_id="op")),
        ("run_1", CallRequest("crm.pay", CALL.arguments, "mcp")),
        ("run_1", CallRequest("crm.pay", Malformed("no object"), "mcp", operation_id="op")),
    ],
)
def test_for_any_other_call_it_is_refused(run: str, request_: CallRequest) -> None:
    refused(lambda: STATES.pending(STATES.of_call("run_1", CALL, PENDING), run, request_, 9))


def test_a_state_that_was_touched_or_is_another_s_is_refused() -> None:
    state = STATES.of_call("run_1", CALL, PENDING)
    of_request = STATES.of_request("agent:ana", "prompts/get", {"name": "x"}, "theirs")
    for wrong in ("", state + "x", state[:-1], state.upper(), of_request):
        refused(lambda wrong=wrong: STATES.pending(wrong, "run_1", CALL, 9))  # type: ignore[misc]
    refused(lambda: STATES.theirs(state, "agent:ana", "prompts/get", {"name": "x"}, 9))


def test_a_state_has_an_end() -> None:
    clock = FakeClock()
    states = States([b"k" * 32], clock)
    state = states.of_call("run_1", CALL, PENDING)
    clock.now += LIFETIME_MS
    refused(lambda: states.pending(state, "run_1", CALL, 9))


@pytest.mark.parametrize("theirs", ["their own state", None])
def test_a_request_s_state_carries_the_server_s_own(theirs: str | None) -> None:
    params: dict[str, Any] = {"name": "x", "arguments": {"a": 1}}
    state = STATES.of_request("agent:ana", "prompts/get", {**params, "_meta": {"progressToken": 1}}, theirs)
    assert STATES.theirs(state, "agent:ana", "prompts/get", {**params, "inputResponses": {}, "requestState": state, "_meta": {}}, 9) == theirs
    for who, method, other in (
        ("agent:ben", "prompts/get", params),
        ("agent:ana", "resources/read", params),
        ("agent:ana", "prompts/get", {"name": "x"}),
    ):
        refused(lambda who=who, method=method, other=other: STATES.theirs(state, who, method, other, 9))  # type: ignore[misc]


def refused(reading: Any) -> None:
    with pytest.raises(RpcError) as caught:
        reading()
    assert (caught.value.code, caught.value.id) == (-32602, 9)
