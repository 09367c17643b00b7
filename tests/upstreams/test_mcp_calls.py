"""Calls and answers in MCP: what is added, what is stripped, and that the rest is untouched."""

from __future__ import annotations

import pytest

from gateway.ports import Client, UpstreamFault
from gateway.upstreams.mcp_calls import CLIENT_INFO, answer_of, call_message, unanswered
from gateway.wire.jsonrpc import Response
from gateway.wire.mcp import VERSION_2026
from gateway.wire.mcp_client import Dialect
from gateway.wire.mcp_input import is_input_required
from tests.upstreams.origin import dispatch

ERAS = [VERSION_2026, "2025-11-25"]


@pytest.mark.parametrize("version", ERAS)
def test_a_call_carries_name_arguments_and_deadline(version):
    message = call_message(Dialect(version, CLIENT_INFO), 7, dispatch({"amount": 2**70}))
    params = message["params"]
    assert (message["id"], message["method"], params["name"], params["arguments"]) == (7, "tools/call", "pay", {"amount": 2**70})
    assert params["_meta"]["tool-call-gateway/deadline"] == "2026-11-29T18:00:05.000Z"
    assert params["_meta"]["tool-call-gateway/remaining_ms"] == 5000
    assert "progressToken" not in params["_meta"]
    assert ("io.modelcontextprotocol/protocolVersion" in params["_meta"]) is (version == VERSION_2026)


def test_the_key_goes_into_the_meta_or_the_argument_that_the_policy_names():
    dialect = Dialect("2025-11-25", CLIENT_INFO)
    assert call_message(dialect, 1, dispatch(send_as=("meta", "com.shop/key")))["params"]["_meta"]["com.shop/key"] == "k" * 64
    assert call_message(dialect, 1, dispatch(send_as=("argument", "key")))["params"]["arguments"] == {"key": "k" * 64}


def test_progress_is_asked_for_only_if_somebody_listens():
    message = call_message(Dialect("2025-11-25", CLIENT_INFO), 7, dispatch(client=Client(lambda params: None)))
    assert message["params"]["_meta"]["progressToken"] == 7


def test_foreign_meta_travels_but_cannot_speak_for_us():
    meta = {"claudecode/toolUseId": "t1", "tool-call-gateway/deadline": "never", "tool-call-gateway/call": {}, "progressToken": "x"}
    sent = call_message(Dialect("2025-11-25", CLIENT_INFO), 7, dispatch(meta=meta, trace={"traceparent": "00-a", "x": "y"}))["params"]["_meta"]
    assert sent["claudecode/toolUseId"] == "t1"
    assert sent["traceparent"] == "00-a"
    assert sent["tool-call-gateway/deadline"] != "never"
    assert not {"tool-call-gateway/call", "progressToken", "x"} & set(sent)


def test_a_result_is_passed_on_untouched_but_for_our_prefix():
    result = {
        "content": [{"type": "image", "data": "aGk=", "mimeType": "image/png", "extra": 1}, {"type": "new kind"}],
        "structuredContent": {"id": 2**70},
        "isError": False,
        "unknown": [None],
        "_meta": {"theirs": 1, "tool-call-gateway/call": {"status": "faked"}},
    }
    assert answer_of(Response(1, result, None)).result == {**result, "_meta": {"theirs": 1}}


def test_a_json_rpc_error_is_the_tools_definite_error():
    error = {"code": -32602, "message": "Unknown tool", "data": {"x": 1}}
    answer = answer_of(Response(1, None, error))
    assert (answer.result["isError"], answer.result["structuredContent"], answer.status) == (True, {"error": error}, None)


@pytest.mark.parametrize(
    ("result", "asks"), [({"resultType": "input_required"}, True), ({"resultType": "complete"}, False), ({}, False), (None, False)]
)
def test_a_tool_that_asks_back_is_recognised(result, asks):
    assert is_input_required(result) is asks


def test_a_tool_that_asked_in_vain_has_failed():
    assert unanswered("nobody is there").result["isError"] is True


def test_an_answer_over_http_keeps_its_status_and_the_wait_it_asks_for():
    answer = answer_of(Response(1, None, {"code": 503, "message": "busy"}), 503, 2000)
    assert (answer.result["isError"], answer.status, answer.retry_after_ms) == (True, 503, 2000)


@pytest.mark.parametrize("result", [None, [], "x", {"content": None}, {"content": {}}, {"content": ["x"]}])
def test_what_is_no_result_is_garbage(result):
    with pytest.raises(UpstreamFault) as caught:
        answer_of(Response(1, result, None))
    assert caught.value.kind == "garbage"
