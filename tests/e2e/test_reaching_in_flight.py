"""Cancel, deadline and departure reach exactly the call in flight that they are for, and what is recorded afterwards is true."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.e2e.agents import Agent, McpAgent, RestAgent
from tests.e2e.serving import Stage
from tests.waiting import until

pytestmark = pytest.mark.anyio
DOORS = [RestAgent, McpAgent]


async def opened(stage: Stage, kind: type[Agent], run_key: str, by: str = "plain", on: str = "web") -> Agent:
    agent = kind(stage, by, on, f"{kind.door} {run_key} {on}")
    await agent.open()
    return agent


def cancelled_at_the_desk(stage: Stage) -> list[Any]:
    return [one["params"]["requestId"] for one in stage.desk.heard("notifications/cancelled")]


def ids_at_the_desk(stage: Stage, *cases: str) -> list[Any]:
    return [call["id"] for case in cases for call in stage.desk.calls(case)]


# ---- cancel -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DOORS)
async def test_run_cancel_closes_the_connections_of_its_calls_and_no_others(stage: Stage, kind: type[Agent]) -> None:
    stage.start_over()
    agent, other = await opened(stage, kind, "cancel"), await opened(stage, kind, "beside")
    read, write = agent.start("read", id="read", do="hang"), agent.start("pay", id="write", do="hang")
    beside = other.start("pay", id="beside", do="gate")
    for id in ("read", "write", "beside"):
        await stage.web.reached(id)
    await agent.post("/cancel")
    assert (await read, await write) == ("refused:call.cancelled", "refused:call.in_doubt")
    await stage.web.left("read")
    await stage.web.left("write")
    await agent.until_run(status="cancelled", reason="caller_cancelled", calls={"cancelled": 1, "in_doubt": 1})
    stage.web.open_gate("beside")
    assert (await beside, sorted(stage.web.hung_up)) == ("done", ["read", "write"])


@pytest.mark.parametrize("kind", DOORS)
async def test_a_stdio_server_is_told_of_exactly_the_cancelled_requests(stage: Stage, kind: type[Agent]) -> None:
    stage.start_over()
    agent, other = await opened(stage, kind, "cancel", on="desk"), await opened(stage, kind, "beside", on="desk")
    calls = [agent.start("read", id="r", do="hang"), agent.start("pay", id="w", do="hang"), other.start("read", id="o", do="hang")]
    for id in ("r", "w", "o"):
        await agent.reached(id)
    await agent.post("/cancel")
    assert [await calls[0], await calls[1]] == ["refused:call.cancelled", "refused:call.in_doubt"]
    await until(lambda: len(cancelled_at_the_desk(stage)) >= 2, "the notifications")
    assert sorted(cancelled_at_the_desk(stage)) == sorted(ids_at_the_desk(stage, "r", "w"))
    assert not calls[2].done()
    await other.post("/cancel")
    assert await calls[2] == "refused:call.cancelled"


async def test_turn_cancel_reaches_the_calls_of_its_turn_and_the_run_goes_on(stage: Stage) -> None:
    stage.start_over()
    agent = await opened(stage, RestAgent, "turn")
    first, second = agent.start("pay", id="t1", do="hang", turn=1), agent.start("pay", id="t0", do="gate")
    await stage.web.reached("t1")
    await stage.web.reached("t0")
    await agent.post("/turns/1/cancel")
    assert await first == "refused:call.in_doubt"
    await stage.web.left("t1")
    stage.web.open_gate("t0")
    assert (await second, stage.web.hung_up) == ("done", ["t1"])
    assert await agent.call("read", id="on", turn=2) == "done"


async def test_cancelling_a_parent_reaches_what_its_child_has_in_flight(stage: Stage) -> None:
    stage.start_over()
    agent = await opened(stage, RestAgent, "parent")
    token = (await agent.http.post("/v1/runs", json={"run_key": agent.run_key})).json()["token"]
    holder = stage.holder(token)
    child = (await holder.post("/v1/runs", json={"parent_run": agent.run})).json()["run"]
    call = asyncio.ensure_future(holder.post(f"/v1/runs/{child}/calls", json={"tool": "web.read", "arguments": {"id": "c", "do": "hang"}}))
    await stage.web.reached("c")
    await agent.post("/cancel")
    assert (await call).json()["reason"] == "call.cancelled"
    await stage.web.left("c")
    shown = (await holder.get(f"/v1/runs/{child}")).json()
    assert (shown["status"], shown["reason"]) == ("cancelled", "parent_closed")


async def test_a_write_that_is_done_as_it_is_cancelled_is_recorded_as_it_was_told(stage: Stage) -> None:
    """The race between answer and cancel may end either way, but never in two minds."""
    agents = [await opened(stage, RestAgent, f"race {n}") for n in range(20)]
    said = Counter([await raced(stage, agent, f"race {n}") for n, agent in enumerate(agents)])
    assert said.keys() <= {"done", "refused:call.in_doubt"}


async def raced(stage: Stage, agent: Agent, id: str) -> str:
    call = agent.start("pay", id=id, do="gate")
    await stage.web.reached(id)
    stage.web.open_gate(id)
    await agent.post("/cancel")
    said = await call
    outcome = next(event["event"]["state"] for event in await agent.events() if event["kind"] == "CallSettled")
    assert (said, outcome) in {("done", "succeeded"), ("refused:call.in_doubt", "in_doubt")}
    await agent.until_run(status="cancelled", calls={outcome: 1})
    assert await agent.call("pay", id=id, do="gate") == ("replayed" if said == "done" else said)
    return said


async def test_a_call_that_waits_for_its_next_try_is_reached_at_once(stage: Stage) -> None:
    """Its retry would come after 8 s; nobody waits for it once the run is cancelled."""
    stage.start_over()
    agent = await opened(stage, RestAgent, "between tries")
    call = agent.start("patient_put", id="p", do="fail")
    await stage.web.reached("p")
    await until(lambda: stage.web.running == 0, "the answer")
    await agent.post("/cancel")
    assert await asyncio.wait_for(call, 4) == "done:tool.error"
    await agent.until_run(status="cancelled")
    assert len(stage.web.of("p")) == 1


# ---- deadline -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DOORS)
async def test_the_deadline_of_the_run_reaches_http_and_stdio_calls(stage: Stage, kind: type[Agent]) -> None:
    stage.start_over()
    agent = await opened(stage, kind, "deadline", by="short")
    calls = [agent.start(tool, id=tool, do="hang") for tool in ("read", "pay", "desk.read", "desk.pay")]
    assert await asyncio.gather(*calls) == ["refused:tool.timeout", "refused:call.in_doubt"] * 2
    await stage.web.left("read")
    await stage.web.left("pay")
    await until(lambda: len(cancelled_at_the_desk(stage)) >= 2, "the notifications")
    assert sorted(cancelled_at_the_desk(stage)) == sorted(ids_at_the_desk(stage, "desk.read", "desk.pay"))
    await agent.until_run(status="blocked", reason="deadline_exceeded", calls={"failed": 2, "in_doubt": 2})


async def test_an_upstream_is_told_the_time_that_remains(stage: Stage) -> None:
    stage.start_over()
    agent = await opened(stage, RestAgent, "remaining", by="short")
    assert [await agent.call(tool, id="t") for tool in ("read", "desk.read")] == ["done", "done"]
    headers = stage.web.of("t")[0].headers
    meta = stage.desk.calls("t")[0]["params"]["_meta"]
    assert 0 < int(headers["gateway-remaining-ms"]) <= 1500
    assert 0 < meta["tool-call-gateway/remaining_ms"] <= 1500
    deadline = (await agent.look())["budget"]["deadline"]
    assert (headers["gateway-deadline"], meta["tool-call-gateway/deadline"]) == (deadline, deadline)


# ---- the conversation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "id_in"), [("openai", "tool_call_id"), ("anthropic", "tool_use_id")])
async def test_a_cancelled_turn_has_a_result_for_each_call_in_the_providers_form(stage: Stage, form: str, id_in: str) -> None:
    stage.start_over()
    agent = await opened(stage, RestAgent, f"conversation {form}")
    asked = {"ok": "put", "flying": "pay", "reading": "read", "held": "refund", "never": "put"}
    await agent.post("/turns", status=201)
    calls = [{"call_id": id, "tool": f"web.{tool}", "arguments": {"id": id}} for id, tool in asked.items()]
    await agent.post("/turns/1/answer", {"calls": calls})
    assert await agent.call("put", id="ok", call_id="ok", turn=1) == "done"
    assert await agent.call("refund", id="held", call_id="held", turn=1) == "held"
    flying = [agent.start(tool, id=id, call_id=id, do="hang", turn=1) for id, tool in (("flying", "pay"), ("reading", "read"))]
    await stage.web.reached("flying")
    await stage.web.reached("reading")
    await agent.post("/cancel")
    assert [await one for one in flying] == ["refused:call.in_doubt", "refused:call.cancelled"]
    shown = (await agent.look(f"/turns/1?format={form}"))["calls"]
    assert [(one["call_id"], one["message"][id_in]) for one in shown] == [(id, id) for id in asked]
    assert [one["synthetic"] for one in shown] == [False, True, True, True, True]
    assert [one["status"] for one in shown] == ["succeeded", "in_doubt", "cancelled", "cancelled", "new"]
    texts = [str(one["message"]["content"]).lower() for one in shown]
    assert ["unknown" in text for text in texts] == [False, True, False, False, False]
    assert ["not executed" in text for text in texts] == [False, False, True, True, True]


# ---- departure ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DOORS)
async def test_a_caller_who_leaves_takes_its_read_along_and_never_a_write(stage: Stage, kind: type[Agent]) -> None:
    stage.start_over()
    agent = await opened(stage, kind, "leaving")
    read, write = agent.start("read", id="r", do="hang"), agent.start("pay", id="w", do="gate")
    await stage.web.reached("r")
    await stage.web.reached("w")
    read.cancel()
    write.cancel()
    await stage.web.left("r")
    await agent.until_calls(cancelled=1, admitted=1)
    stage.web.open_gate("w")
    await agent.until_calls(succeeded=1)
    assert (await agent.call("pay", id="w", do="gate"), stage.web.hung_up) == ("replayed", ["r"])


@pytest.mark.parametrize("kind", DOORS)
async def test_a_read_that_another_still_waits_for_goes_on(stage: Stage, kind: type[Agent]) -> None:
    stage.start_over()
    agent = await opened(stage, kind, "sharing")
    first, second = agent.start("read", id="s", do="gate"), agent.start("read", id="s", do="gate")
    await stage.waiting(2)
    first.cancel()
    await stage.waiting(1)
    stage.web.open_gate("s")
    assert (await second in ("done", "replayed"), stage.web.hung_up) == (True, [])
