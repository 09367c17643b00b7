"""A restart changes nothing: budgets, turns, loops, holds and repeats stand after it as they stood before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agents import RestAgent
from tests.e2e.serving import running
from tests.e2e.web_upstream import Web, web_upstream

pytestmark = pytest.mark.anyio

Act = Callable[[RestAgent], Awaitable[None]]


@pytest.fixture
async def web(anyio_backend: str) -> AsyncIterator[Web]:
    async with web_upstream() as it:
        yield it


async def state(agent: RestAgent) -> dict[str, Any]:
    """All that the run shows of itself, its turns included, apart from the time that goes by."""
    run = await agent.look()
    turns = [await agent.look(f"/turns/{number}") for number in range(1, run["turns"] + 1)]
    for shown in (run, *turns):
        del shown["budget"]["seconds_left"]
    return {"run": run, "turns": turns, "events": await agent.events(), "tools": await agent.tools()}


async def over_a_restart(folder: Path, web: Web, by: str, before: Act, after: Act) -> None:
    """`before`, a restart, the same state, `after`."""
    async with running(folder, web) as stage:
        agent = RestAgent(stage, by, "web", "kept")
        await agent.open()
        await before(agent)
        stood = await state(agent)
    async with running(folder, web) as stage:
        again = RestAgent(stage, by, "web", "kept")
        await again.reopen()
        assert await state(again) == stood
        again.answers = agent.answers
        await after(again)


async def test_calls_turns_and_the_final_turn_are_counted_on(tmp_path: Path, web: Web) -> None:
    async def before(agent: RestAgent) -> None:
        assert [await agent.call("read", id=f"t{n}", turn=1) for n in range(3)] == ["done", "done", "refused:budget.tool_calls_per_turn"]
        await agent.post("/turns", status=201)

    async def after(agent: RestAgent) -> None:
        assert await agent.call("read", id="t4", turn=1) == "refused:budget.tool_calls_per_turn"
        assert await agent.call("read", id="t4", turn=2) == "done"
        assert await agent.call("read", id="t5", turn=2) == "refused:budget.tool_calls"
        assert agent.last.left["tool_calls_left"] == 0
        assert (await agent.post("/turns", status=201))["budget"]["final_turn"] is True
        assert (await agent.post("/turns", status=429))["reason"] == "budget.turns"

    await over_a_restart(tmp_path, web, "tight", before, after)


async def test_tokens_and_what_is_set_aside_for_them_are_counted_on(tmp_path: Path, web: Web) -> None:
    async def before(agent: RestAgent) -> None:
        await agent.post("/turns", status=201)
        await agent.post("/turns/1/usage", {"input": 300, "output": 200})
        assert (await agent.look())["budget"]["tokens_left"] == 500

    async def after(agent: RestAgent) -> None:
        assert (await agent.post("/turns", status=201))["budget"]["tokens_left"] == 100
        assert (await agent.post("/turns", status=429))["reason"] == "budget.tokens"

    await over_a_restart(tmp_path, web, "purse", before, after)


async def test_money_is_counted_on(tmp_path: Path, web: Web) -> None:
    async def before(agent: RestAgent) -> None:
        assert await agent.call("priced", id="1") == "done"

    async def after(agent: RestAgent) -> None:
        assert [await agent.call("priced", id=id) for id in "23"] == ["done", "refused:budget.cost"]

    await over_a_restart(tmp_path, web, "coins", before, after)


async def test_loops_are_seen_over_a_restart(tmp_path: Path, web: Web) -> None:
    async def before(agent: RestAgent) -> None:
        assert [await agent.call("read", id="l") for _ in range(3)] == ["done"] * 3
        assert [await agent.call("narrow", size=size) for size in (11, 12)] == ["refused:arguments.invalid"] * 2

    async def after(agent: RestAgent) -> None:
        assert await agent.call("narrow", size=13) == "refused:arguments.invalid"
        assert await agent.call("read", id="other") == "refused:loop.refusals"
        assert await agent.call("read", id="l") == "refused:loop.repeat"
        await agent.until_run(status="blocked", reason="loop")

    await over_a_restart(tmp_path, web, "loopy", before, after)


async def test_repeats_holds_and_superseded_writes_mean_the_same_after_a_restart(tmp_path: Path, web: Web) -> None:
    async def before(agent: RestAgent) -> None:
        assert [await agent.call("put", id="x", do=value) for value in "ab"] == ["done", "done"]
        assert await agent.call("pay", id="p", call_id="c1") == "done"
        assert await agent.call("refund", id="denied") == "held"
        await agent.vote("deny", reason="no")
        assert await agent.call("refund", id="held") == "held"

    async def after(agent: RestAgent) -> None:
        assert await agent.call("pay", id="p") == "replayed"
        assert await agent.call("pay", id="q", call_id="c1") == "refused:key.reused"
        assert await agent.call("put", id="x", do="a") == "done"
        assert len({one.key for one in web.of("x")}) == 3
        assert await agent.call("refund", id="denied") == "refused:approval.denied"
        assert await agent.call("refund", id="held") == "held"
        await agent.vote("approve")
        assert await agent.call("refund", id="held") == "done"

    await over_a_restart(tmp_path, web, "plain", before, after)


async def test_a_recorded_turn_is_resumed_without_asking_the_model_again(tmp_path: Path, web: Web) -> None:
    calls = [{"call_id": f"c{n}", "tool": "web.put", "arguments": {"id": f"v{n}"}} for n in (1, 2)]

    async def before(agent: RestAgent) -> None:
        await agent.post("/turns", status=201)
        await agent.post("/turns/1/answer", {"calls": calls, "digest": "said"})
        assert await agent.call("put", id="v1", call_id="c1", turn=1) == "done"

    async def after(agent: RestAgent) -> None:
        shown = (await agent.look("/turns/1?format=anthropic"))["calls"]
        assert [one["message"] is None for one in shown] == [False, True]
        assert await agent.call("put", id="v1", call_id="c1", turn=1) == "replayed"
        assert await agent.call("put", id="v2", call_id="c2", turn=1) == "done"
        assert [len(web.of(id)) for id in ("v1", "v2")] == [1, 1]
        assert (await agent.post("/turns/1/answer", {"calls": calls, "digest": "said"}))["status"] == "answered"

    await over_a_restart(tmp_path, web, "plain", before, after)


async def test_a_child_draws_on_its_parents_purse_over_a_restart_too(tmp_path: Path, web: Web) -> None:
    """With the parent's token, which a restart does not revoke; with the principal's own key there is no child."""
    async with running(tmp_path, web) as stage:
        owner = stage.client("agent:coins")
        parent = (await owner.post("/v1/runs", json={"run_key": "parent"})).json()
        asked = {"parent_run": parent["run"], "run_key": "child", "budgets": {"tool_calls": 3}}
        assert (await owner.post("/v1/runs", json=asked)).json()["reason"] == "auth.forbidden"
        child = (await stage.holder(parent["token"]).post("/v1/runs", json=asked)).json()
        assert (child["parent_run"], child["budget"]["tool_calls_left"], child["budget"]["cost_usd_left"]) == (parent["run"], 3, 0.5)
        spent = await stage.holder(child["token"]).post(f"/v1/runs/{child['run']}/calls", json={"tool": "web.priced", "arguments": {"id": "1"}})
        assert (spent.json()["budget"]["cost_usd_left"], spent.json()["budget"]["tool_calls_left"]) == (0.3, 2)
        assert (await owner.get(f"/v1/runs/{parent['run']}")).json()["budget"]["cost_usd_left"] == 0.3
    async with running(tmp_path, web) as stage:
        holder, young = stage.holder(parent["token"]), stage.holder(child["token"])
        assert (await young.get(f"/v1/runs/{parent['run']}")).status_code == 404
        path = {name: f"/v1/runs/{run['run']}/calls" for name, run in (("parent", parent), ("child", child))}
        first = await holder.post(path["parent"], json={"tool": "web.priced", "arguments": {"id": "2"}})
        assert (first.status_code, first.json()["budget"]["cost_usd_left"]) == (200, 0.1)
        second = await young.post(path["child"], json={"tool": "web.priced", "arguments": {"id": "3"}})
        assert (second.json()["reason"], second.json()["budget"]["cost_usd_left"]) == ("budget.cost", 0.1)
        assert len(web.took) == 2
