"""kill -9 at each named point of a call's life, of a vote, of an ending and of the recovery itself; and what the next process makes of it."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import httpx
import pytest

from tests.e2e.agents import RestAgent
from tests.faults.evidence import examined
from tests.faults.journal import DID, TOOK
from tests.faults.running import Gateway

pytestmark = pytest.mark.anyio

UNRECORDED = ("CallAdmitted.decided", "CallAdmitted.written")
NOT_SENT = ("CallAdmitted.committed", "CallAdmitted.durable", "send")
SENT = ("sent", "answered", "CallSettled.decided", "CallSettled.written")
RECORDED = ("CallSettled.committed", "CallSettled.durable")


async def dies(running: Gateway, *doing: Any) -> None:
    """Whoever waits for an answer gets none."""
    tasks = [asyncio.ensure_future(one) for one in doing]
    assert await running.died() == -signal.SIGKILL
    told = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, httpx.TransportError) for one in told), told


async def crashed(running: Gateway, point: str, *tools: str, **given: Any) -> RestAgent:
    """A gateway that died at this point while an agent called these tools, and is up again."""
    await running.start(point)
    agent = await running.agent("crash")
    await dies(running, *(agent.call(tool, id=tool, **given) for tool in tools))
    await running.start()
    await agent.until_calls(admitted=0)
    return agent


async def ended(agent: RestAgent) -> dict[str, int]:
    return dict((await agent.look())["calls"])


def counts(running: Gateway, id: str) -> tuple[int, int]:
    """How often it was requested, and how often it took effect."""
    return len(running.journal.of(TOOK, id)), len(running.journal.of(DID, id))


@pytest.mark.parametrize("point", UNRECORDED)
async def test_what_was_not_recorded_did_not_happen(prepared: Gateway, point: str) -> None:
    agent = await crashed(prepared, point, "pay")
    assert (await ended(agent), counts(prepared, "pay")) == ({}, (0, 0))
    assert await agent.call("pay", id="pay") == "done"
    assert (counts(prepared, "pay"), await examined(prepared)) == ((1, 1), [])


@pytest.mark.parametrize("point", [*NOT_SENT, *SENT])
async def test_a_payment_that_may_have_happened_is_in_doubt_and_not_made_again(prepared: Gateway, point: str) -> None:
    agent = await crashed(prepared, point, "pay")
    assert await ended(agent) == {"in_doubt": 1}
    assert await agent.call("pay", id="pay") == "refused:call.in_doubt"
    assert counts(prepared, "pay") == ((1, 1) if point in SENT else (0, 0))
    assert await examined(prepared) == []


@pytest.mark.parametrize("tool", ["read", "put"])
@pytest.mark.parametrize("point", ["CallAdmitted.durable", "sent", "CallSettled.written"])
async def test_reads_and_writes_that_can_be_repeated_are_made_again(prepared: Gateway, point: str, tool: str) -> None:
    agent = await crashed(prepared, point, tool)
    assert await ended(agent) == {"succeeded": 1}
    times = 1 if point in NOT_SENT else 2
    assert counts(prepared, tool) == (times, times)
    assert len({entry.key for entry in prepared.journal.entries()}) == 1
    assert await agent.call(tool, id=tool) == ("done" if tool == "read" else "replayed")
    assert await examined(prepared) == []


@pytest.mark.parametrize("point", RECORDED)
async def test_an_outcome_that_was_recorded_stands_though_nobody_was_told(prepared: Gateway, point: str) -> None:
    agent = await crashed(prepared, point, "pay")
    assert await ended(agent) == {"succeeded": 1}
    assert await agent.call("pay", id="pay") == "replayed"
    assert (counts(prepared, "pay"), await examined(prepared)) == ((1, 1), [])


@pytest.mark.parametrize("point", ["CallAdmitted.written#2", "CallAdmitted.durable#2", "answered"])
async def test_a_crash_between_two_attempts_keeps_their_one_key(prepared: Gateway, point: str) -> None:
    """The first attempt's doubt is not forgotten with the process that had it: its effect took place."""
    agent = await crashed(prepared, point, "again_put", do="reset,ok")
    assert await ended(agent) == {"succeeded": 1}
    assert len({entry.key for entry in prepared.journal.entries()}) == 1
    assert await agent.call("again_put", id="again_put", do="reset,ok") == "replayed"
    assert await examined(prepared) == []


# ---- people -------------------------------------------------------------------------------------------------------------


async def holding(running: Gateway, point: str, tool: str) -> RestAgent:
    await running.start(point)
    agent = await running.agent("held")
    assert await agent.call(tool, id="h") == "held"
    return agent


