"""Every scenario through every door of one gateway: the same answers, the same events in the ledger, the same requests upstream.

Equal outside ids, times, hashes (whose equality among themselves must agree) and the door's name.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.ledger.verify import verify
from tests import scenarios_outcomes  # noqa: F401  its scenarios join the table
from tests.e2e.agents import Agent, McpAgent, RestAgent, SessionAgent, mcp, mcp_answer
from tests.e2e.serving import Stage
from tests.e2e.stdio_agent import StdioAgent
from tests.e2e.told import Plain
from tests.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.anyio

CASES = [pytest.param(one, on, id=f"{name}-{on}") for name, one in SCENARIOS.items() for on in one.on]


async def played(stage: Stage, kind: type[Agent], one: Scenario, on: str) -> dict[str, Any]:
    """What was told, recorded and sent, in comparable form."""
    stage.start_over()
    async with kind(stage, one.by, on, f"{kind.__name__}:{one.name}:{on}") as agent:
        await agent.open()
        await one.play(agent)
        assert set(one.reasons) <= {answer.reason for answer in agent.answers} | {"approval.required"}
        events, plain = await agent.events(), Plain()
        return {
            "told": agent.told(),
            "recorded": [plain([event["kind"], event["event"]]) for event in events],
            "sent": plain([[one.tool, one.arguments, one.key] for one in stage.web.took] + stage.desk.sent()),
            "left": plain(await agent.look()),
            "doors": {event["event"]["door"] for event in events if "door" in event["event"]},
        }


@pytest.mark.parametrize(("one", "on"), CASES)
async def test_a_scenario_goes_the_same_way_through_every_door(stage: Stage, one: Scenario, on: str) -> None:
    rest, *others = [await played(stage, kind, one, on) for kind in (RestAgent, McpAgent, SessionAgent, StdioAgent)]
    assert [rest.pop("doors"), *(other.pop("doors") for other in others)] == [{"rest"}, {"mcp"}, {"mcp"}, {"mcp"}]
    for what in ("told", "sent", "recorded", "left"):
        assert [other[what] for other in others] == [rest[what]] * len(others), what


async def test_an_mcp_client_names_its_run_in_three_ways_and_means_the_same_one(stage: Stage) -> None:
    """By header, by path, or with the run's own token."""
    async with RestAgent(stage, "plain", "web", "named") as agent:
        token = (await agent.http.post("/v1/runs", json={"run_key": "named"})).json()["token"]
        await agent.reopen()
        call = {"name": "web__put", "arguments": {"id": "n"}}
        by_key, by_token = stage.client("agent:plain"), stage.holder(token)
        ways = [(by_key, "/mcp", {"gateway-run": "named"}), (by_key, "/r/named/mcp", {}), (by_token, "/mcp", {})]
        told = [mcp_answer(await mcp(client, "tools/call", call, path, **headers)) for client, path, headers in ways]
        assert [one.says for one in told] == ["done", "replayed", "replayed"]
        assert (await agent.look())["calls"] == {"succeeded": 1}


async def test_the_ledger_of_all_that_was_played_is_sound(stage: Stage) -> None:
    report = await verify(stage.app.engine.ledger, lambda stream, done: None)  # type: ignore[arg-type]
    assert (report.problems, report.events > len(SCENARIOS)) == ([], True)


def test_there_are_scenarios_enough() -> None:
    assert len(SCENARIOS) >= 45
