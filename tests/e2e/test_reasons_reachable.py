"""Every reason code can be met through a door, with its status, title and hint: REASONS has no row that nobody can get.

SCENARIOS show most of them through both doors (`test_scenarios`). Here stand the others: what both doors refuse before a call, what REST
alone can say, and what takes a gateway in trouble.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.core.guards.guard import Guard, Placed
from gateway.core.guards.guard import Stage as Rung
from gateway.core.policy import PolicySet
from gateway.core.reasons import REASONS
from tests import scenarios_outcomes  # noqa: F401  its scenarios join the table
from tests.e2e.agents import Agent, McpAgent, RestAgent, mcp_post
from tests.e2e.serving import Stage, running, staged
from tests.e2e.web_upstream import web_upstream
from tests.scenarios import SCENARIOS

pytestmark = pytest.mark.anyio
DOORS = [RestAgent, McpAgent]

SHOWN = {reason for one in SCENARIOS.values() for reason in one.reasons}


# ---- REST alone ---------------------------------------------------------------------------------------------------------

Ask = Callable[[RestAgent], Awaitable[Any]]


async def expired(agent: RestAgent, tool: str, vote: str | None) -> Any:
    """A hold whose time ran out, as the call itself tells it afterwards."""
    await agent.call(tool, id=tool)
    if vote:
        await agent.vote(vote)
    await agent.until_hold("expired")
    return await agent.http.get(f"/v1/runs/{agent.run}/calls/{agent.last.body['call']}")


async def voted(agent: RestAgent, *votes: tuple[str, str], by: str = "mia", digest: str | None = None) -> Any:
    """The answer to the last of these votes on a fresh hold."""
    await agent.call("refund", id="v")
    hold = await agent.hold()
    for say, _ in votes:
        answer = await getattr(agent, by).post(f"/v1/holds/{hold['hold']}/{say}", json={"digest": digest or hold["digest"]})
    return answer


async def continued(agent: RestAgent) -> Any:
    await agent.post("/finish")
    asked = {"continues": agent.run}
    first = await agent.http.post("/v1/runs", json=asked)
    await agent.http.post(f"/v1/runs/{first.json()['run']}/cancel")
    return await agent.http.post("/v1/runs", json=asked)


async def reconciled(agent: RestAgent, *, again: bool = False) -> Any:
    """The answer to a call in a closed run that a person found had not happened; `again`: to the person who says so twice."""
    await agent.call("pay", id="doubt", do="cut")
    await agent.post("/cancel")
    call = f"/v1/runs/{agent.run}/calls/{agent.last.body['call']}"
    said = {"outcome": "did_not_happen", "why": "no trace of it"}
    assert (await agent.mia.post(f"{call}/reconcile", json=said)).status_code == 200
    return await (agent.mia.post(f"{call}/reconcile", json=said) if again else agent.http.get(call))


REST_ONLY: dict[str, Ask] = {
    "auth.forbidden": lambda agent: agent.http.post(f"/v1/runs/{agent.run}/resume", json={}),
    "route.unknown": lambda agent: agent.http.get("/v1/nothing"),
    "route.method": lambda agent: agent.http.delete("/v1/runs"),
    "run.unknown": lambda agent: agent.http.get("/v1/runs/run_none"),
    "run.continued": continued,
    "call.unknown": lambda agent: agent.http.get(f"/v1/runs/{agent.run}/calls/call_none"),
    "call.not_applied": lambda agent: reconciled(agent),
    "call.not_in_doubt": lambda agent: reconciled(agent, again=True),
    "hold.unknown": lambda agent: agent.http.get("/v1/holds/hold_none"),
    "hold.conflict": lambda agent: voted(agent, ("approve", ""), ("deny", "")),
    "hold.digest": lambda agent: voted(agent, ("approve", ""), digest="0" * 64),
    "hold.forbidden": lambda agent: voted(agent, ("approve", ""), by="http"),
    "tool.digest": lambda agent: agent.mia.post("/v1/tools/accept", json={"tools": {"desk.read": "0" * 64}}),
    "approval.expired": lambda agent: expired(agent, "expiring", None),
    "approval.lapsed": lambda agent: expired(agent, "lapsing", "approve"),
}
"""Votes, people's words, paths, other runs and the look at a call exist on REST only. (An agent that repeats an expired call is asked anew.)"""


