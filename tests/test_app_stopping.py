"""Told to stop, over real sockets: who waits is answered, what runs has its grace, and what doesn't end in it is recorded and told."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.agents import mcp_post
from tests.serving import served
from tests.upstreams.origin import Connection
from tests.waiting import until

pytestmark = pytest.mark.anyio

REFUND, ORDER = {"tool": "shop.refund", "arguments": {"amount": 5}}, {"tool": "shop.get_order", "arguments": {"id": "1"}}
HELD = {"tool": "shop.refund", "arguments": {"amount": 500}, "wait": 60}


class Slow:
    """An upstream that answers once `go_on` is set. `asked`: a request is here; `hung_up`: its client has left."""

    def __init__(self) -> None:
        self.asked, self.go_on, self.hung_up = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, connection: Connection) -> None:
        await connection.request()
        self.asked.set()
        closed, going = asyncio.ensure_future(connection.closed()), asyncio.ensure_future(self.go_on.wait())
        await asyncio.wait({closed, going}, return_when=asyncio.FIRST_COMPLETED)
        if going.done():
            await connection.answer(b'{"done": true}')
        else:
            self.hung_up.set()
        closed.cancel()
        going.cancel()


async def stopped_under_way(folder: Path, slow: Slow, grace: str, call: dict[str, Any]) -> httpx.Response:
    """What a caller is told whose call is under way when the gateway is told to stop; with much grace it may end."""
    async with AsyncExitStack() as later:
        async with served(folder, slow, extra_settings=f"stop_grace: {grace}\n") as it:
            bot = await later.enter_async_context(it.client())
            run = (await bot.post("/v1/runs", json={"run_key": "stop"})).json()["run"]
            calling = asyncio.ensure_future(bot.post(f"/v1/runs/{run}/calls", json=call))
            await until(lambda: bool(slow.asked.is_set() or it.app.engine.watches), "the call")
            if grace == "60s":
                asyncio.get_running_loop().call_later(0.2, slow.go_on.set)
        return await asyncio.wait_for(calling, 5)


async def recorded(folder: Path) -> list[tuple[str, str | None]]:
    """The states of all calls, as the next gateway finds them."""
    async with served(folder) as it:
        return [(row["state"], row["reason"]) for row in await it.app.engine.ledger.rows("calls", {})]


async def test_what_runs_may_finish_within_the_grace(tmp_path: Path) -> None:
    told = await stopped_under_way(tmp_path, Slow(), "60s", REFUND)
    assert (told.status_code, told.json()["result"]["structuredContent"]) == (200, {"done": True})
    assert await recorded(tmp_path) == [("succeeded", None)]


@pytest.mark.parametrize(("call", "reason", "state"), [(REFUND, "call.in_doubt", "in_doubt"), (ORDER, "call.cancelled", "cancelled")])
async def test_what_does_not_is_ended_at_its_upstream_recorded_and_told(tmp_path: Path, call: Any, reason: str, state: str) -> None:
    slow = Slow()
    told = await stopped_under_way(tmp_path, slow, "200ms", call)
    assert (told.status_code, told.json()["reason"], slow.hung_up.is_set()) == (409, reason, True)
    assert await recorded(tmp_path) == [(state, reason)]


async def test_who_waits_for_people_is_answered_at_once_and_the_hold_stays(tmp_path: Path) -> None:
    told = await stopped_under_way(tmp_path, Slow(), "60s", HELD)
    assert (told.status_code, told.json()["status"]) == (202, "held")
    assert await recorded(tmp_path) == [("held", None)]


async def test_a_stream_that_has_begun_ends_with_an_answer(tmp_path: Path) -> None:
    params = {"name": "shop__refund", "arguments": {"amount": 500}, "_meta": {"progressToken": 7}}
    begun = asyncio.Event()

    async def begins(response: httpx.Response) -> None:
        begun.set()

    async with AsyncExitStack() as later:
        async with served(tmp_path) as it:
            it.app._mcp._stateless._heartbeat_s = 0.05
            bot = await later.enter_async_context(it.client(event_hooks={"response": [begins]}))
            calling = asyncio.ensure_future(mcp_post(bot, "tools/call", params, "/r/stop/mcp"))
            await asyncio.wait_for(begun.wait(), 5)
        answer = await asyncio.wait_for(calling, 5)
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert len(events) > 1
    assert events[-1]["result"]["structuredContent"]["status"] == "held"


async def test_while_it_stops_a_new_call_is_refused_with_503(tmp_path: Path) -> None:
    async with served(tmp_path) as it, it.client() as bot:
        run = (await bot.post("/v1/runs", json={})).json()["run"]
        await it.app.stop()
        told = await bot.post(f"/v1/runs/{run}/calls", json=ORDER)
        assert (told.status_code, told.json()["reason"], told.headers["retry-after"]) == (503, "gateway.stopping", "2")
        answer = (await mcp_post(bot, "tools/call", {"name": "shop__get_order", "arguments": {"id": "1"}}, "/r/stop/mcp")).json()["result"]
        assert (answer["isError"], answer["structuredContent"]["reason"]) == (True, "gateway.stopping")
        assert it.origin.seen == []
