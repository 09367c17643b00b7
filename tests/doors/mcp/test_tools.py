"""Tools as both eras share them: pages, names, and faults of calls that a model can read."""

from __future__ import annotations

import logging

import pytest

from gateway.ports import LedgerFault, RequestFault
from tests.doors.mcp.stage import FakeEngine, door, message, post, tool

pytestmark = pytest.mark.anyio

CALL = message(arguments={"text": "x"})


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


async def test_a_short_name_is_the_run_s_own_to_give_and_no_tool_s_other_name():
    engine = FakeEngine()
    engine.short = {"say": "crm.echo", "crm__echo": "crm.other"}
    app = door(engine)
    for name in ("say", "crm__echo"):
        await post(app, message(name=name))
    assert [call.tool for call in engine.asked] == ["crm.echo", "crm.echo"]


async def test_a_short_name_in_a_run_that_there_is_not_is_refused_like_any_call():
    engine = FakeEngine()
    engine.reply = RequestFault("policy.none", "No policy.")
    assert (await post(door(engine), message(name="say"))).result["structuredContent"]["reason"] == "policy.none"


@pytest.mark.parametrize(("name", "meant"), [("nope", "nope"), ("crm__gone__x", "crm.gone__x"), ("crm.gone__x", "crm.gone__x")])
async def test_a_name_that_nobody_has_is_the_engine_s_to_judge(name, meant):
    engine = FakeEngine()
    await post(door(engine), message(name=name))
    assert engine.asked[0].tool == meant


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