@pytest.mark.parametrize("reason", REST_ONLY)
async def test_a_reason_that_rest_alone_can_give(stage: Stage, reason: str) -> None:
    async with RestAgent(stage, "plain", "web", f"only {reason}") as agent:
        await agent.open()
        answer = await REST_ONLY[reason](agent)
        assert (answer.json()["reason"], answer.status_code) == (reason, REASONS[reason].status)
        assert answer.json()["hint"] == REASONS[reason].hint


# ---- both doors, before there is a call ---------------------------------------------------------------------------------


async def rest(stage: Stage, by: str | None, key: str, **more: Any) -> dict[str, Any]:
    """What opening a run is refused with."""
    client = stage.client(by, **more.get("headers", {}))
    answer = await client.post("/v1/runs", json={"run_key": key, "goal": more.get("filler")})
    assert answer.status_code == answer.json()["status"]
    return dict(answer.json())


async def mcp(stage: Stage, by: str | None, key: str, **more: Any) -> dict[str, Any]:
    """What a call, which would open the run on first use, is refused with: a result, or an error of the protocol with the problem as data."""
    client = stage.client(by, **more.get("headers", {}))
    params = {"name": "web__read", "arguments": {"id": more.get("filler")}}
    answer = (await mcp_post(client, "tools/call", params, f"/r/{key}/mcp")).json()
    told = answer["result"]["structuredContent"] if "result" in answer else answer.get("error", {}).get("data", answer)
    return dict(told)


BEFORE_CALLS: dict[str, dict[str, Any]] = {
    "auth.required": {"by": None, "key": "a"},
    "origin.forbidden": {"by": "agent:plain", "key": "a", "headers": {"origin": "http://evil.example"}},
    "policy.none": {"by": "agent:nobody", "key": "a"},
    "request.malformed": {"by": "agent:plain", "key": "a%01"},
    "request.too_large": {"by": "agent:plain", "key": "a", "filler": "x" * 1_100_000},
    "budget.open_runs": {"by": "agent:solo", "key": "second"},
}


@pytest.mark.parametrize("reason", BEFORE_CALLS)
@pytest.mark.parametrize("ask", [rest, mcp])
async def test_a_reason_that_both_doors_give_before_there_is_a_call(stage: Stage, reason: str, ask: Any) -> None:
    case = dict(BEFORE_CALLS[reason])
    await stage.client("agent:solo").post("/v1/runs", json={"run_key": "first"})
    if ask is rest:
        case["key"] = case["key"].replace("%01", "\x01")
    told = await ask(stage, **case)
    assert (told["reason"], told["status"], told["hint"]) == (reason, REASONS[reason].status, REASONS[reason].hint)


# ---- a gateway in trouble -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken(Guard):
    """A guard with a mistake in it."""

    kind: ClassVar[str] = "broken"
    stage: ClassVar[Rung] = Rung.AUTHORITY

    def check(self, ask: Any) -> Any:
        raise ZeroDivisionError


async def a_guard_breaks(stage: Stage, agent: Agent) -> None:
    run = await agent.look()
    policies: PolicySet = await stage.app.engine.governing(run["policy"]["digest"])
    rule = policies.rule_for("web.read")
    policies._rules["web.read"] = replace(rule, guards=(*rule.guards, Placed(Broken(), "here")))


async def the_gateway_stops(stage: Stage, agent: Agent) -> None:
    await stage.app.engine.stop(0)


async def the_ledger_closes(stage: Stage, agent: Agent) -> None:
    await stage.app.engine.ledger.close()


async def the_gateway_has_a_fault(stage: Stage, agent: Agent) -> None:
    stage.app.engine.ids = None  # type: ignore[assignment]


IN_TROUBLE = {
    "guard.failed": a_guard_breaks,
    "gateway.stopping": the_gateway_stops,
    "ledger.unavailable": the_ledger_closes,
    "gateway.failed": the_gateway_has_a_fault,
}


