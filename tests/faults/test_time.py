"""A process that was stopped for a while, and clocks that jump: no dispatch past its deadline, no more time than a tool was given, no two ends."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.faults.evidence import examined
from tests.faults.journal import TOOK
from tests.faults.running import Gateway
from tests.waiting import until

pytestmark = pytest.mark.anyio
HOUR_MS = 3_600_000
LEASE_S = 5.5
"""Longer than an attempt of 300 ms and its lease together."""


@pytest.mark.parametrize("effect", ["read", "put", "pay"])
async def test_what_wakes_up_after_its_deadline_sends_nothing(prepared: Gateway, effect: str) -> None:
    """Stopped between the intent and the dispatch: the intent's time is over when it goes on."""
    await prepared.start(stop_at="CallAdmitted.durable")
    agent = await prepared.agent("asleep")
    call = asyncio.ensure_future(agent.call(f"quick_{effect}", id="q"))
    await until(lambda: prepared.state == "T", "the stop")
    await asyncio.sleep(0.35)  # the 300 ms that the call has
    os.kill(prepared.pid, signal.SIGCONT)
    assert await call == "refused:upstream.unavailable"
    assert prepared.journal.of(TOOK, "q") == []
    assert await agent.call(f"quick_{effect}", id="q") == "done"
    assert await examined(prepared) == []


@pytest.mark.slow
async def test_stopped_past_its_lease_a_call_still_has_one_end(running: Gateway) -> None:
    """Its answer arrives while nobody listens. Whatever the gateway makes of that, it is one outcome, and the agent is told that one."""
    agent = await running.agent("long asleep")
    calls = [asyncio.ensure_future(agent.call(f"quick_{effect}", id=effect, do="slow")) for effect in ("read", "put", "pay")]
    for effect in ("read", "put", "pay"):
        await running.took(effect)
    os.kill(running.pid, signal.SIGSTOP)
    await asyncio.sleep(LEASE_S)
    os.kill(running.pid, signal.SIGCONT)
    told = await asyncio.gather(*calls)
    again = [await agent.call(f"quick_{effect}", id=effect, do="slow") for effect in ("put", "pay")]
    assert [one.replace("replayed", "done") for one in again] == told[1:]
    assert len(running.journal.of(TOOK, "pay")) == 1
    assert await examined(running) == []


def remaining_ms(running: Gateway, id: str) -> int:
    """What the upstream was told of the time that is left."""
    (entry,) = running.journal.of(TOOK, id)
    assert entry.remaining_ms is not None
    return entry.remaining_ms


@pytest.mark.parametrize("off_ms", [-HOUR_MS, -1_000, 1_000])
async def test_a_wall_clock_that_is_set_gives_no_tool_more_time(running: Gateway, off_ms: int) -> None:
    agent = await running.agent("set")
    assert await agent.call("pay", id="before") == "done"
    call = asyncio.ensure_future(agent.call("pay", id="across", do="gate"))
    await running.took("across")
    running.set_clock(off_ms)
    assert await agent.call("quick_pay", id="after") == "done"
    assert await agent.call("quick_pay", id="hangs", do="hang") == "refused:call.in_doubt"
    running.open_gate("across")
    assert await call == "done"
    assert await agent.call("pay", id="before") == "replayed"
    assert remaining_ms(running, "after") <= 300
    assert await examined(running, ahead_ms=max(0, off_ms)) == []


async def test_a_wall_clock_that_jumps_past_every_deadline_ends_runs_in_order(running: Gateway) -> None:
    """What is on the wire finishes; nothing starts; held calls end without an effect."""
    agent = await running.agent("far")
    assert await agent.call("ask", id="held") == "held"
    call = asyncio.ensure_future(agent.call("pay", id="across", do="gate"))
    await running.took("across")
    running.set_clock(HOUR_MS)
    assert await agent.call("pay", id="late") in ("refused:run.deadline", "refused:run.not_open")
    running.open_gate("across")
    assert await call == "done"
    await agent.until_run(status="blocked", reason="deadline_exceeded")
    assert await agent.call("pay", id="across", do="gate") == "replayed"
    assert (running.journal.of(TOOK, "late"), running.journal.of(TOOK, "held")) == ([], [])
    assert await examined(running, ahead_ms=HOUR_MS) == []


async def test_after_a_restart_with_an_older_clock_the_record_goes_on_where_it_was(running: Gateway) -> None:
    agent = await running.agent("older")
    assert await agent.call("pay", id="before") == "done"
    await running.kill()
    running.set_clock(-HOUR_MS)
    await running.start()
    assert await agent.call("pay", id="before") == "replayed"
    assert await agent.call("pay", id="after") == "done"
    assert await examined(running) == []
