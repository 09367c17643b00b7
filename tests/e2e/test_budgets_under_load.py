"""A budget of fifty is a budget of fifty for two hundred at once: the upstream itself counts, and who is refused is told why and what to do."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest

from gateway.core.reasons import REASONS
from tests.e2e.agents import Agent, McpAgent, RestAgent
from tests.e2e.serving import Stage

pytestmark = pytest.mark.anyio
MANY = 200


async def opened(stage: Stage, principal: str, run_key: str) -> tuple[RestAgent, McpAgent]:
    """One run, through both doors."""
    rest, mcp = RestAgent(stage, principal, "web", run_key), McpAgent(stage, principal, "web", run_key)
    await rest.open()
    await mcp.open()
    assert rest.run == mcp.run
    return rest, mcp


def refusals(agents: tuple[Agent, ...]) -> list[Agent]:
    return [answer for agent in agents for answer in agent.answers if answer.says != "done"]


@pytest.mark.parametrize(
    ("principal", "tool", "reason"),
    [("fifty", "read", "budget.tool_calls"), ("fifty", "pay", "budget.tool_calls"), ("fifty_coins", "priced", "budget.cost")],
)
async def test_of_two_hundred_calls_at_once_exactly_fifty_are_dispatched(stage: Stage, principal: str, tool: str, reason: str) -> None:
    stage.start_over()
    agents = await opened(stage, principal, f"{tool} of {principal}")
    said = await asyncio.gather(*(agents[n % 2].call(tool, id=f"n{n}") for n in range(MANY)))
    assert Counter(said) == {"done": 50, f"refused:{reason}": 150}
    assert (len(stage.web.took), len({one.arguments["id"] for one in stage.web.took})) == (50, 50)
    for refused in refusals(agents):
        assert (refused.body["hint"], refused.body["findings"][0]["reason"]) == (REASONS[reason].hint, reason)
        assert refused.left["tool_calls_left"] == 0 or refused.left["cost_usd_left"] == 0
    kinds = Counter(event["kind"] for event in (await agents[0].http.get(f"/v1/runs/{agents[0].run}/events?limit=500")).json()["events"])
    assert (kinds["CallAdmitted"], kinds["CallSettled"], kinds["CallDenied"]) == (50, 50, 150)


async def test_of_two_hundred_retried_calls_no_more_attempts_are_made_than_the_budget_pays(stage: Stage) -> None:
    """Each attempt costs a call: what fails and is tried again can't spend what isn't there."""
    stage.start_over()
    agents = await opened(stage, "fifty", "retries")
    said = await asyncio.gather(*(agents[n % 2].call("again", id=f"n{n}", do="fail") for n in range(MANY)))
    assert Counter(said).keys() == {"done:tool.error", "refused:budget.tool_calls"}
    assert len(stage.web.took) == 50


async def test_of_two_hundred_turns_at_once_exactly_as_many_open_as_the_purse_pays(stage: Stage) -> None:
    agent, _ = await opened(stage, "twenty", "turns")

    async def open_turn() -> httpx.Response:
        return await agent.http.post(f"/v1/runs/{agent.run}/turns", json={})

    answers = await asyncio.gather(*(open_turn() for _ in range(MANY)))
    won = [answer.json()["turn"] for answer in answers if answer.status_code == 201]
    assert sorted(won) == list(range(1, 21))
    refused = [answer.json() for answer in answers if answer.status_code != 201]
    assert Counter(one["reason"] for one in refused) == {"budget.tokens": 1, "run.not_open": 179}
    assert all(one["hint"] and one["detail"] for one in refused)
    await agent.until_run(status="blocked", reason="token_budget", turns=20)


async def test_a_budget_is_kept_over_a_run_and_its_children(stage: Stage) -> None:
    """Ten children at once, twenty calls each, draw on their parent's fifty."""
    stage.start_over()
    parent = RestAgent(stage, "fifty", "web", "parent")
    opened = (await parent.http.post("/v1/runs", json={"run_key": "parent"})).json()
    holder = stage.holder(opened["token"])
    children = [(await holder.post("/v1/runs", json={"parent_run": opened["run"]})).json() for _ in range(10)]

    async def call(child: str, number: int) -> str:
        body = {"tool": "web.read", "arguments": {"id": f"{child}-{number}"}}
        answer = (await holder.post(f"/v1/runs/{child}/calls", json=body)).json()
        return str(answer.get("reason") or answer["status"])

    said = await asyncio.gather(*(call(child["run"], n) for child in children for n in range(20)))
    assert Counter(said) == {"succeeded": 50, "budget.tool_calls": 150}
    assert len(stage.web.took) == 50


async def test_people_who_look_while_calls_are_held_always_see_a_list(stage: Stage) -> None:
    """A row may be read a moment before its append is acknowledged; that is no reason to fail."""
    agent, _ = await opened(stage, "plain", "looked at")
    over = asyncio.Event()

    async def look() -> set[int]:
        mia, seen = stage.client("user:mia"), set()
        while not over.is_set():
            seen.add((await mia.get("/v1/holds?state=held")).status_code)
        return seen

    lookers = [asyncio.ensure_future(look()) for _ in range(4)]
    for number in range(30):
        assert await agent.call("refund", id=f"h{number}") == "held"
        await agent.vote("deny")
    over.set()
    assert set().union(*await asyncio.gather(*lookers)) == {200}


async def test_an_approver_finds_what_waits_for_her_behind_all_that_does_not(stage: Stage) -> None:
    agent, _ = await opened(stage, "plain", "many holds")
    assert await agent.call("cats", id="hers") == "held"
    hers = agent.last.body["hold"]["hold"]
    for number in range(4):
        assert await agent.call("refund", id=f"theirs{number}") == "held"
    page = (await stage.client("user:cat").get("/v1/holds?state=held&limit=1")).json()
    assert ([one["hold"] for one in page["holds"]], page["next"]) == ([hers], hers)
    page = (await stage.client("user:cat").get(f"/v1/holds?state=held&limit=1&before={hers}")).json()
    assert page == {"holds": [], "next": None}
    assert len((await stage.client("user:mia").get("/v1/holds?state=held")).json()["holds"]) == 5
