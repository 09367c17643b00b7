"""Two gateways on one PostgreSQL, each with its own connections and memory: what is done through one holds for the other, at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from tests.e2e.agents import Agent, McpAgent, RestAgent
from tests.e2e.serving import Stage, running
from tests.e2e.web_upstream import web_upstream
from tests.waiting import until

pytestmark = pytest.mark.anyio
SOON_S = 1.5
"""Hints come within milliseconds; without one it is looked twice a second. In between the machine may be busy."""


@pytest.fixture(scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str], anyio_backend: str) -> AsyncIterator[tuple[Stage, Stage]]:
    ledger = new_database()
    async with web_upstream() as web, AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(running(tmp_path_factory.mktemp("replica"), web, ledger=ledger)) for _ in range(2)]
        yield one, two


async def opened(both: tuple[Stage, Stage], run_key: str, by: str = "plain", kind: type[Agent] = RestAgent) -> tuple[Agent, Agent]:
    """One run, through each of the two."""
    both[0].web.start_over()
    one, two = (kind(stage, by, "web", run_key) for stage in both)
    await one.open()
    await (two.open() if kind is McpAgent else two.reopen())
    assert one.run == two.run
    return one, two


@pytest.mark.parametrize("kind", [RestAgent, McpAgent])
async def test_a_duplicate_on_another_replica_joins_the_call_that_runs(both: tuple[Stage, Stage], kind: type[Agent]) -> None:
    one, two = await opened(both, f"join {kind.door}", kind=kind)
    first = one.start("pay", id="j", do="gate")
    await one.reached("j")
    second = two.start("pay", id="j", do="gate")
    third = two.start("pay", id="j", do="gate")
    assert not (await asyncio.wait((first, second, third), timeout=0.3))[0]
    began = time.perf_counter()
    both[0].web.open_gate("j")
    assert sorted(await asyncio.gather(first, second, third)) == ["done", "replayed", "replayed"]
    assert time.perf_counter() - began < SOON_S
    assert len(one.took("j")) == 1
    assert await two.call("pay", id="j", do="gate") == "replayed"


async def test_a_vote_on_one_replica_wakes_who_waits_on_another(both: tuple[Stage, Stage]) -> None:
    one, two = await opened(both, "vote")
    call = one.start("waiting", id="v")
    hold = await two.first_hold()
    assert not call.done()
    began = time.perf_counter()
    answer = await two.mia.post(f"/v1/holds/{hold['hold']}/approve", json={"digest": hold["digest"]})
    assert (answer.status_code, await call) == (200, "done")
    assert time.perf_counter() - began < SOON_S
    assert len(one.took("v")) == 1


async def test_of_two_votes_on_two_replicas_one_decides(both: tuple[Stage, Stage]) -> None:
    one, two = await opened(both, "votes")
    for number in range(5):
        assert await one.call("refund", id=f"r{number}") == "held"
        hold = await one.hold()
        path, body = f"/v1/holds/{hold['hold']}", {"digest": hold["digest"]}
        said = await asyncio.gather(one.mia.post(f"{path}/approve", json=body), two.ben.post(f"{path}/deny", json={**body, "reason": "no"}))
        assert sorted(answer.status_code for answer in said) == [200, 409]
        assert await two.call("refund", id=f"r{number}") == ("done" if said[0].status_code == 200 else "refused:approval.denied")
        assert len(one.took(f"r{number}")) == (said[0].status_code == 200)


@pytest.mark.parametrize("how", ["/cancel", "/turns/1/cancel"])
async def test_cancel_on_one_replica_reaches_the_call_in_flight_on_another(both: tuple[Stage, Stage], how: str) -> None:
    one, two = await opened(both, how)
    calls = [one.start("read", id="read", do="hang", turn=1), one.start("pay", id="pay", do="hang", turn=1)]
    for id in ("read", "pay"):
        await one.reached(id)
    await two.post(how)
    began = time.perf_counter()
    assert await asyncio.gather(*calls) == ["refused:call.cancelled", "refused:call.in_doubt"]
    assert time.perf_counter() - began < SOON_S
    await until(lambda: sorted(one.web.hung_up) == ["pay", "read"], "the ends of both connections")


async def test_cancelling_a_parent_on_one_replica_reaches_its_child_on_another(both: tuple[Stage, Stage]) -> None:
    one, two = await opened(both, "parent")
    token = (await one.http.post("/v1/runs", json={"run_key": "parent"})).json()["token"]
    holder = both[0].holder(token)
    child = (await holder.post("/v1/runs", json={"parent_run": one.run})).json()["run"]
    call = asyncio.ensure_future(holder.post(f"/v1/runs/{child}/calls", json={"tool": "web.read", "arguments": {"id": "c", "do": "hang"}}))
    await one.reached("c")
    await two.post("/cancel")
    assert (await call).json()["reason"] == "call.cancelled"
    await one.web.left("c")


async def test_cancel_on_one_replica_ends_the_wait_for_the_next_try_on_another(both: tuple[Stage, Stage]) -> None:
    """Which would come after 8 s."""
    one, two = await opened(both, "between tries")
    call = one.start("patient_put", id="p", do="fail")
    await one.reached("p")
    await until(lambda: one.web.running == 0, "the answer")
    await two.post("/cancel")
    assert await asyncio.wait_for(call, SOON_S) == "done:tool.error"
    assert len(one.took("p")) == 1


async def test_what_one_replica_froze_or_closed_the_other_admits_no_more(both: tuple[Stage, Stage]) -> None:
    one, two = await opened(both, "frozen")
    assert await one.call("pay", id="before") == "done"
    await two.post("/freeze", by=two.mia)
    assert await one.call("pay", id="frozen") == "refused:run.not_open"
    await two.post("/resume", by=two.mia)
    assert await one.call("pay", id="resumed") == "done"
    await two.post("/finish")
    assert await one.call("pay", id="finished") == "refused:run.not_open"
    assert [took for id in ("frozen", "finished") for took in one.took(id)] == []


async def test_each_replica_shows_what_was_done_through_the_other(both: tuple[Stage, Stage]) -> None:
    one, two = await opened(both, "reads")
    for number in range(10):
        here, there = (one, two) if number % 2 else (two, one)
        assert await here.call("pay", id=f"n{number}") == "done"
        shown = await there.look()
        assert (shown["calls"], shown["budget"]["tool_calls_left"]) == ({"succeeded": number + 1}, 499 - number)
        assert [event["kind"] for event in await there.events()][-2:] == ["CallAdmitted", "CallSettled"]
        assert await there.call("pay", id=f"n{number}") == "replayed"
        assert (await here.look())["calls"] == {"succeeded": number + 1}


async def test_a_run_key_is_one_run_on_all_replicas_however_they_race(both: tuple[Stage, Stage]) -> None:
    clients = [stage.client("agent:plain") for stage in both for _ in range(5)]
    answers = await asyncio.gather(*(client.post("/v1/runs", json={"run_key": "raced"}) for client in clients))
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]
    assert len({answer.json()["run"] for answer in answers}) == 1
    token = answers[0].json()["token"]
    for stage in both:
        assert (await stage.holder(token).get(f"/v1/runs/{answers[0].json()['run']}")).status_code == 200


async def test_a_cap_of_a_principal_holds_over_all_replicas(both: tuple[Stage, Stage]) -> None:
    """`solo` may have one open run."""
    clients = [stage.client("agent:solo") for stage in both for _ in range(4)]
    answers = await asyncio.gather(*(client.post("/v1/runs", json={"run_key": f"solo {n}"}) for n, client in enumerate(clients)))
    assert sorted(answer.status_code for answer in answers) == [201] + [429] * 7
