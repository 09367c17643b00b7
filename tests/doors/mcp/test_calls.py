"""Which identity, turn and patience a tools/call carries, and where they may come from."""

from __future__ import annotations

import pytest

from gateway.core.model import Malformed
from tests.doors.mcp.stage import FakeEngine, door, message, post

pytestmark = pytest.mark.anyio

OURS = "tool-call-gateway/"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b8-01"


async def asked(meta=None, *, more=None, **params):
    engine = FakeEngine()
    exchange = await post(door(engine), message(meta=meta, **params), **(more or {}))
    assert exchange.status == 200, exchange.json
    return engine.asked[0]


async def test_without_any_of_it_a_call_has_no_identity_and_no_turn():
    call = await asked()
    assert (call.tool, call.arguments, call.door) == ("crm.echo", {}, "mcp")
    assert (call.call_id, call.operation_id, call.turn, call.wait_ms, call.trace) == (None, None, 0, None, {})


async def test_arguments_are_passed_as_they_came():
    arguments = {"n": 2**70, "x": 1.0, "deep": [{"": None}]}
    assert (await asked(arguments=arguments)).arguments == arguments
    assert (await asked(arguments=None)).arguments == {}


@pytest.mark.parametrize("arguments", [[], "{}", 0, False])
async def test_arguments_that_are_no_object_reach_the_engine_as_malformed(arguments):
    assert isinstance((await asked(arguments=arguments)).arguments, Malformed)


async def test_the_call_id_comes_from_our_meta_then_claude_code_s_then_the_header():
    more = {"gateway_call_id": "c3"}
    assert (await asked({OURS + "call_id": "c1", "claudecode/toolUseId": "c2"}, more=more)).call_id == "c1"
    assert (await asked({"claudecode/toolUseId": "c2"}, more=more)).call_id == "c2"
    assert (await asked(more=more)).call_id == "c3"


async def test_nothing_of_the_connection_is_taken_for_an_identity():
    call = await asked({"progressToken": "p1"}, more={"mcp_session_id": "s1", "idempotency_key": "k1"})
    assert (call.call_id, call.operation_id) == (None, None)


async def test_only_our_meta_names_an_operation():
    call = await asked({OURS + "operation_id": "op-1"}, more={"gateway_operation_id": "op-2"}, arguments={"operation_id": "op-3"})
    assert call.operation_id == "op-1"


async def test_the_turn_comes_from_our_meta_or_the_header():
    assert (await asked({OURS + "turn": 3}, more={"gateway_turn": "4"})).turn == 3
    assert (await asked(more={"gateway_turn": "4"})).turn == 4


@pytest.mark.parametrize(
    ("meta", "more"),
    [
        ({OURS + "call_id": ""}, {}),
        ({OURS + "call_id": 7}, {}),
        ({OURS + "call_id": "x" * 257}, {}),
        ({OURS + "call_id": "a\u0000"}, {}),
        ({"claudecode/toolUseId": []}, {}),
        ({OURS + "operation_id": {}}, {}),
        ({OURS + "turn": -1}, {}),
        ({OURS + "turn": "3"}, {}),
        ({OURS + "turn": True}, {}),
        ({OURS + "turn": 1.0}, {}),
        ({OURS + "turn": 10**9 + 1}, {}),
        ({}, {"gateway_turn": "three"}),
        ({}, {"gateway_turn": ""}),
        ({}, {"gateway_turn": "²"}),
        ({}, {"gateway_turn": "9" * 11}),
    ],
)
async def test_an_identity_or_turn_that_is_none_is_refused_to_the_harness(meta, more):
    engine = FakeEngine()
    exchange = await post(door(engine), message(meta=meta), **more)
    assert (exchange.status, exchange.json["error"]["code"], engine.asked) == (400, -32602, [])


@pytest.mark.parametrize(
    ("meta", "more", "wait_ms"),
    [
        ({}, {}, None),
        ({"io.modelcontextprotocol/clientInfo": {"name": "claude-code"}}, {}, None),
        ({"io.modelcontextprotocol/clientInfo": {"name": "mcp", "version": "0.1.0"}}, {}, 4_000),
        ({"io.modelcontextprotocol/clientInfo": {"name": "OpenAI-Agents"}}, {}, 4_000),
        ({"io.modelcontextprotocol/clientInfo": "mcp"}, {}, None),
        ({}, {"user_agent": "openai-agents/0.9"}, 4_000),
        ({"progressToken": 1}, {}, 300_000),
        ({"progressToken": "p", "io.modelcontextprotocol/clientInfo": {"name": "mcp"}}, {}, 300_000),
        ({"progressToken": True}, {}, None),
        ({"progressToken": 1}, {"accept": "application/json"}, None),
    ],
)
async def test_how_long_people_may_take_depends_on_the_client_s_patience(meta, more, wait_ms):
    assert (await asked(meta, more=more)).wait_ms == wait_ms


async def test_the_trace_comes_from_meta_before_the_header_and_only_if_well_formed():
    more = {"traceparent": PARENT, "x_request_id": "r-1"}
    assert (await asked(more=more)).trace == {"traceparent": PARENT, "x-request-id": "r-1"}
    assert (await asked({"traceparent": OTHER}, more=more)).trace["traceparent"] == OTHER
    for wrong in ("00-x", 7, "\ud83d\ude00"):
        assert (await asked({"traceparent": wrong}, more=more)).trace["traceparent"] == PARENT
