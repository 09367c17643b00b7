"""MCP 2026-07-28 as a client meets it: what the protocol refuses, what a tool asks, what ends a call."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.ports import LedgerFault, RequestFault
from tests.doors.mcp.stage import CAPABILITIES, DONE, SERVER, VERSION, Exchange, FakeEngine, door, message, post, tool

pytestmark = pytest.mark.anyio

CALL = message(arguments={"text": "x"})


async def refused(body, **more):
    """Status, JSON-RPC code and id of a refusal that never reached the engine."""
    engine = FakeEngine()
    exchange = await post(door(engine), body, **more)
    assert engine.asked == []
    return exchange.status, exchange.json["error"]["code"], exchange.json["id"]


# ---- the ladder of the protocol -----------------------------------------------------------------------------------------


async def test_a_version_that_is_not_ours_is_told_the_one_that_is():
    exchange = await post(door(FakeEngine()), message(meta={VERSION: "2099-01-01"}), mcp_protocol_version="2099-01-01")
    assert exchange.status == 400
    assert exchange.json["error"] | {"message": ""} == {
        "code": -32022, "message": "", "data": {"supported": ["2026-07-28"], "requested": "2099-01-01"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "more", "expected"),
    [
        (CALL, {"mcp_method": None}, (400, -32020, 1)),
        (CALL, {"mcp_method": "tools/list"}, (400, -32020, 1)),
        (CALL, {"mcp_name": "other"}, (400, -32020, 1)),
        (CALL, {"mcp_name": None}, (400, -32020, 1)),
        (message(meta={VERSION: "2025-11-25"}), {}, (400, -32020, 1)),
        (message(meta={CAPABILITIES: None}), {}, (400, -32602, 1)),
        (message(meta={VERSION: None}), {}, (400, -32602, 1)),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "crm__echo"}}, {}, (400, -32602, 1)),
        (message("tasks/get", taskId="t1"), {}, (404, -32601, 1)),
        (message("subscriptions/listen"), {}, (400, -32602, 1)),
        (message("subscriptions/listen", notifications={}), {"accept": "application/json"}, (406, -32600, 1)),
        (message("prompts/list"), {}, (404, -32601, 1)),
        (message("resources/subscribe", uri="a:b"), {}, (404, -32601, 1)),
        (message(inputResponses=None), {}, (400, -32602, 1)),
        (message(inputResponses={"q": 7}), {}, (400, -32602, 1)),
        (message(requestState=7), {}, (400, -32602, 1)),
        (message("ping"), {}, (404, -32601, 1)),
        ([CALL, CALL], {}, (400, -32600, None)),
        ([], {}, (400, -32600, None)),
        ("tools/call", {}, (400, -32600, None)),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, {}, (400, -32600, None)),
        ({"jsonrpc": "1.0", "id": 1, "method": "tools/list"}, {}, (400, -32600, 1)),
        ({**CALL, "id": None}, {}, (400, -32600, None)),
        ({**CALL, "id": 1.5}, {}, (400, -32600, None)),
        (b"", {"mcp_method": "tools/list"}, (400, -32700, None)),
        (b'{"jsonrpc":"2.0",', {}, (400, -32700, None)),
        (b'{"id":1,"id":2}', {}, (400, -32700, None)),
        (b'{"id":NaN}', {}, (400, -32700, None)),
        (b"[" * 65 + b"]" * 65, {}, (400, -32700, None)),
        (message("tools/call", name=7), {"mcp_name": "7"}, (400, -32020, 1)),
        (message("tools/call", name=None), {}, (400, -32602, 1)),
        (message("tools/call", name="a\nb"), {"mcp_name": "=?base64?YQpi?="}, (400, -32602, 1)),
    ],
)  # fmt: skip
async def test_what_the_protocol_refuses_is_a_json_rpc_error_with_its_status(body, more, expected):
    assert await refused(body, **more) == expected


async def test_a_notification_is_accepted_and_has_no_answer():
    engine = FakeEngine()
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    exchange = await post(door(engine), body)
    assert (exchange.status, exchange.body, engine.asked) == (202, b"", [])


async def test_a_session_header_means_nothing_here():
    exchange = await post(door(FakeEngine()), CALL, mcp_session_id="abc")
    assert (exchange.status, "mcp-session-id" in exchange.headers) == (200, False)


async def test_unknown_members_of_the_envelope_are_no_mistake():
    assert (await post(door(FakeEngine()), message(meta={"com.example/run": "r1", "bare": 1}))).status == 200


# ---- what needs no run --------------------------------------------------------------------------------------------------


async def test_discover_tells_versions_and_capabilities_and_opens_no_run():
    engine = FakeEngine()
    exchange = await post(door(engine), message("server/discover"))
    result = exchange.result
    assert (exchange.status, result["supportedVersions"], result["capabilities"]) == (200, ["2026-07-28"], {"tools": {"listChanged": True}})
    assert (result["resultType"], result["cacheScope"], result["ttlMs"]) == ("complete", "private", 60_000)
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == SERVER
    assert engine.runs == []


# ---- tools/list ---------------------------------------------------------------------------------------------------------


async def test_a_list_that_the_gateway_refuses_says_why(caplog):
    engine = FakeEngine()

    async def refuse(who, door):
        raise RequestFault("policy.none", "No policy matches.")

    async def fail(who, door):
        raise LedgerFault("disk full")

    for implicit, status, code in ((refuse, 403, "policy.none"), (fail, 503, "ledger.unavailable")):
        engine.implicit_run = implicit
        exchange = await post(door(engine), message("tools/list"))
        error = exchange.json["error"]
        assert (exchange.status, exchange.json["id"], error["code"], error["data"]["reason"]) == (status, 1, -32000, code)


async def test_a_mistake_of_the_gateway_is_an_answer_and_a_log_entry(caplog):
    engine = FakeEngine()
    engine.tools = None
    exchange = await post(door(engine), message("tools/list"))
    assert (exchange.status, exchange.json["error"]["data"]["reason"]) == (500, "gateway.failed")
    assert "NoneType" not in exchange.body.decode()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


# ---- tools/call ---------------------------------------------------------------------------------------------------------


async def test_a_result_comes_back_under_the_request_s_own_id():
    exchange = await post(door(FakeEngine()), {**CALL, "id": "a-1"})
    assert (exchange.status, exchange.json["jsonrpc"], exchange.json["id"]) == (200, "2.0", "a-1")
    assert (exchange.result["content"], exchange.result["resultType"]) == (DONE.result["content"], "complete")
    assert exchange.result["_meta"]["io.modelcontextprotocol/serverInfo"] == SERVER
    assert int(exchange.headers["content-length"]) == len(exchange.body)


async def test_a_marked_argument_must_agree_with_its_header():
    schema = {"type": "object", "properties": {"account": {"type": "string", "x-mcp-header": "Account"}}}
    engine = FakeEngine(tool("crm.echo", inputSchema=schema))
    body = message(arguments={"account": "a 1"})
    for account in (None, "b"):
        exchange = await post(door(engine), body, mcp_param_account=account)
        assert (exchange.status, exchange.json["error"]["code"], exchange.json["id"], engine.asked) == (400, -32020, 1, [])
    assert (await post(door(engine), body, mcp_param_account="a 1")).status == 200


# ---- leaving and stopping -----------------------------------------------------------------------------------------------


async def test_a_call_that_ends_soon_never_reads_past_its_body():
    exchange = await post(door(FakeEngine()), CALL)
    assert exchange.reads == 1


async def test_closing_the_stream_tells_the_engine_that_the_caller_has_gone():
    engine, left = FakeEngine(), []

    async def until_gone(progress, gone):
        await gone
        left.append(True)
        return DONE

    engine.reply = until_gone
    exchange = Exchange(door(engine), CALL)
    exchange.leave()
    await exchange.answered()
    assert left == [True]


async def test_no_task_outlives_a_call():
    engine = FakeEngine()

    async def long(progress, gone):
        await exchange.listening.wait()
        return DONE

    engine.reply = long
    before = asyncio.all_tasks()
    exchange = Exchange(door(engine), CALL)
    await exchange.answered()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("token", [None, 5])
async def test_a_server_that_stops_still_ends_each_answer(token):
    engine, started = FakeEngine(), asyncio.Event()

    async def for_ever(progress, gone):
        if progress:
            progress({"progress": 1})
        started.set()
        await asyncio.Future()

    engine.reply = for_ever
    exchange = Exchange(door(engine), message(meta={"progressToken": token}))
    async with asyncio.timeout(5):
        await started.wait()
        exchange.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange.task
    final = exchange.events[-1] if token else exchange.json
    assert (exchange.ended, final["id"], final["result"]["structuredContent"]["reason"]) == (True, 1, "call.in_flight")
