"""The demo's agent and approver, against a gateway: one run by its URL, results as a model would see them, a vote on what was read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.demo.agent import Agent, Approver
from tests.serving import KEYS, Served, served

pytestmark = pytest.mark.anyio
CALL = "tool-call-gateway/call"


@pytest.fixture
async def it(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Served]:
    async with served(tmp_path) as it:
        yield it


def live(url: str) -> tuple[list[str], list[str], int]:
    """What is listed, what became of calls, how many runs there are."""
    with Agent(url, KEYS["agent:bot"], "ticket-1") as agent, Approver(url, KEYS["user:mia"]) as approver:
        tools = agent.tools()
        statuses = [agent.call("shop__get_order", id="1")["_meta"][CALL]["status"]]
        held = agent.call("shop__refund", amount=500)["_meta"][CALL]
        statuses.append(held["status"])
        statuses.append(approver.approve(approver.hold(held["hold"]), "fine")["status"])
        statuses.append(agent.call("shop__refund", amount=500)["_meta"][CALL]["status"])
    runs = httpx.get(f"{url}/v1/runs", headers={"Authorization": f"Bearer {KEYS['agent:bot']}"}, trust_env=False).json()["runs"]
    return tools, statuses, len(runs)


async def test_an_agent_lists_calls_and_is_approved_in_one_run(it: Served) -> None:
    tools, statuses, runs = await asyncio.to_thread(live, it.url)
    assert tools == ["shop__get_order", "shop__refund"]
    assert statuses == ["succeeded", "held", "approved", "succeeded"]
    assert runs == 1


def mistaken(url: str) -> None:
    with Agent(url, "wrong", "ticket-1") as agent, pytest.raises((RuntimeError, LookupError)):
        agent.tools()
    with Approver(url, KEYS["user:mia"]) as approver, pytest.raises(httpx.HTTPStatusError):
        approver.hold("hold_x_1")


async def test_a_refusal_of_the_request_itself_is_an_exception(it: Served) -> None:
    await asyncio.to_thread(mistaken, it.url)
