"""Definitions as operators see and accept them, and what a definition that isn't accepted means for calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from gateway.core.deployment import STREAM
from gateway.core.events import ToolsAccepted
from gateway.core.model import CallRequest, Completed, Failed, Held, Refused, Reply
from gateway.core.run import stream_of
from gateway.engine import Caller, RunRequest
from gateway.ports import Answer, RequestFault
from tests.offered import BOT, MIA, OPS, VIC, Offered, defined, offered

pytestmark = pytest.mark.anyio

GET, PAY = defined("get"), defined("pay")
OTHER = defined("pay", description="Pays somebody else.")


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[Offered]:
    async with offered(tmp_path, GET, PAY) as it:
        yield it


async def opened(it: Offered) -> str:
    return (await it.engine.open_run(BOT, RunRequest("rest"))).run.id


async def called(it: Offered, run: str, tool: str = "shop.pay", **arguments: Any) -> Reply:
    return await it.engine.call(BOT, run, CallRequest(tool, arguments, "rest"))


async def accepted(it: Offered, name: str = "shop.pay") -> None:
    tool = it.catalog.tool(name)
    assert tool is not None
    await it.engine.accept_definitions(OPS, {name: tool.digest})


async def refused(asked: Awaitable[Any]) -> str:
    with pytest.raises(RequestFault) as why:
        await asked
    return why.value.reason


def reason(reply: Reply) -> str:
    assert isinstance(reply, Refused)
    return reply.findings[0].reason


async def test_a_changed_tool_is_neither_listed_nor_called_until_it_is_accepted(it: Offered) -> None:
    run = await opened(it)
    await it.offers(GET, OTHER, defined("new"))
    assert [one.tool.name for one in await it.engine.tools(BOT, run)] == ["shop.get"]
    assert [reason(await called(it, run, tool)) for tool in ("shop.pay", "shop.new")] == ["tool.changed", "tool.changed"]
    await accepted(it)
    assert [one.tool.name for one in await it.engine.tools(BOT, run)] == ["shop.get", "shop.pay"]
    assert isinstance(await called(it, run), Held)
    assert it.shop.sent == []


async def test_definitions_say_what_is_accepted_and_what_is_offered_now(it: Offered) -> None:
    await it.offers(OTHER, defined("new"), defined("odd", inputSchema={"$ref": "https://example.com/x"}))
    seen = {one.name: one for one in await it.engine.definitions(VIC)}
    assert {name: one.state for name, one in seen.items()} == {"shop.get": "away", "shop.new": "new", "shop.odd": "new", "shop.pay": "changed"}
    assert (seen["shop.pay"].accepted, seen["shop.new"].accepted) == (PAY, None)
    await accepted(it, "shop.odd")
    await accepted(it)
    seen = {one.name: one for one in await it.engine.definitions(OPS)}
    assert (seen["shop.odd"].state, seen["shop.pay"].state, seen["shop.pay"].accepted) == ("unsupported", "accepted", None)


async def test_only_operators_accept_and_viewers_look(it: Offered) -> None:
    for who in (BOT, MIA, Caller(OPS.principal, run="run_x")):
        assert await refused(it.engine.definitions(who)) == "auth.forbidden"
    for who in (BOT, MIA, VIC, Caller(OPS.principal, run="run_x")):
        assert await refused(it.engine.accept_definitions(who, {})) == "auth.forbidden"


async def test_what_is_accepted_is_what_was_seen_all_of_it_or_nothing(it: Offered) -> None:
    await it.offers(defined("get", title="Get"), OTHER)
    get = it.catalog.tool("shop.get")
    assert get is not None
    assert await refused(it.engine.accept_definitions(OPS, {"shop.get": get.digest, "shop.pay": "0" * 64})) == "tool.digest"
    assert await refused(it.engine.accept_definitions(OPS, {"shop.get": get.digest, "shop.gone": get.digest})) == "tool.digest"
    assert [one.state for one in await it.engine.definitions(OPS)] == ["changed", "changed"]


async def test_who_accepted_what_is_recorded_once(it: Offered) -> None:
    await it.offers(GET, OTHER)
    for _ in range(2):
        await accepted(it)
    events = [one for one in await it.engine.ledger.events(STREAM) if isinstance(one.event, ToolsAccepted)]
    tool = it.catalog.tool("shop.pay")
    assert tool is not None
    assert [one.event for one in events] == [ToolsAccepted("user:ops", {"shop.pay": tool.digest})]
    [view] = [one for one in await it.engine.definitions(OPS) if one.name == "shop.pay"]
    assert view.pin is not None
    assert (view.pin.by, view.pin.at) == ("user:ops", events[0].at)


# ---- approvals ----------------------------------------------------------------------------------------------------------


async def approved(it: Offered, run: str) -> str:
    held = await called(it, run)
    assert isinstance(held, Held)
    hold = await it.engine.hold(MIA, held.hold)
    await it.engine.vote(MIA, held.hold, "approve", hold.hold.digest, "")
    return held.hold


async def state_of(it: Offered, hold: str) -> str:
    state: str = (await it.engine.ledger.state(stream_of(hold))).holds[hold].state
    return state


async def test_an_approval_given_under_the_old_definition_is_void_and_people_are_asked_anew(it: Offered) -> None:
    run = await opened(it)
    hold = await approved(it, run)
    await it.offers(GET, OTHER)
    assert reason(await called(it, run)) == "tool.changed"
    await accepted(it)
    again = await called(it, run)
    assert isinstance(again, Held)
    assert (again.hold != hold, await state_of(it, hold), it.shop.sent) == (True, "void", [])


async def test_a_definition_that_is_what_it_was_again_is_what_was_approved(it: Offered) -> None:
    run = await opened(it)
    await approved(it, run)
    await it.offers(GET, OTHER)
    assert reason(await called(it, run)) == "tool.changed"
    await it.offers(GET, PAY)
    assert isinstance(await called(it, run), Completed)


async def test_a_record_still_answers_for_a_tool_that_is_held_back(it: Offered) -> None:
    run = await opened(it)
    await approved(it, run)
    first = await called(it, run)
    await it.offers(GET, OTHER)
    again = await called(it, run)
    assert isinstance(first, Completed)
    assert isinstance(again, Completed)
    assert (again.replayed, again.call, len(it.shop.sent)) == (True, first.call, 1)


@pytest.mark.parametrize("accepts", [False, True])
async def test_a_definition_that_changes_between_intent_and_dispatch_sends_nothing(it: Offered, accepts: bool) -> None:
    run = await opened(it)
    await approved(it, run)

    async def change() -> None:
        await it.offers(GET, OTHER)
        if accepts:
            await accepted(it)

    it.ledger.between = change
    reply = await called(it, run)
    assert isinstance(reply, Failed)
    assert (reply.outcome.not_applied, it.shop.sent) == (True, [])


async def test_a_call_is_not_sent_again_to_what_its_tool_has_become_meanwhile(it: Offered) -> None:
    async def change() -> Answer:
        await it.offers(defined("get", title="Other"), PAY)
        return Answer({"content": [], "isError": True}, 503)

    it.shop.act = change
    await called(it, await opened(it), "shop.get")
    assert len(it.shop.sent) == 1
