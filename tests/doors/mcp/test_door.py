"""What the MCP endpoint says before any era is at stake: methods, callers that nobody knows; and which era a request is of."""

from __future__ import annotations

import pytest

from tests.doors.mcp.stage import Exchange, FakeEngine, door, initialize, message, post

pytestmark = pytest.mark.anyio

CALL = message(arguments={"text": "x"})


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "DELETE"])
async def test_other_methods_are_not_allowed(method):
    exchange = await post(door(FakeEngine()), b"", method=method)
    assert (exchange.status, exchange.headers["allow"], exchange.body) == (405, "POST, DELETE", b"")


async def test_a_caller_that_is_not_known_gets_401_before_its_body_is_read():
    exchange = await post(door(FakeEngine()), CALL, authorization="Bearer wrong")
    assert (exchange.status, exchange.json["error"]["code"], exchange.json["error"]["data"]["reason"]) == (401, -32000, "auth.required")
    assert (exchange.headers["www-authenticate"].startswith("Bearer"), exchange.reads) == (True, 0)


async def test_a_caller_that_leaves_with_half_a_body_is_not_answered():
    exchange = Exchange(door(FakeEngine()), CALL)
    exchange._messages.get_nowait()
    exchange._messages.put_nowait({"type": "http.request", "body": b"{", "more_body": True})
    exchange.leave()
    await exchange.answered()
    assert exchange.sent == []


@pytest.mark.parametrize("version", [None, "2025-11-25", "2024-11-05", " 2025-06-18 "])
async def test_a_request_without_the_new_version_header_is_of_the_session_era(version):
    exchange = await post(door(FakeEngine()), initialize(), mcp_protocol_version=version)
    assert (exchange.status, exchange.result["protocolVersion"], "mcp-session-id" in exchange.headers) == (200, "2025-11-25", True)


async def test_any_other_version_is_asked_for_the_envelope_of_2026():
    exchange = await post(door(FakeEngine()), initialize(), mcp_protocol_version="2027-01-01")
    assert (exchange.status, exchange.json["error"]["code"], "mcp-session-id" in exchange.headers) == (400, -32602, False)
