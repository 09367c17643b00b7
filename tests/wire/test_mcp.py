"""The 2026-07-28 ladder is held to what real servers answered; results and names keep everything."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire import mcp
from gateway.wire.jsonrpc import Notification, Request, RpcError, read
from gateway.wire.mcp import ListedNames, ToolCall, inbound_2026, listed_name, tool_call

DATA = Path(__file__).parent / "data"
CASES: list[dict[str, Any]] = json.loads((DATA / "inbound_2026.json").read_text())
MESSAGES: dict[str, Any] = json.loads((DATA / "messages.json").read_text())
SERVER = {"name": "gate-demo", "version": "0.0.1"}
ENVELOPE = {mcp.META_VERSION: "2026-07-28", mcp.META_CLIENT_CAPABILITIES: {}}


def case(name: str) -> dict[str, Any]:
    return next(case for case in CASES if case["name"] == name)


# -- the ladder -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_the_ladder_answers_as_captured(case: dict[str, Any]) -> None:
    if case["error"] is None:
        seen = inbound_2026(case["headers"], case["body"])
        assert isinstance(seen, Notification if case["status"] == 202 else Request)
        assert (seen.method, seen.params) == (case["body"]["method"], case["body"]["params"])
        return
    with pytest.raises(RpcError) as caught:
        inbound_2026(case["headers"], case["body"])
    answer = caught.value.answer()
    assert mcp.http_status(caught.value) == case["status"]
    assert answer["id"] == case["id"]
    assert {key: value for key, value in answer["error"].items() if key != "message"} == case["error"]


@pytest.mark.parametrize("name", ["2026 call", "2026 call with progress", "2026 call of Claude Code", "2026 list"])
def test_captured_requests_pass_over_http_and_stdio(name: str) -> None:
    message = MESSAGES[name]
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": message["method"], "mcp-name": message["params"].get("name", "x")}
    assert inbound_2026(headers, message) == inbound_2026(None, message) == read(message)


def test_on_stdio_the_envelope_and_the_method_still_count() -> None:
    for name, code in (("missing _meta", -32602), ("unsupported version", -32022), ("unknown method", -32601)):
        with pytest.raises(RpcError) as caught:
            inbound_2026(None, case(name)["body"])
        assert caught.value.code == code


def test_the_caller_says_which_methods_it_serves() -> None:
    ping = case("removed method ping")
    assert inbound_2026(ping["headers"], ping["body"], {"ping"}).method == "ping"


def test_a_resource_is_named_by_its_uri() -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "file:///é", "_meta": ENVELOPE}}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "resources/read", "mcp-name": "=?base64?ZmlsZTovLy/DqQ==?="}
    assert inbound_2026(headers, body, {"resources/read"})
    with pytest.raises(RpcError) as caught:
        inbound_2026({**headers, "mcp-name": "file:///e"}, body, {"resources/read"})
    assert caught.value.code == -32020


@pytest.mark.parametrize(
    ("version", "modern"),
    [("2026-07-28", True), ("2099-01-01", True), ("", True), ("2025-11-25", False), (" 2025-03-26 ", False), (None, False)],
)
def test_the_version_header_chooses_the_era(version: str | None, modern: bool) -> None:
    assert mcp.is_2026({} if version is None else {"mcp-protocol-version": version}) is modern


@pytest.mark.parametrize(("code", "status"), [(-32700, 400), (-32021, 400), (-32601, 404), (-32603, 500)])
def test_each_code_has_its_status(code: int, status: int) -> None:
    assert mcp.http_status(RpcError(code, "", 1)) == status


# -- a call's params ------------------------------------------------------------------------------------------------------


def test_a_call_is_read_with_all_its_meta() -> None:
    call = tool_call(read(MESSAGES["2026 call of Claude Code"]))  # type: ignore[arg-type]
    assert (call.name, call.arguments, call.progress_token) == ("hold_progress", {"secs": 480, "every": 20}, 1)
    assert call.meta[mcp.META_TOOL_USE_ID] == "toolu_01FAKE0000000000000000001"


def test_arguments_and_meta_may_be_absent() -> None:
    assert tool_call(Request(1, "tools/call", {"name": "echo"})) == ToolCall("echo", {}, {})
    assert tool_call(Request(1, "tools/call", {"name": "echo", "arguments": None, "_meta": None})).progress_token is None


@pytest.mark.parametrize("params", [{}, {"name": 1}, {"name": "a", "arguments": []}, {"name": "a", "arguments": "{}"}, {"name": "a", "_meta": 0}])
def test_a_call_out_of_shape_is_invalid_params(params: dict[str, Any]) -> None:
    with pytest.raises(RpcError) as caught:
        tool_call(Request(5, "tools/call", params))
    assert (caught.value.code, caught.value.id) == (-32602, 5)


@pytest.mark.parametrize("token", [True, 1.5, [], {}])
def test_a_progress_token_of_another_type_is_none(token: Any) -> None:
    assert ToolCall("a", {}, {"progressToken": token}).progress_token is None


def test_only_our_own_keys_are_stripped() -> None:
    meta = {mcp.META_CALL: 1, mcp.META_BUDGET: 2, "tool-call-gateway/new": 3, "tool-call-gatewayx/a": 4, mcp.META_TOOL_USE_ID: "t", "bare": 5}
    assert mcp.strip_ours(meta) == {"tool-call-gatewayx/a": 4, mcp.META_TOOL_USE_ID: "t", "bare": 5}


# -- results --------------------------------------------------------------------------------------------------------------


def test_results_are_completed_as_captured() -> None:
    for name in ("2026 result", "2026 error result"):
        captured = MESSAGES[name]["result"]
        bare = {key: value for key, value in captured.items() if key not in ("resultType", "_meta")}
        assert mcp.complete(bare, SERVER) == captured


def test_what_an_upstream_already_said_is_kept() -> None:
    result = {"content": [], "resultType": "input_required", "x": {"y": 1}, "_meta": {"a": 1, mcp.META_SERVER_INFO: {"name": "theirs"}}}
    assert mcp.complete(result, SERVER) == result
    assert mcp.complete({"content": [], "_meta": {"a": 1}}, SERVER)["_meta"] == {"a": 1, mcp.META_SERVER_INFO: SERVER}


@pytest.mark.parametrize("meta", [None, [], 5, "x"])
def test_a_meta_that_is_no_object_gives_way(meta: Any) -> None:
    assert mcp.complete({"_meta": meta}, SERVER)["_meta"] == {mcp.META_SERVER_INFO: SERVER}


def test_discover_and_lists_are_written_as_captured() -> None:
    discovered, listed = MESSAGES["2026 discovered"]["result"], MESSAGES["2026 listed"]["result"]
    assert mcp.complete(mcp.discover({"tools": {"listChanged": False}}, ttl_ms=0), SERVER) == discovered
    assert mcp.complete(mcp.tools_list(listed["tools"], ttl_ms=60_000), SERVER) == listed
    assert mcp.tools_list([], ttl_ms=0, next_cursor="c")["nextCursor"] == "c"
    assert mcp.discover({}, ttl_ms=0, instructions="Ask first.")["instructions"] == "Ask first."


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [("2025-11-25", "2025-11-25"), ("2025-03-26", "2025-03-26"), ("2026-07-28", "2025-11-25"), ("1", "2025-11-25"), ([], "2025-11-25")],
)
def test_initialize_agrees_on_a_version_of_the_session_era(asked: Any, agreed: str) -> None:
    captured = MESSAGES["2025 initialized answer"]["result"]
    assert mcp.initialize_result(asked, {"tools": {"listChanged": False}}, SERVER) == {**captured, "protocolVersion": agreed}


def test_initialize_may_carry_instructions() -> None:
    assert "instructions" not in mcp.initialize_result("2025-11-25", {}, SERVER)
    assert mcp.initialize_result("2025-11-25", {}, SERVER, "Ask first.")["instructions"] == "Ask first."


def test_progress_is_written_as_captured() -> None:
    assert mcp.progress(1, 1, 3, "step 1") == MESSAGES["progress"]
    assert mcp.progress(1, 2, message="waiting for approval ap_1") == MESSAGES["progress without total"]


def test_a_text_result_carries_structure_only_when_there_is_some() -> None:
    assert mcp.call_result_text("no", True) == {"content": [{"type": "text", "text": "no"}], "isError": True}
    assert mcp.call_result_text("ok", False, {})["structuredContent"] == {}


# -- names ----------------------------------------------------------------------------------------------------------------


def test_a_tool_is_listed_without_dots() -> None:
    assert listed_name("crm.get_order") == "crm__get_order"
    assert listed_name("srv.admin.tools-list/é") == "srv__admin_tools-list__"


def test_either_form_of_a_name_is_accepted() -> None:
    names = ListedNames(["crm.get_order", "files.read"])
    assert names.listed("files.read") == "files__read"
    assert names.name("files__read") == names.name("files.read") == "files.read"
    assert names.name("files__write") is None
    assert names.name("read") is None


def test_long_names_are_shortened_by_hash_and_stay_apart() -> None:
    long = ["up." + "x" * 80 + end for end in ("a", "b")]
    names = ListedNames(long)
    assert len({names.listed(name) for name in long}) == 2
    assert all(len(names.listed(name)) <= 64 for name in long)
    assert listed_name(long[0]) == names.listed(long[0])


def test_a_name_of_64_is_listed_in_full() -> None:
    assert listed_name("up." + "x" * 60) == "up__" + "x" * 60
    assert len(listed_name("up." + "x" * 61)) == 64
    assert listed_name("up." + "x" * 61).startswith("up__" + "x" * 50 + "__")


def test_names_that_would_be_listed_alike_all_get_a_hash() -> None:
    names = ["a.b__c", "a__b.c", "a.b.c", "a.b_c", "a.other"]
    for order in permutations(names):
        listed = ListedNames(order)
        assert [listed.listed(name) for name in names] == [ListedNames(names).listed(name) for name in names]
        assert listed.name("a__b__c") is None
        assert listed.listed("a.other") == "a__other"


def test_a_tool_that_takes_the_hashed_name_of_another_is_moved_too() -> None:
    crowd = ["a.x.y", "a.x_y"]
    forged = "a." + ListedNames(crowd).listed("a.x.y").removeprefix("a__")
    names = ListedNames([*crowd, forged])
    assert len({names.listed(name) for name in (*crowd, forged)}) == 3
    assert names.name(names.listed(forged)) == forged


@settings(max_examples=300, deadline=None)
@given(st.sets(st.builds("{}.{}".format, st.text("ab_-", min_size=1, max_size=4), st.text("ab._-/é", min_size=1, max_size=70)), max_size=30))
def test_listed_names_are_a_two_way_map(names: set[str]) -> None:
    listed = ListedNames(names)
    shown = [listed.listed(name) for name in names]
    assert len(set(shown)) == len(names)
    assert all("__" in one and len(one) <= 64 and set(one) <= set("ab_-0123456789cdef") for one in shown)
    assert all(listed.name(listed.listed(name)) == listed.name(name) == name for name in names)
