"""What servers may ask which clients, and what answers look like."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.wire import mcp_input
from gateway.wire.jsonrpc import Request, RpcError

FORM = {"method": "elicitation/create", "params": {"message": "Sure?"}}
LINK = {"method": "elicitation/create", "params": {"mode": "url", "url": "https://example.com"}}
SAMPLE = {"method": "sampling/createMessage", "params": {}}
ROOTS = {"method": "roots/list"}


def test_of_a_client_s_capabilities_those_count_by_which_it_can_be_asked() -> None:
    assert mcp_input.askable({"elicitation": {"form": {}}, "roots": {}, "sampling": True, "tasks": {}}) == {"elicitation": {"form": {}}, "roots": {}}
    for none in (None, [], "elicitation"):
        assert mcp_input.askable(none) == {}


@pytest.mark.parametrize(
    ("can", "asked", "missing"),
    [
        ({"elicitation": {}}, [FORM], None),
        ({"elicitation": {}, "sampling": {}, "roots": {}}, [FORM, SAMPLE, ROOTS], None),
        ({"elicitation": {}}, [FORM, SAMPLE], "sampling"),
        ({}, [ROOTS], "roots"),
        ({"elicitation": {}}, [LINK], "elicitation.url"),
        ({"elicitation": {"url": {}}}, [LINK], None),
        ({"elicitation": {}}, [{"method": "shell/run"}], "answer 'shell/run'"),
        ({"elicitation": {}}, [7], "answer 'None'"),
        ({}, [], None),
    ],
)
def test_what_a_client_lacks_is_named(can: dict[str, Any], asked: list[Any], missing: str | None) -> None:
    assert mcp_input.lacking(can, {str(n): one for n, one in enumerate(asked)}) == missing


def test_a_question_without_requests_is_only_a_state() -> None:
    assert mcp_input.input_required({}, "s") == {"resultType": "input_required", "requestState": "s"}
    asked = mcp_input.input_required({"a": FORM}, "s")
    assert (mcp_input.requests(asked), mcp_input.requests({}), mcp_input.requests({"inputRequests": [1]})) == ({"a": FORM}, {}, {})
    assert (asked["inputRequests"], mcp_input.is_input_required(asked), mcp_input.is_input_required({})) == ({"a": FORM}, True, False)


@pytest.mark.parametrize("wrong", [None, [], "x", {"a": 7}, {"a": None}])
def test_responses_are_objects_by_name(wrong: Any) -> None:
    assert mcp_input.responses(Request(1, "tools/call", {})) is None
    assert mcp_input.responses(Request(1, "tools/call", {"inputResponses": {"a": {}}})) == {"a": {}}
    with pytest.raises(RpcError) as caught:
        mcp_input.responses(Request(1, "tools/call", {"inputResponses": wrong}))
    assert (caught.value.code, caught.value.id) == (-32602, 1)


def test_a_state_is_a_string() -> None:
    assert [mcp_input.state(Request(1, "tools/call", params)) for params in ({}, {"requestState": None}, {"requestState": "s"})] == [None, None, "s"]
    with pytest.raises(RpcError):
        mcp_input.state(Request(1, "tools/call", {"requestState": {}}))
