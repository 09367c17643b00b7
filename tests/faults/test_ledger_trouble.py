"""The disk is full, or can't sync, or a commit fails: nothing is admitted, everybody is told so, nothing is lost, and it passes by itself."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from tests.e2e.agents import McpAgent, RestAgent
from tests.faults.evidence import examined
from tests.faults.journal import TOOK
from tests.faults.running import Gateway
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
REFUSED = "refused:ledger.unavailable"


async def until_refused(agent: RestAgent) -> list[asyncio.Task[str]]:
    """A full disk may have room for another call or two, or for a call's intent and not for its outcome; those that wait for that."""
    waiting: list[asyncio.Task[str]] = []
    filling = count()

    async def refused() -> bool:
        call = asyncio.ensure_future(agent.call("read", id=f"filling {next(filling)} {'x' * 2_000}"))
        await asyncio.wait({call}, timeout=1)
        if not call.done():
            waiting.append(call)
        return call.done() and call.result() == REFUSED

    await eventually(refused, "the trouble")
    return waiting


async def until_well(agent: RestAgent) -> None:
    async def well() -> bool:
        return await agent.call("read", id="well?") == "done"

    await eventually(well, "the ledger")


@pytest.mark.parametrize("word", ["full", "limit", "sync", "away"])
async def test_without_a_disk_nothing_starts_everybody_is_told_and_afterwards_all_is_well(running: Gateway, word: str) -> None:
    agent, mcp = await running.agent("trouble"), McpAgent(running, "bot", "web", "trouble")  # type: ignore[arg-type]
    await mcp.open()
    assert await agent.call("ask", id="held") == "held"
    call = asyncio.ensure_future(agent.call("pay", id="paid", do="gate"))
    await running.took("paid")
    with running.trouble(word):
        waiting = await until_refused(agent)
        assert agent.last.retry_after is True
        for one in (agent, mcp):
            for tool in ("pay", "put", "read", "ask"):
                assert await one.call(tool, id=f"refused {tool}") == REFUSED
        assert (await agent.http.get("/readyz")).status_code == 503
        assert (await agent.http.post("/v1/runs", json={"run_key": "another"})).status_code == 503
        running.open_gate("paid")
        assert await agent.call("read", id="late") == REFUSED
        assert not call.done()
    assert [await one for one in (call, *waiting)] == ["done"] * (1 + len(waiting))
    await until_well(agent)
    assert (await agent.http.get("/readyz")).status_code == 200
    assert await agent.call("pay", id="paid", do="gate") == "replayed"
    assert await agent.call("pay", id="refused pay") == "done"
    assert [len(running.journal.of(TOOK, f"refused {tool}")) for tool in ("pay", "put", "read", "ask")] == [1, 0, 0, 0]
    await running.stop()
    assert await examined(running) == []


async def test_killed_in_its_trouble_nothing_is_lost_that_was_acknowledged(running: Gateway) -> None:
    agent = await running.agent("trouble and death")
    assert await agent.call("pay", id="done") == "done"
    call = asyncio.ensure_future(agent.call("pay", id="open", do="gate"))
    await running.took("open")
    with running.trouble("sync"):
        waiting = await until_refused(agent)
        running.open_gate("open")
        await running.kill()
        await asyncio.gather(call, *waiting, return_exceptions=True)
    await running.start()
    assert await agent.call("pay", id="done") == "replayed"
    assert await agent.call("pay", id="open", do="gate") == "refused:call.in_doubt"
    assert await examined(running) == []


async def test_a_commit_that_succeeded_and_seemed_to_fail_is_found_out(running: Gateway) -> None:
    agent = await running.agent("ambiguous")
    with running.trouble("lost"):
        for tool in ("pay", "put", "read"):
            assert await agent.call(tool, id=tool) == "done"
        assert await agent.call("pay", id="pay") == "replayed"
    assert [len(running.journal.of(TOOK, tool)) for tool in ("pay", "put", "read")] == [1, 1, 1]
    assert await examined(running) == []