@pytest.mark.parametrize("point", ["VoteCast.decided", "HoldApproved.written", "VoteCast.committed", "HoldApproved.durable"])
async def test_a_vote_counts_if_it_was_recorded_and_only_then(prepared: Gateway, point: str) -> None:
    agent = await holding(prepared, point, "ask")
    await dies(prepared, agent.vote("approve"))
    await prepared.start()
    counted = point.endswith(("committed", "durable"))
    assert (await agent.hold())["status"] == ("approved" if counted else "held")
    if not counted:
        assert await agent.call("ask", id="h") == "held"
    await agent.vote("approve")
    assert await agent.call("ask", id="h") == "done"
    assert await agent.call("ask", id="h") == "replayed"
    assert (counts(prepared, "h"), await examined(prepared)) == ((1, 1), [])


@pytest.mark.parametrize("point", ["CallAdmitted.durable", "sent"])
async def test_an_approval_is_consumed_by_the_attempt_that_may_have_happened(prepared: Gateway, point: str) -> None:
    agent = await holding(prepared, point, "ask")
    await agent.vote("approve")
    hold = await agent.hold()
    await dies(prepared, agent.call("ask", id="h"))
    await prepared.start()
    assert await agent.call("ask", id="h") == "refused:call.in_doubt"
    assert (await agent.mia.get(f"/v1/holds/{hold['hold']}")).json()["status"] == "consumed"
    assert (counts(prepared, "h")[1], await examined(prepared)) == (int(point == "sent"), [])


async def test_what_the_gateway_was_to_execute_at_once_is_executed_once(prepared: Gateway) -> None:
    agent = await holding(prepared, "HoldApproved.durable", "soon")
    await dies(prepared, agent.vote("approve"))
    await prepared.start()
    assert await agent.call("soon", id="h") in ("done", "replayed")
    assert await agent.call("soon", id="h") == "replayed"
    assert (counts(prepared, "h"), await examined(prepared)) == ((1, 1), [])


# ---- endings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["RunClosing.decided", "RunClosing.written", "RunClosing.committed", "RunClosing.durable"])
async def test_a_run_that_was_being_cancelled_ends_and_nothing_starts_in_it(prepared: Gateway, point: str) -> None:
    """A read and a payment are on the wire, another payment is held."""
    await prepared.start(point)
    agent = await prepared.agent("ending")
    assert await agent.call("ask", id="held") == "held"
    tasks = [asyncio.ensure_future(agent.call(tool, id=tool, do="gate")) for tool in ("read", "pay")]
    for tool in ("read", "pay"):
        await prepared.took(tool)
    await dies(prepared, agent.post("/cancel"), *tasks)
    prepared.open_gate("read")
    await prepared.start()
    await agent.until_calls(admitted=0)
    cancelled = point.endswith(("committed", "durable"))
    assert await ended(agent) == ({"cancelled": 2, "in_doubt": 1} if cancelled else {"held": 1, "succeeded": 1, "in_doubt": 1})
    if not cancelled:
        await agent.post("/cancel")
    await agent.until_run(status="cancelled", reason="caller_cancelled")
    assert counts(prepared, "read")[0] == (1 if cancelled else 2)
    assert (counts(prepared, "pay")[0], counts(prepared, "held")[0], await examined(prepared)) == (1, 0, [])


@pytest.mark.parametrize("point", ["RunOpened.written", "RunOpened.durable"])
async def test_a_run_that_was_being_opened_is_found_by_its_key_or_was_not_opened(prepared: Gateway, point: str) -> None:
    await prepared.start(point)
    client = prepared.client("agent:bot")
    await dies(prepared, client.post("/v1/runs", json={"run_key": "mine"}))
    await prepared.start()
    answer = await client.post("/v1/runs", json={"run_key": "mine"})
    assert answer.status_code == (201 if point == "RunOpened.written" else 200)
    assert (len((await client.get("/v1/runs")).json()["runs"]), await examined(prepared)) == (1, [])


# ---- the recovery itself ------------------------------------------------------------------------------------------------


async def test_a_recovery_that_dies_again_and_again_comes_to_the_same_end(prepared: Gateway) -> None:
    """A read, both kinds of write and an approved call are on the wire at the first death."""
    await prepared.start()
    agent = await prepared.agent("again and again")
    assert await agent.call("ask", id="ask", do="gate") == "held"
    await agent.vote("approve")
    tools = ("read", "put", "pay", "ask")
    calls = [asyncio.ensure_future(agent.call(tool, id=tool, do="gate")) for tool in tools]
    for tool in tools:
        await prepared.took(tool)
    await prepared.kill()
    await asyncio.gather(*calls, return_exceptions=True)
    for point in ("in_flight", "CallSettled.written", "CallAdmitted.decided", "CallAdmitted.committed", "send"):
        await prepared.start(point, wait=False)
        assert await prepared.died() == -signal.SIGKILL, point
    for tool in tools:
        prepared.open_gate(tool)
    await prepared.start()
    await agent.until_calls(admitted=0, succeeded=2, in_doubt=2)
    for tool in ("pay", "ask"):
        assert await agent.call(tool, id=tool, do="gate") == "refused:call.in_doubt"
        assert counts(prepared, tool)[0] == 1
    assert await examined(prepared) == []
