"""The HTTP form of a request, which run it is about, and what a fault outside of calls is told as."""

from __future__ import annotations

import pytest

from gateway.core.model import Principal
from gateway.doors.mcp.post import Rejected, refusal
from gateway.engine import Caller
from gateway.ports import LedgerFault, RequestFault
from gateway.wire.jsonrpc import RpcError
from tests.doors.mcp.stage import ANA, FakeEngine, door, message, post

pytestmark = pytest.mark.anyio

CALL = message(arguments={"text": "x"})


async def refused(body, **more):
    """Status, JSON-RPC code and id of a refusal that never reached the engine."""
    engine = FakeEngine()
    exchange = await post(door(engine), body, **more)
    assert engine.asked == []
    return exchange.status, exchange.json["error"]["code"], exchange.json["id"]


@pytest.mark.parametrize(
    "twice", ["mcp-protocol-version", "mcp-method", "mcp-name", "gateway-run", "mcp-session-id", "gateway-call-id", "gateway-turn"]
)
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


@pytest.mark.parametrize(
    ("fault", "status", "code", "reason"),
    [
        (Rejected(404, "no session"), 404, -32600, None),
        (RpcError(-32601, "no method", 1), 404, -32601, None),
        (RequestFault("policy.none", "No policy."), 403, -32000, "policy.none"),
        (LedgerFault("disk full"), 503, -32000, "ledger.unavailable"),
        (ZeroDivisionError("disk full"), 500, -32000, "gateway.failed"),
    ],
)
async def test_each_fault_has_its_status_and_its_json_rpc_error(fault, status, code, reason, caplog):
    answered, error, _ = refusal(fault, 1)
    assert (answered, error["error"]["code"], error["error"].get("data", {}).get("reason")) == (status, code, reason)
    assert "disk full" not in str(error)
    assert len(caplog.records) == (not isinstance(fault, RpcError | RequestFault))
