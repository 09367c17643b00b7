"""One JSON-RPC message read or refused; answers are built as the captures show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Notification, Request, Response, RpcError, read

MESSAGES: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "messages.json").read_text())


def refusal(message: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        read(message)
    return caught.value


@pytest.mark.parametrize("name", MESSAGES)
def test_each_captured_message_is_read_whole(name: str) -> None:
    message, seen = MESSAGES[name], read(MESSAGES[name])
    if isinstance(seen, Response):
        assert (seen.id, seen.result, seen.error) == (message["id"], message.get("result"), message.get("error"))
    else:
        assert (seen.method, seen.params) == (message["method"], message.get("params", {}))
        assert isinstance(seen, Request) == ("id" in message)


@pytest.mark.parametrize("id", [0, -1, 2**70, "", "a", "server-discover-probe-1"])
def test_a_request_keeps_its_id(id: int | str) -> None:
    assert read({"jsonrpc": "2.0", "id": id, "method": "ping"}) == Request(id, "ping", {})


def test_an_error_answers_id_is_held_to_the_same_types() -> None:
    assert refusal({"jsonrpc": "2.0", "id": 1.5, "error": {"code": 1, "message": "m"}}).code == -32600


def test_params_may_be_absent_or_null_and_unknown_members_are_ignored() -> None:
    assert read({"jsonrpc": "2.0", "method": "m", "params": None, "trace": 1}) == Notification("m", {})


@pytest.mark.parametrize("message", [None, 1, "x", True, 1.5, [], [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]])
def test_what_is_no_single_object_is_refused(message: Any) -> None:
    error = refusal(message)
    assert (error.code, error.id) == (-32600, None)


@pytest.mark.parametrize("id", [True, 1.0, 1.5, [], {}])
def test_an_id_that_is_no_string_or_integer_is_refused(id: Any) -> None:
    error = refusal({"jsonrpc": "2.0", "id": id, "method": "ping"})
    assert (error.code, error.id) == (-32600, None)


@pytest.mark.parametrize(
    "message",
    [
        {"id": 7, "method": "ping"},
        {"jsonrpc": "1.0", "id": 7, "method": "ping"},
        {"jsonrpc": 2.0, "id": 7, "method": "ping"},
        {"jsonrpc": "2.0", "id": 7},
        {"jsonrpc": "2.0", "id": 7, "method": 5},
        {"jsonrpc": "2.0", "id": 7, "method": "m", "result": {}},
        {"jsonrpc": "2.0", "id": 7, "result": {}, "error": {"code": 1, "message": "m"}},
        {"jsonrpc": "2.0", "id": 7, "error": {"code": "1", "message": "m"}},
        {"jsonrpc": "2.0", "id": 7, "error": {"code": True, "message": "m"}},
        {"jsonrpc": "2.0", "id": 7, "error": {"code": 1}},
        {"jsonrpc": "2.0", "id": 7, "error": "no"},
    ],
)
def test_a_wrong_shape_is_refused_under_its_own_id(message: Any) -> None:
    error = refusal(message)
    assert (error.code, error.id) == (-32600, 7)


@pytest.mark.parametrize("message", [{"id": None, "method": "m"}, {"id": None, "result": {}}, {"result": {}}])
def test_a_request_and_a_result_need_an_id(message: Any) -> None:
    assert refusal({"jsonrpc": "2.0", **message}).code == -32600


@pytest.mark.parametrize("params", [[], "x", 0, False])
def test_params_that_are_no_object_are_invalid_params(params: Any) -> None:
    error = refusal({"jsonrpc": "2.0", "id": 7, "method": "m", "params": params})
    assert (error.code, error.id) == (-32602, 7)


def test_an_error_answer_may_lack_an_id_and_carry_data() -> None:
    details = {"code": -32000, "message": "m", "data": {"a": 1}}
    assert read({"jsonrpc": "2.0", "id": None, "error": details}) == Response(None, None, details)
    assert read({"jsonrpc": "2.0", "error": details}) == Response(None, None, details)


def test_answers_and_messages_are_built_plainly() -> None:
    assert jsonrpc.result(3, {"a": 1}) == {"jsonrpc": "2.0", "id": 3, "result": {"a": 1}}
    assert jsonrpc.error(None, -32700, "bad") == {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "bad"}}
    assert RpcError(-32601, "Method not found", 1, "tasks/get").answer() == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -32601, "message": "Method not found", "data": "tasks/get"},
    }
    assert jsonrpc.request(3, "tools/list") == MESSAGES["2025 list"]
    assert jsonrpc.notification("notifications/initialized") == MESSAGES["2025 initialized"]