@pytest.mark.parametrize("reason", IN_TROUBLE)
async def test_a_reason_that_takes_a_gateway_in_trouble(tmp_path: Path, reason: str) -> None:
    async with staged(tmp_path) as stage:
        agents = [kind(stage, "plain", "web", kind.door) for kind in DOORS]
        for agent in agents:
            await agent.open()
        await IN_TROUBLE[reason](stage, agents[0])
        for agent in agents:
            assert await agent.call("read", id="r") == f"refused:{reason}"
            assert agent.last.body["status"] == REASONS[reason].status
        assert stage.web.took == []


async def test_an_erased_result_is_expired_and_never_dispatched_again(tmp_path: Path) -> None:
    """`result.expired`, through both doors."""
    async with web_upstream() as web:
        async with running(tmp_path, web) as stage:
            for kind in DOORS:
                agent = kind(stage, "plain", "web", kind.door)
                await agent.open()
                assert await agent.call("pay", id=kind.door) == "done"
        with sqlite3.connect(tmp_path / "gateway.db") as ledger:
            ledger.execute("DELETE FROM payloads")
        ledger.close()
        async with running(tmp_path, web) as stage:
            for kind in DOORS:
                agent = kind(stage, "plain", "web", kind.door)
                await agent.reopen()
                assert await agent.call("pay", id=kind.door) == "refused:result.expired"
        assert len(web.took) == 2


async def test_an_approval_of_a_tool_that_has_changed_is_void(tmp_path: Path) -> None:
    """`approval.void`, as the call tells it; its repeat is asked anew."""
    async with web_upstream() as web:
        async with running(tmp_path, web) as stage:
            agent = RestAgent(stage, "plain", "web", "void")
            await agent.open()
            await agent.call("refund", id="v")
            await agent.vote("approve")
            before = agent.last.body["call"]
        async with running(tmp_path, web, described="Differently does") as stage:
            agent = RestAgent(stage, "plain", "web", "void")
            await agent.reopen()
            assert await agent.call("refund", id="v") == "held"
            shown = await agent.http.get(f"/v1/runs/{agent.run}/calls/{before}")
            assert (shown.json()["reason"], shown.status_code) == ("approval.void", REASONS["approval.void"].status)
        assert web.took == []


async def test_a_tool_that_its_upstream_has_changed_is_held_back_at_every_door_until_it_is_accepted(tmp_path: Path) -> None:
    """`tool.changed`. What has changed in the deployment's own files (`web`) is the operator's word and goes on."""
    async with web_upstream() as web:
        async with running(tmp_path, web) as stage:
            agent = RestAgent(stage, "plain", "desk", "before")
            await agent.open()
            assert await agent.call("read", id="b") == "done"
        async with running(tmp_path, web, described="Differently does") as stage:
            for kind in DOORS:
                agent = kind(stage, "plain", "desk", kind.door)
                await agent.open()
                assert not [name for name in await agent.tools() if name.startswith("desk.")]
                assert await agent.call("read", id="c") == "refused:tool.changed"
                assert await agent.call("web.read", id="w") == "done"
            held_back = [one for one in (await agent.mia.get("/v1/tools")).json()["tools"] if one["state"] == "changed"]
            assert {one["tool"].partition(".")[0] for one in held_back} == {"desk"}
            digests = {one["tool"]: one["digest"] for one in held_back}
            assert (await agent.mia.post("/v1/tools/accept", json={"tools": digests})).status_code == 200
            for kind in DOORS:
                agent = kind(stage, "plain", "desk", kind.door)
                await agent.reopen()
                assert "desk.read" in await agent.tools()
                assert await agent.call("read", id="c") == "done"
        assert len(stage.desk.calls("c")) == len(DOORS)


def test_every_reason_is_reached() -> None:
    alone = {"result.expired", "approval.void", "tool.changed"}
    assert set(REASONS) == SHOWN | REST_ONLY.keys() | BEFORE_CALLS.keys() | IN_TROUBLE.keys() | alone
