"""The ledger can't be written for a while: nothing starts, nobody is told what isn't recorded, and afterwards every call comes to an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.agents import RestAgent
from tests.e2e.serving import Stage, staged
from tests.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def stage(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as it:
        yield it


@contextmanager
def outage(stage: Stage) -> Iterator[None]:
    """SQLite itself refuses every write of the gateway's connection."""
    raw = stage.app.engine.ledger.store._raw
    raw.execute("PRAGMA query_only = ON")
    try:
        yield
    finally:
        raw.execute("PRAGMA query_only = OFF")


async def opened(stage: Stage) -> RestAgent:
    agent = RestAgent(stage, "plain", "web", "outage")
    await agent.open()
    return agent


async def test_without_a_ledger_not_a_byte_leaves_and_the_run_goes_on_afterwards(stage: Stage) -> None:
    agent = await opened(stage)
    with outage(stage):
        for tool in ("read", "put", "pay", "refund", "ghost"):
            assert await agent.call(tool, id="n") == "refused:ledger.unavailable"
        assert agent.last.retry_after is True
        assert stage.web.took == []
    await until(lambda: stage.app.engine.ledger._writer._fault is None, "the ledger")
    assert await agent.call("pay", id="n") == "done"


async def test_an_outcome_is_offered_again_until_it_is_recorded_and_only_then_told(stage: Stage) -> None:
    agent = await opened(stage)
    call = agent.start("pay", id="p", do="gate")
    await stage.web.reached("p")
    with outage(stage):
        stage.web.open_gate("p")
        await until(lambda: stage.web.running == 0, "the answer")
        assert await agent.call("read", id="r") == "refused:ledger.unavailable"
        assert not call.done()
    assert await call == "done"
    assert await agent.call("pay", id="p", do="gate") == "replayed"
    assert len(stage.web.of("p")) == 1


async def test_a_call_whose_next_try_could_not_be_recorded_still_comes_to_an_end(stage: Stage) -> None:
    """Its first try failed, its second is never admitted: it must not stay on the wire for ever, nor keep its run from ending."""
    agent = await opened(stage)
    call = agent.start("again_put", id="p", do="gate", size=500)
    await stage.web.reached("p")
    with outage(stage):
        stage.web.open_gate("p")
        await until(lambda: stage.web.running == 0, "the answer")
        assert await agent.call("read", id="r") == "refused:ledger.unavailable"
    assert await asyncio.wait_for(call, WAIT_S) == "done:tool.error"
    await agent.until_calls(admitted=0)
    await agent.post("/cancel")
    await agent.until_run(status="cancelled")
    assert len({one.key for one in stage.web.of("p")}) == 1


async def test_an_outcome_that_could_not_be_recorded_within_its_lease_is_not_told_and_recorded_when_that_can_be_done(stage: Stage) -> None:
    stage.app.engine.lease_ms = 1_000
    agent = await opened(stage)
    calls = {tool: agent.start(tool, id=tool, do="gate") for tool in ("quick_pay", "quick_put", "quick")}
    for tool in calls:
        await stage.web.reached(tool)
    with outage(stage):
        for tool in calls:
            stage.web.open_gate(tool)
        assert await asyncio.wait_for(asyncio.gather(*calls.values()), WAIT_S) == ["refused:ledger.unavailable"] * 3
    await agent.until_calls(admitted=0)
    assert (await agent.look())["calls"] == {"succeeded": 3}
    assert await agent.call("quick_pay", id="quick_pay", do="gate") == "replayed"
    assert [len(stage.web.of(tool)) for tool in calls] == [1, 1, 1]
