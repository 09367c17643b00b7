"""A hundred identical calls at once, through both doors: writes are dispatched once, reads in flight are shared, polls run afresh."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.e2e.agents import Agent, McpAgent, RestAgent
from tests.e2e.serving import Stage

pytestmark = pytest.mark.anyio
MANY = 100


async def crowd(stage: Stage, run_key: str) -> list[Agent]:
    """Many agents of one principal in one run, every other one through MCP."""
    stage.start_over()
    pair = [RestAgent(stage, "plain", "web", run_key), McpAgent(stage, "plain", "web", run_key)]
    for agent in pair:
        await agent.open()
    return [pair[n % 2] for n in range(MANY)]


def results(agents: list[Agent]) -> list[object]:
    return [answer.result for agent in set(map(id, agents)) for answer in next(one for one in agents if id(one) == agent).answers]


@pytest.mark.parametrize("tool", ["put", "pay"])
async def test_of_a_hundred_identical_writes_one_is_dispatched_and_the_others_are_marked(stage: Stage, tool: str) -> None:
    agents = await crowd(stage, f"at once {tool}")
    calls = [agent.start(tool, id=tool, do="gate") for agent in agents]
    await stage.waiting(MANY)
    stage.web.open_gate(tool)
    assert Counter(await asyncio.gather(*calls)) == {"done": 1, "replayed": MANY - 1}
    assert len(stage.web.took) == 1
    told = results(agents)
    assert told == [told[0]] * MANY
    assert all(answer.body["message"] for agent in agents[:2] for answer in agent.answers if answer.says == "replayed")
    replays = [event["event"] for event in await agents[0].events() if event["kind"] == "CallReplayed"]
    assert [one["joined"] for one in replays] == [True] * (MANY - 1)
    assert agents[0].last.left["tool_calls_left"] == 499


async def test_of_a_hundred_identical_writes_without_a_gate_one_is_dispatched_too(stage: Stage) -> None:
    """Some join, some come when all is over: both are replays. (Those who come after are a loop, which ends the run, and are answered still.)"""
    agents = await crowd(stage, "as they come")
    assert Counter(await asyncio.gather(*(agent.call("put", id="p") for agent in agents))) == {"done": 1, "replayed": MANY - 1}
    assert len(stage.web.took) == 1


async def test_a_read_in_flight_is_shared_and_marked_for_those_who_joined(stage: Stage) -> None:
    agents = await crowd(stage, "reads")
    calls = [agent.start("read", id="r", do="gate") for agent in agents]
    await stage.waiting(MANY)
    stage.web.open_gate("r")
    assert Counter(await asyncio.gather(*calls)) == {"done": 1, "replayed": MANY - 1}
    assert len(stage.web.took) == 1
    assert await agents[0].call("read", id="r", do="gate") == "done"
    assert len(stage.web.took) == 2


async def test_polling_reads_run_afresh_and_are_no_loop(stage: Stage) -> None:
    agents = await crowd(stage, "polls")
    for agent in agents[:30]:
        assert await agent.call("poll", id="p", do="count") == "done"
    assert [answer["structuredContent"]["n"] for answer in (one.last.result for one in agents[28:30])] == [29, 30]
    assert await agents[0].call("poll", id="same") == "done"
    assert [await agent.call("poll", id="same") for agent in agents[:15]] == ["done"] * 15
    assert len(stage.web.of("same")) == 16


@pytest.mark.parametrize("on", ["web", "desk"])
async def test_setting_a_b_a_writes_three_times_under_three_keys_and_each_repeat_keeps_its_key(stage: Stage, on: str) -> None:
    agents = await crowd(stage, f"a b a on {on}")
    for agent in agents[:2]:
        agent.on = on
    for value in "aba":
        said = await asyncio.gather(*(agent.call("put", id="x", do=value) for agent in agents[:2]))
        assert sorted(said) == ["done", "replayed"]
    took = agents[0].took("x")
    assert [one["arguments"]["do"] for one in took] == ["a", "b", "a"]
    assert len({one["key"] for one in took}) == 3


async def test_the_same_write_in_another_run_is_another_write(stage: Stage) -> None:
    for run_key in ("one", "two"):
        agents = await crowd(stage, run_key)
        assert await agents[0].call("put", id="p") == "done"
        assert len(stage.web.took) == 1


async def test_a_join_does_not_outlive_its_patience_and_the_dispatch_outlives_the_join(stage: Stage) -> None:
    agents = await crowd(stage, "impatient")
    first = agents[0].start("put", id="s", do="gate")
    await stage.web.reached("s")
    assert await agents[0].call("put", id="s", do="gate", hurried=True) == "refused:call.in_flight"
    assert agents[0].last.retry_after is True
    stage.web.open_gate("s")
    assert await first == "done"
    assert len(stage.web.took) == 1
