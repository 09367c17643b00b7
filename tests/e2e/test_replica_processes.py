"""Gateways as processes on one PostgreSQL: racing for one run's budget, killed in the middle of calls, and their database killed under them."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e import deployment
from tests.e2e.agents import McpAgent, RestAgent
from tests.e2e.process import Process, gateway_process
from tests.e2e.volley import volley
from tests.e2e.web_upstream import Web, web_upstream
from tests.postgres_server import database, running
from tests.waiting import eventually, until

pytestmark = pytest.mark.anyio
REPLICAS = 4
CALLS = 600
BUDGET = 400
TAKEN_OVER_S = 12
"""The attempt's 400 ms and the margin of its lease, 5 s, then the sweep, each second; and two busy cores."""

OUTAGE_S = 30
"""The patience of a call whose outcome can't be recorded: it is answered when it is, or when its lease ends."""


@pytest.fixture
async def web(anyio_backend: str) -> AsyncIterator[Web]:
    async with web_upstream() as it:
        yield it


async def replicas(stack: AsyncExitStack, folder: Path, web: Web, ledger: str, count: int, by: str = "plain") -> list[Process]:
    return [await stack.enter_async_context(gateway_process(folder / str(number), web, ledger=ledger, small=by)) for number in range(count)]


async def agents(processes: list[Process], by: str, run_key: str) -> list[RestAgent]:
    """One run, through each of them."""
    found = [RestAgent(process, by, "web", run_key) for process in processes]  # type: ignore[arg-type]  # as much of a stage as an agent needs
    await found[0].open()
    for agent in found[1:]:
        await agent.reopen()
    return found


async def test_of_racing_replicas_none_sends_a_call_twice_and_the_budget_is_exact(
    tmp_path: Path, web: Web, new_database: Callable[[], str]
) -> None:
    """Each makes 600 calls: every third is made by all four at the same time, the others are its own."""
    async with AsyncExitStack() as stack:
        processes = await replicas(stack, tmp_path, web, new_database(), REPLICAS, "racing")
        all_ = await agents(processes, "racing", "race")

        def ask(which: int, number: int) -> dict[str, Any]:
            return {"tool": "web.pay", "arguments": {"id": f"all {number}" if number % 3 == 0 else f"{which} {number}"}}

        async def race(which: int) -> list[tuple[int, dict[str, Any]]]:
            asked = [ask(which, number) for number in range(CALLS)]
            return await volley(f"{processes[which].url}/v1/runs/{all_[0].run}/calls", deployment.key_of("agent:racing"), asked, 16)

        answers = [answer for of_one in await asyncio.gather(*map(race, range(REPLICAS))) for answer in of_one]
        ran = {body["call"]: body["replayed"] for status, body in answers if status == 200}
        said = Counter((status, body.get("replayed", body.get("reason"))) for status, body in answers)
        sent = Counter(one.arguments["id"] for one in web.took)
        assert (said[200, False], len(ran), len(sent), set(sent.values())) == (BUDGET, BUDGET, BUDGET, {1})
        assert said[200, True] > 0
        assert {status for status, _ in said} <= {200, 409, 429}
        assert (await all_[1].look())["calls"]["succeeded"] == BUDGET
        assert await processes[2].verify() == 0


async def test_what_a_killed_replica_had_in_flight_another_takes_over_by_effect(tmp_path: Path, web: Web, new_database: Callable[[], str]) -> None:
    async with AsyncExitStack() as stack:
        processes = await replicas(stack, tmp_path, web, new_database(), 2)
        one, two = await agents(processes, "plain", "killed")
        two.http.timeout = httpx.Timeout(TAKEN_OVER_S)
        calls = [one.start(tool, id=tool, do="gate") for tool in ("quick", "quick_put", "quick_pay")]
        await until(lambda: len(web.took) >= 3, "the calls")
        await processes[0].kill()
        assert all(isinstance(one, httpx.TransportError) for one in await asyncio.gather(*calls, return_exceptions=True))
        joining = [two.start(tool, id=tool, do="gate") for tool in ("quick_put", "quick_pay")]
        for tool in ("quick", "quick_put", "quick_pay"):
            web.open_gate(tool)
        await eventually(lambda: ended(two), "the other replica", TAKEN_OVER_S)
        assert (await two.look())["calls"] == {"succeeded": 2, "in_doubt": 1}
        assert await asyncio.gather(*joining) == ["replayed", "refused:call.in_doubt"]
        assert [len(web.of(tool)) for tool in ("quick", "quick_put", "quick_pay")] == [2, 2, 1]
        assert len({took.key for took in web.of("quick_put")}) == 1
        assert await processes[1].verify() == 0


async def ended(agent: RestAgent) -> bool:
    return not (await agent.look())["calls"].get("admitted")


async def test_a_database_killed_under_load_loses_nothing_and_service_returns_by_itself(tmp_path: Path, web: Web) -> None:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(running())
        processes = await replicas(stack, tmp_path, web, database(server.dsn("postgres")), 2)
        rest = await agents(processes, "plain", "outage")
        mcp = McpAgent(processes[0], "plain", "web", "outage")  # type: ignore[arg-type]
        await mcp.open()
        for agent in (*rest, mcp):
            agent.http.timeout = httpx.Timeout(OUTAGE_S)
        mcp.session.timeout = httpx.Timeout(OUTAGE_S)
        stop = asyncio.Event()

        async def load(agent: RestAgent | McpAgent, which: int) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                await agent.call("put", id=f"{which} {number}")

        done = [asyncio.ensure_future(load(agent, which)) for which, agent in enumerate([*rest, *rest, mcp])]
        await until(lambda: len(web.took) > 20, "some calls")
        server.stop(signal.SIGQUIT)
        for agent in (*rest, mcp):
            assert await agent.call("put", id="meanwhile") == "refused:ledger.unavailable"
        server.start()
        before = len(web.took)
        await until(lambda: len(web.took) > before + 20, "more calls", TAKEN_OVER_S)
        stop.set()
        await asyncio.gather(*done)
        says = Counter(answer.says for agent in (*rest, mcp) for answer in agent.answers)
        assert says.keys() == {"done", "refused:ledger.unavailable"}
        assert all(answer.retry_after for agent in rest for answer in agent.answers if answer.says != "done")
        await recorded(rest[0], [answer.body["call"] for agent in (*rest, mcp) for answer in agent.answers if answer.says == "done"])
        assert await processes[0].verify() == 0


async def recorded(agent: RestAgent, calls: list[str]) -> None:
    """Every call that somebody was told is done has its outcome in the ledger."""
    settled: set[Any] = set()
    after = 0
    while page := (await agent.look(f"/events?limit=500&after={after}"))["events"]:
        settled |= {event["event"]["call"] for event in page if event["kind"] == "CallSettled" and event["event"]["state"] == "succeeded"}
        after = page[-1]["seq"]
    assert set(calls) <= settled
