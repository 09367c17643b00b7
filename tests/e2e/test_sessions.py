"""The session era through a real gateway: what cancels and what doesn't, and how streams end when the gateway stops or its ledger is away."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.e2e.agents import OURS, PROTOCOL, SessionAgent, session_post
from tests.e2e.serving import Stage, running
from tests.e2e.web_upstream import web_upstream
from tests.waiting import START_S, until

pytestmark = pytest.mark.anyio


async def opened(stage: Stage, run_key: str, on: str = "web") -> SessionAgent:
    stage.start_over()
    agent = SessionAgent(stage, "plain", on, run_key)
    await agent.open()
    return agent


async def cancel(agent: SessionAgent) -> None:
    """The agent's requests all have the id 7."""
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    assert (await agent.session.post("/mcp", json=body, headers={"accept": "application/json, text/event-stream"})).status_code == 202


async def test_a_cancel_reaches_the_read_in_flight_at_its_server(stage: Stage) -> None:
    agent = await opened(stage, "cancel a read", on="desk")
    read = agent.start("read", id="r", do="hang")
    await agent.reached("r")
    await cancel(agent)
    await read
    await until(lambda: stage.desk.heard("notifications/cancelled"), "the notification")
    assert [one["params"]["requestId"] for one in stage.desk.heard("notifications/cancelled")] == [stage.desk.calls("r")[0]["id"]]
    await agent.until_calls(cancelled=1)


async def test_a_cancel_ends_the_waiting_for_a_write_and_not_the_write(stage: Stage) -> None:
    agent = await opened(stage, "cancel a write")
    write = agent.start("pay", id="w", do="gate")
    await agent.reached("w")
    await cancel(agent)
    assert await write == "refused:call.in_flight"
    stage.web.open_gate("w")
    await agent.until_calls(succeeded=1)
    assert await agent.call("pay", id="w", do="gate") == "replayed"


async def test_a_cancel_ends_the_waiting_for_people_and_not_the_hold(stage: Stage) -> None:
    agent = await opened(stage, "cancel a hold")
    waiting = agent.start("waiting", id="h")
    await agent.first_hold()
    await cancel(agent)
    assert await waiting == "held"
    await agent.vote("approve")
    assert await agent.call("waiting", id="h") == "done"


async def test_a_client_that_leaves_cancels_nothing(stage: Stage) -> None:
    agent = await opened(stage, "leaving")
    read = agent.start("read", id="r", do="gate")
    await agent.reached("r")
    read.cancel()
    assert await agent.call("read", id="other") == "done"
    stage.web.open_gate("r")
    await agent.until_calls(succeeded=2)
    assert stage.web.hung_up == []


async def test_a_session_of_another_principal_is_unknown(stage: Stage) -> None:
    agent = await opened(stage, "whose")
    other = stage.client("agent:tight", **{"mcp-session-id": agent.session.headers["mcp-session-id"]})
    assert (await session_post(other, "ping")).status_code == 404


async def test_streams_that_have_begun_end_with_an_answer_when_the_gateway_stops(tmp_path: Path) -> None:
    """One that only listens ends at once; a call is waited for as long as the grace lasts, and then answered too."""
    async with web_upstream() as web:
        async with running(tmp_path, web) as stage:
            stage.app._grace_ms = 2_000
            agent = SessionAgent(stage, "plain", "web", "stopping")
            await agent.open()
            http = httpx.AsyncClient(base_url=stage.url, headers=dict(agent.session.headers), timeout=START_S)
            listening = asyncio.ensure_future(streamed(http, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
            calling = asyncio.ensure_future(streamed(http, "tools/call", {"name": "web__read", "arguments": {"id": "s", "do": "hang"}}))
            await agent.reached("s")
            loop = asyncio.get_running_loop()
            began = loop.time()
        assert (await listening)[-1]["result"]["_meta"][PROTOCOL + "subscriptionId"] == 7
        final = (await calling)[-1]
        assert (final["id"], final["result"]["isError"]) == (7, True)
        assert final["result"]["_meta"][OURS + "call"]["status"] in ("admitted", "cancelled")
        assert loop.time() - began < 10
        await http.aclose()


async def streamed(http: httpx.AsyncClient, method: str, params: dict[str, object]) -> list[dict[str, object]]:
    """All messages of the answer to a request of 2026-07-28, as a stream or as JSON."""
    meta = {PROTOCOL + "clientCapabilities": {}, PROTOCOL + "protocolVersion": "2026-07-28", "progressToken": 1}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, "accept": "application/json, text/event-stream"}
    headers |= {"mcp-name": str(params["name"])} if "name" in params else {}
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": meta}}
    answer = await http.post("/mcp", json=body, headers=headers)
    if answer.headers["content-type"] == "application/json":
        return [answer.json()]
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
