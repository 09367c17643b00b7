"""The MCP door of 2026-07-28 as a client meets it: what the protocol refuses, which run is meant, what ends a call."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.core.model import Principal
from gateway.engine import Caller
from gateway.ports import LedgerFault, RequestFault
from tests.doors.mcp.stage import ANA, CAPABILITIES, DONE, SERVER, VERSION, Exchange, FakeEngine, door, message, post, tool

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
        (message("subscriptions/listen"), {}, (404, -32601, 1)),
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


@pytest.mark.parametrize("twice", ["mcp-protocol-version", "mcp-method", "mcp-name", "gateway-run", "gateway-call-id", "gateway-turn"])
async def test_a_header_that_decides_something_may_stand_only_once(twice):
    raw = [(b"content-type", b"application/json"), (twice.encode(), b"a"), (twice.encode(), b"b")]
    assert await refused(CALL, raw=raw) == (400, -32020, None)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/jsonp", "application/x-www-form-urlencoded"])
async def test_a_body_that_is_not_declared_json_is_refused(kind):
    assert await refused(CALL, content_type=kind) == (415, -32600, None)


async def test_a_client_that_accepts_no_json_is_refused():
    assert await refused(CALL, accept="text/event-stream") == (406, -32600, None)


@pytest.mark.parametrize("accept", [None, "*/*", "application/*", "application/json;q=0.9"])
async def test_whatever_takes_json_is_accepted(accept):
    assert (await post(door(FakeEngine()), CALL, accept=accept, content_type="application/json; charset=utf-8")).status == 200


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read():
    body = message(arguments={"text": "x" * 2000})
    assert await refused_at(500, body) == (413, "request.too_large", 1)
    assert await refused_at(500, body, content_length="9999999") == (413, "request.too_large", 0)


async def refused_at(limit, body, **more):
    exchange = await post(door(FakeEngine(), body_bytes=limit), body, **more)
    return exchange.status, exchange.json["error"]["data"]["reason"], exchange.reads


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD"])
async def test_other_methods_are_not_allowed(method):
    exchange = await post(door(FakeEngine()), b"", method=method)
    assert (exchange.status, exchange.headers["allow"], exchange.body) == (405, "POST", b"")


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


# ---- the session era ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "version", "requested"),
    [
        ({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}, None, "2025-11-25"),
        ({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}, "2025-06-18", "2025-06-18"),
        ({**CALL, "id": 7}, None, "2025-03-26"),
    ],
)
async def test_a_request_of_the_session_era_is_told_what_is_spoken(body, version, requested):
    exchange = await post(door(FakeEngine()), body, mcp_protocol_version=version)
    error = exchange.json["error"]
    assert (exchange.status, exchange.json["id"], error["code"]) == (400, 7, -32022)
    assert error["data"] == {"supported": ["2026-07-28"], "requested": requested}


# ---- what needs no run --------------------------------------------------------------------------------------------------


async def test_discover_tells_versions_and_capabilities_and_opens_no_run():
    engine = FakeEngine()
    exchange = await post(door(engine), message("server/discover"))
    result = exchange.result
    assert (exchange.status, result["supportedVersions"], result["capabilities"]) == (200, ["2026-07-28"], {"tools": {"listChanged": False}})
    assert (result["resultType"], result["cacheScope"], result["ttlMs"]) == ("complete", "private", 60_000)
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == SERVER
    assert engine.runs == []


async def test_a_caller_that_is_not_known_gets_401_before_its_body_is_read():
    exchange = await post(door(FakeEngine()), CALL, authorization="Bearer wrong")
    assert (exchange.status, exchange.json["error"]["code"], exchange.json["error"]["data"]["reason"]) == (401, -32000, "auth.required")
    assert (exchange.headers["www-authenticate"].startswith("Bearer"), exchange.reads) == (True, 0)


# ---- tools/list ---------------------------------------------------------------------------------------------------------


async def test_tools_are_listed_by_their_listed_names_page_by_page():
    engine = FakeEngine(*[tool(f"crm.t{n}") for n in range(5)])
    app, seen, cursor = door(engine, tools_a_page=2), [], None
    for _ in range(3):
        result = (await post(app, message("tools/list", **({} if cursor is None else {"cursor": cursor})))).result
        seen += [one["name"] for one in result["tools"]]
        cursor = result.get("nextCursor")
    assert (seen, cursor) == ([f"crm__t{n}" for n in range(5)], None)
    assert (result["cacheScope"], result["resultType"], result["ttlMs"]) == ("private", "complete", 60_000)


async def test_a_cursor_that_is_not_ours_is_refused():
    engine = FakeEngine()
    for cursor in ("nonsense", 7, {}):
        exchange = await post(door(engine), message("tools/list", cursor=cursor))
        assert (exchange.status, exchange.json["error"]["code"]) == (400, -32602)


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


# ---- which run ----------------------------------------------------------------------------------------------------------


async def run_of(caller=ANA, body=CALL, **more):
    engine = FakeEngine()
    exchange = await post(door(engine, caller), body, **more)
    return engine.runs[0] if engine.runs else exchange.result["structuredContent"]["reason"]


async def test_the_run_comes_from_the_token_then_the_path_then_the_header_then_the_principal():
    token = Caller(Principal("agent:ana"), run="run_7")
    assert await run_of(token, path="/r/k1/mcp", gateway_run="k2") == "run_7"
    assert await run_of(path="/r/k1/mcp", gateway_run="k2") == "run of k1 of agent:ana by mcp"
    assert await run_of(gateway_run="ticket-881") == "run of ticket-881 of agent:ana by mcp"
    assert await run_of() == "implicit run of agent:ana by mcp"
    assert await run_of(body=message("tools/list"), gateway_run="k2") == "run of k2 of agent:ana by mcp"


@pytest.mark.parametrize("more", [{"gateway_run": ""}, {"gateway_run": "x" * 257}, {"path": "/r/a\nb/mcp"}, {"path": "/r//mcp"}])
async def test_a_run_key_that_is_none_is_refused_and_not_taken_for_the_implicit_run(more):
    assert await run_of(**more) == "request.malformed"


# ---- tools/call ---------------------------------------------------------------------------------------------------------


async def test_a_result_comes_back_under_the_request_s_own_id():
    exchange = await post(door(FakeEngine()), {**CALL, "id": "a-1"})
    assert (exchange.status, exchange.json["jsonrpc"], exchange.json["id"]) == (200, "2.0", "a-1")
    assert (exchange.result["content"], exchange.result["resultType"]) == (DONE.result["content"], "complete")
    assert exchange.result["_meta"]["io.modelcontextprotocol/serverInfo"] == SERVER
    assert int(exchange.headers["content-length"]) == len(exchange.body)


@pytest.mark.parametrize("name", ["crm__echo", "crm.echo"])
async def test_a_tool_is_known_by_its_listed_and_by_its_full_name(name):
    engine = FakeEngine()
    await post(door(engine), message(name=name))
    assert engine.asked[0].tool == "crm.echo"


async def test_a_tool_is_called_by_the_very_name_that_was_listed():
    engine = FakeEngine(tool("crm." + "x" * 80), tool("crm.a.b"), tool("crm.a_b"))
    app = door(engine)
    for one in (await post(app, message("tools/list"))).result["tools"]:
        await post(app, message(name=one["name"]))
    assert [call.tool for call in engine.asked] == [one.name for one in engine.all_tools]


@pytest.mark.parametrize(("name", "meant"), [("nope", "nope"), ("crm__gone__x", "crm.gone__x"), ("crm.gone__x", "crm.gone__x")])
async def test_a_name_that_nobody_has_is_the_engine_s_to_judge(name, meant):
    engine = FakeEngine()
    await post(door(engine), message(name=name))
    assert engine.asked[0].tool == meant


async def test_a_marked_argument_must_agree_with_its_header():
    schema = {"type": "object", "properties": {"account": {"type": "string", "x-mcp-header": "Account"}}}
    engine = FakeEngine(tool("crm.echo", inputSchema=schema))
    body = message(arguments={"account": "a 1"})
    for account in (None, "b"):
        exchange = await post(door(engine), body, mcp_param_account=account)
        assert (exchange.status, exchange.json["error"]["code"], exchange.json["id"], engine.asked) == (400, -32020, 1, [])
    assert (await post(door(engine), body, mcp_param_account="a 1")).status == 200


@pytest.mark.parametrize(
    ("fault", "code"), [(RequestFault("run.unknown", "There is no run."), "run.unknown"), (LedgerFault("disk full"), "ledger.unavailable")]
)
async def test_a_fault_of_a_call_is_a_result_that_a_model_can_read(fault, code, caplog):
    engine = FakeEngine()
    engine.reply = fault
    exchange = await post(door(engine), CALL)
    assert (exchange.status, exchange.result["isError"], exchange.result["structuredContent"]["reason"]) == (200, True, code)
    assert "disk full" not in exchange.body.decode()
    assert [record.getMessage().endswith("disk full") for record in caplog.records] == [True] * isinstance(fault, LedgerFault)


async def test_a_mistake_in_a_call_is_a_result_and_a_log_entry(caplog):
    engine = FakeEngine()
    engine.reply = ZeroDivisionError("secret")
    exchange = await post(door(engine), CALL)
    assert (exchange.status, exchange.result["structuredContent"]["reason"]) == (200, "gateway.failed")
    assert "secret" not in exchange.body.decode()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


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


async def test_a_caller_that_leaves_with_half_a_body_is_not_answered():
    exchange = Exchange(door(FakeEngine()), CALL)
    exchange._messages.get_nowait()
    exchange._messages.put_nowait({"type": "http.request", "body": b"{", "more_body": True})
    exchange.leave()
    await exchange.answered()
    assert exchange.sent == []


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
