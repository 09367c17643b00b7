"""What we write to a server equals what real clients wrote; its answers show its era."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.wire import mcp, mcp_client
from gateway.wire.jsonrpc import Request, Response, read
from gateway.wire.mcp_client import Dialect, PeerError

MESSAGES: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "messages.json").read_text())
AGENT = {"name": "demo-agent", "version": "1.0"}
MODERN, OLD = Dialect("2026-07-28", AGENT), Dialect("2025-11-25", AGENT)
TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"}


def answer(name: str) -> Response:
    seen = read(MESSAGES[name])
    assert isinstance(seen, Response)
    return seen


def failed(code: int, data: Any = None) -> Response:
    return Response(1, None, {"code": code, "message": "no", "data": data})


def test_requests_of_2026_are_written_as_captured() -> None:
    assert mcp_client.discover(1, AGENT) == MESSAGES["2026 discover"]
    assert MODERN.list_tools(2) == MESSAGES["2026 list"]
    assert MODERN.call_tool(1, "echo", {"text": "hi"}, TRACE) == MESSAGES["2026 call"]
    assert MODERN.call_tool(1, "slow", {"steps": 3, "delay": 0.05}, progress_token=1) == MESSAGES["2026 call with progress"]


def test_requests_of_the_session_era_are_written_as_captured() -> None:
    written = mcp_client.initialize(1, AGENT)
    assert set(written["params"].pop("capabilities")) == {"elicitation", "sampling", "roots"}
    captured = MESSAGES["2025 initialize"]
    assert written == {**captured, "params": {name: value for name, value in captured["params"].items() if name != "capabilities"}}
    assert mcp_client.initialized() == MESSAGES["2025 initialized"]
    assert OLD.list_tools(3) == MESSAGES["2025 list"]
    assert OLD.call_tool(2, "echo", {"text": "hi"}, TRACE) == MESSAGES["2025 call"]
    assert OLD.call_tool(1, "pay", {"amount": 5, "account": "acc 1"}) == MESSAGES["2025 bare call"]
    assert OLD.call_tool(2, "slow", {"steps": 3, "delay": 0.05}, progress_token=2) == MESSAGES["2025 call with progress"]
    assert mcp_client.cancelled(2, "caller cancelled") == MESSAGES["2025 cancelled"]


def test_a_page_is_asked_for_by_its_cursor() -> None:
    assert OLD.list_tools(3, "c")["params"] == {"cursor": "c"}
    assert MODERN.list_tools(3, "c")["params"]["cursor"] == "c"


def test_what_belongs_to_the_agents_own_connection_stays_behind() -> None:
    meta = MESSAGES["2026 call of Claude Code"]["params"]["_meta"]
    assert OLD.call_tool(1, "a", {}, meta)["params"]["_meta"] == {mcp.META_TOOL_USE_ID: "toolu_01FAKE0000000000000000001"}
    sent = MODERN.call_tool(1, "a", {}, {**meta, **TRACE}, progress_token="p")["params"]["_meta"]
    assert sent[mcp.META_CLIENT_INFO] == AGENT
    assert sent[mcp.META_CLIENT_CAPABILITIES] == {}
    assert (sent["progressToken"], sent["traceparent"]) == ("p", TRACE["traceparent"])


def test_the_callers_meta_is_not_changed() -> None:
    params = {"_meta": {"a": 1}}
    MODERN.request(1, "prompts/list", params)
    assert params == {"_meta": {"a": 1}}


@pytest.mark.parametrize(
    ("seen", "modern"),
    [
        (answer("2026 discovered"), True),
        (failed(-32022, {"supported": ["2026-07-28"], "requested": "x"}), True),
        (answer("2026 missing param header"), True),
        (failed(-32021), True),
        (answer("2025 missing session"), False),
        (answer("2025 session not found"), False),
        (failed(-32601), False),
        (failed(-32602), False),
        (failed(-32022, {"supported": ["2025-11-25"]}), False),
        (failed(-32022), False),
        (Response(1, {}, None), False),
        (Response(1, None, None), False),
        (Response(1, {"supportedVersions": ["2027-01-01"]}, None), False),
        (Response(1, {"supportedVersions": "2026-07-28"}, None), False),
    ],
)
def test_the_answer_to_discover_shows_the_era(seen: Response, modern: bool) -> None:
    assert mcp_client.speaks_2026(seen) is modern


def test_the_agreed_version_is_the_servers() -> None:
    assert mcp_client.agreed_version(answer("2025 initialized answer")) == "2025-11-25"
    assert mcp_client.agreed_version(Response(1, {"protocolVersion": "2024-11-05"}, None)) == "2024-11-05"


UNKNOWN_VERSIONS: list[Any] = [None, [], {}, {"protocolVersion": "2026-07-28"}, {"protocolVersion": []}]


@pytest.mark.parametrize("seen", [failed(-32601), *(Response(1, result, None) for result in UNKNOWN_VERSIONS)])
def test_a_server_that_agrees_on_no_known_version_is_refused(seen: Response) -> None:
    with pytest.raises(PeerError):
        mcp_client.agreed_version(seen)


def test_a_page_of_tools_keeps_unknown_fields() -> None:
    page = MESSAGES["2026 listed"]["result"]
    assert mcp_client.tools_page(page) == (page["tools"], None)
    tool = {"name": "a", "inputSchema": {}, "icons": [1], "x": {"y": 2**70}}
    assert mcp_client.tools_page({"tools": [tool], "nextCursor": "n"}) == ([tool], "n")


@pytest.mark.parametrize(
    "page",
    [
        None,
        [],
        {},
        {"tools": {}},
        {"tools": ["a"]},
        {"tools": [{"inputSchema": {}}]},
        {"tools": [{"name": "", "inputSchema": {}}]},
        {"tools": [{"name": 1, "inputSchema": {}}]},
        {"tools": [{"name": "a"}]},
        {"tools": [{"name": "a", "inputSchema": None}]},
        {"tools": [], "nextCursor": 1},
    ],
)
def test_a_page_out_of_shape_is_refused(page: Any) -> None:
    with pytest.raises(PeerError):
        mcp_client.tools_page(page)


def test_a_servers_own_request_is_answered() -> None:
    assert mcp_client.answer_to(Request("p", "ping", {})) == {"jsonrpc": "2.0", "id": "p", "result": {}}
    elicitation = read(MESSAGES["2025 elicitation"])
    assert isinstance(elicitation, Request)
    assert mcp_client.answer_to(elicitation)["error"]["code"] == -32601
