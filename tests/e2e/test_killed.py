"""kill -9 of the real process between intent and outcome, and what a restart makes of it: by effect, never twice what may not be twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.agents import Agent, McpAgent, RestAgent
from tests.e2e.process import gateway_process
from tests.e2e.web_upstream import Web, web_upstream
from tests.waiting import until

pytestmark = pytest.mark.anyio
DOORS = [RestAgent, McpAgent]


@pytest.fixture
async def web(anyio_backend: str) -> AsyncIterator[Web]:
    async with web_upstream() as it:
        yield it


async def broken_off(calls: list[asyncio.Task[str]]) -> None:
    """Nobody was told anything."""
    told = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(one, httpx.TransportError) for one in told)


async def settled(agent: Agent) -> dict[str, list[Any]]:
    """Tool -> how its call ended and how often it was admitted, once nothing runs any more."""
    await agent.until_calls(admitted=0)
    tools: dict[str, str] = {}
    found: dict[str, list[Any]] = {}
    for event in await agent.events():
        body = event["event"]
        if event["kind"] == "CallAdmitted":
            tools[body["call"]] = body["tool"]
            found.setdefault(body["tool"], [None, 0])[1] += 1
        elif event["kind"] == "CallSettled":
            found[tools[body["call"]]][0] = body["state"]
    return found


@pytest.mark.parametrize("kind", DOORS)
async def test_what_was_in_flight_is_settled_by_its_effect(tmp_path: Path, web: Web, kind: type[Agent]) -> None:
    async with gateway_process(tmp_path, web) as process:
        agent = kind(process, "plain", "web", "killed")
        await agent.open()
        calls = [agent.start(tool, id=tool, do="gate") for tool in ("read", "put", "pay")]
        calls.append(agent.start("desk.pay", id="desk", do="hang"))
        for tool in ("read", "put", "pay"):
            await web.reached(tool)
        await process.desk.reached("desk")
        await process.kill()
        await broken_off(calls)
        for tool in ("read", "put", "pay"):
            web.open_gate(tool)
        await process.start()
        assert await settled(agent) == {
            "web.read": ["succeeded", 2], "web.put": ["succeeded", 2], "web.pay": ["in_doubt", 1], "desk.pay": ["in_doubt", 1],
        }  # fmt: skip
        assert [len(web.of(tool)) for tool in ("read", "put", "pay")] == [2, 2, 1]
        assert len({one.key for one in web.of("put")}) == 1
        assert len(process.desk.calls("desk")) == 1
        assert await agent.call("put", id="put", do="gate") == "replayed"
        assert await agent.call("pay", id="pay", do="gate") == "refused:call.in_doubt"
        assert await agent.call("read", id="read", do="gate") == "done"
        assert await process.verify() == 0
        await process.stop()
        assert await process.verify() == 0


@pytest.mark.slow
@pytest.mark.parametrize("by", ["tight", "brief"])
async def test_without_budget_or_time_nothing_is_rerun(tmp_path: Path, web: Web, by: str) -> None:
    """A rerun is one more call: where none is left, a read is cancelled and a write in doubt."""
    async with gateway_process(tmp_path, web) as process:
        clock = asyncio.get_running_loop().time
        agent = RestAgent(process, by, "web", "spent")
        await agent.open()
        opened = clock()
        assert await agent.call("read", id="done") == "done"
        calls = [agent.start(tool, id=tool, do="gate") for tool in ("read", "put")]
        for tool in ("read", "put"):
            await web.reached(tool)
        await process.kill()
        await broken_off(calls)
        if by == "brief":
            await until(lambda: clock() > opened + 4, "the deadline")
        await process.start()
        await agent.until_calls(admitted=0)
        assert (await agent.look())["calls"] == {"succeeded": 1, "cancelled": 1, "in_doubt": 1}
        assert len(web.took) == 3
        if by == "brief":
            await agent.until_run(status="blocked", reason="deadline_exceeded")
        assert await process.verify() == 0


async def test_what_is_in_flight_is_told_to_those_who_ask_again_while_it_is_rerun(tmp_path: Path, web: Web) -> None:
    """The agent's own retry joins the recovery's dispatch: the upstream sees the key twice, once from before the crash."""
    async with gateway_process(tmp_path, web) as process:
        agent = RestAgent(process, "plain", "web", "joined")
        await agent.open()
        call = agent.start("put", id="p", do="gate")
        await web.reached("p")
        await process.kill()
        await broken_off([call])
        await process.start()
        await web.reached("p", 2)
        again = agent.start("put", id="p", do="gate")
        web.open_gate("p")
        assert await again == "replayed"
        assert ({one.key for one in web.of("p")}, len(web.of("p"))) == ({web.of("p")[0].key}, 2)


async def test_held_and_approved_calls_survive_and_are_executed_once(tmp_path: Path, web: Web) -> None:
    async with gateway_process(tmp_path, web) as process:
        agent = RestAgent(process, "plain", "web", "held")
        await agent.open()
        assert await agent.call("refund", id="approved before") == "held"
        await agent.vote("approve")
        assert await agent.call("refund", id="approved after") == "held"
        waiting = agent.start("waiting", id="waited for")
        await agent.until_calls(held=2)
        await process.kill()
        await broken_off([waiting])
        await process.start()
        assert (await agent.hold())["status"] == "held"
        assert await agent.call("refund", id="approved after") == "held"
        await agent.vote("approve")
        for id in ("approved before", "approved after"):
            assert await agent.call("refund", id=id) == "done"
            assert await agent.call("refund", id=id) == "replayed"
            assert len(web.of(id)) == 1
        assert web.of("waited for") == []
        assert await process.verify() == 0


@pytest.mark.slow
async def test_killed_again_and_again_no_payment_is_made_twice_and_none_is_lost(tmp_path: Path, web: Web) -> None:
    """Three lives; in each a payment is on the wire when the process dies. Whatever was acknowledged is still known in the last."""
    async with gateway_process(tmp_path, web) as process:
        agent = RestAgent(process, "plain", "web", "lives")
        await agent.open()
        for life in range(3):
            assert await agent.call("pay", id=f"done {life}") == "done"
            call = agent.start("pay", id=f"lost {life}", do="hang")
            await web.reached(f"lost {life}")
            await process.kill()
            await broken_off([call])
            await process.start()
        for life in range(3):
            assert await agent.call("pay", id=f"done {life}") == "replayed"
            assert await agent.call("pay", id=f"lost {life}", do="hang") == "refused:call.in_doubt"
            assert [len(web.of(f"{what} {life}")) for what in ("done", "lost")] == [1, 1]
        assert await process.verify() == 0
