"""Every fault of an upstream × every effect, through a real gateway: what the call comes to, as the table of `core.outcomes` and FACTS say.

One gateway for all cases. A case is `tool.fault` in one run; the upstream's journal tells what really happened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from itertools import count

import pytest

from tests.e2e.agents import RestAgent
from tests.faults.evidence import examined
from tests.faults.journal import DID
from tests.faults.running import Gateway, gateway
from tests.faults.zygote import Zygote
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

UNAVAILABLE, TIMEOUT, ERROR = "refused:upstream.unavailable", "refused:tool.timeout", "done:tool.error"
LARGE, GARBAGE, DOUBT = "refused:result.unread", "refused:tool.error", "refused:call.in_doubt"

OUTCOMES: Mapping[str, tuple[str, str, str]] = {
    "ok": ("done", "done", "done"),
    "unread": (UNAVAILABLE, DOUBT, DOUBT),
    "reset": (UNAVAILABLE, DOUBT, DOUBT),
    "close": (UNAVAILABLE, DOUBT, DOUBT),
    "cut": (UNAVAILABLE, DOUBT, DOUBT),
    "cut_chunk": (UNAVAILABLE, DOUBT, DOUBT),
    "garbage": (GARBAGE, DOUBT, DOUBT),
    "huge": (LARGE, DOUBT, DOUBT),
    "hang": (TIMEOUT, DOUBT, DOUBT),
    "drip": (TIMEOUT, DOUBT, DOUBT),
    "409": (ERROR, ERROR, ERROR),
    "422": (ERROR, ERROR, ERROR),
    "429": (ERROR, ERROR, ERROR),
    "redirect": (ERROR, ERROR, ERROR),
    "503": (ERROR, ERROR, DOUBT),
    "500": (ERROR, ERROR, DOUBT),
}
"""Fault -> what a read, an idempotent write and a payment are told, with one attempt each."""

AGAIN: Mapping[str, tuple[str, str, str]] = {
    "reset,ok": ("done", "done", DOUBT),
    "hang,ok": ("done", "done", DOUBT),
    "cut,garbage,ok": ("done", "done", DOUBT),
    "500,503,ok": ("done", "done", DOUBT),
    "503_later,ok": ("done", "done", DOUBT),
    "429_later,ok": ("done", "done", ERROR),
    "reset,422": (ERROR, ERROR, DOUBT),
    "unread,reset,close,ok": (UNAVAILABLE, DOUBT, DOUBT),
    "409,ok": (ERROR, ERROR, ERROR),
}
"""The same with three attempts."""

DESK: Mapping[str, tuple[str, str, str]] = {
    "ok": ("done", "done", "done"),
    "twice": ("done", "done", "done"),
    "flood": ("done", "done", "done"),
    "noise": ("done", "done", "done"),
    "stranger": ("done", "done", "done"),
    "refuse": (ERROR, ERROR, ERROR),
    "error": (ERROR, ERROR, ERROR),
    "garbage": (GARBAGE, DOUBT, DOUBT),
    "hang": (TIMEOUT, DOUBT, DOUBT),
    "die": (UNAVAILABLE, DOUBT, DOUBT),
}
"""The same for the stdio server."""

EFFECTS = ("read", "put", "pay")


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote, anyio_backend: str) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path_factory.mktemp("table"), zygote) as one:
        await one.start()
        yield one
        assert await examined(one) == []


async def told(running: Gateway, agent: RestAgent, temper: str, fault: str) -> list[str]:
    """What one call of each effect is told. A write's repeat is answered from the record, whatever came of it, and its upstream hears nothing."""
    says = []
    for effect in EFFECTS:
        case = {"id": f"{agent.on} {effect} {fault}", "do": fault}
        says.append(await agent.call(f"{temper}{effect}", **case))
        took = len(running.took_by(agent.on, case["id"]))
        if effect != "read":
            assert await agent.call(f"{temper}{effect}", **case) == says[-1].replace("done", "replayed")
            assert len(running.took_by(agent.on, case["id"])) == took
            assert len({entry.key for entry in running.took_by(agent.on, case["id"])}) <= 1
    return says


@pytest.mark.parametrize("fault", OUTCOMES)
async def test_what_a_fault_makes_of_each_effect(running: Gateway, fault: str) -> None:
    agent = await running.agent(f"once {fault}")
    assert await told(running, agent, "quick_" if fault in ("hang", "drip") else "", fault) == list(OUTCOMES[fault])
    assert len(running.took_by("web", f"web pay {fault}")) == (fault != "unread")


async def test_nobody_listening_frees_the_key(running: Gateway) -> None:
    """Not a byte has left, so a repeat is tried again."""
    agent = await running.agent("down", on="down")
    for effect in EFFECTS:
        assert [await agent.call(effect, id="d") for _ in range(2)] == [UNAVAILABLE] * 2
    assert len({record["event"]["key"] for record in await agent.events() if record["kind"] == "CallAdmitted"}) == 3


@pytest.mark.parametrize("fault", AGAIN)
async def test_what_is_tried_again_and_what_is_not(running: Gateway, fault: str) -> None:
    agent = await running.agent(f"again {fault}")
    assert await told(running, agent, "brisk_" if fault.startswith("hang") else "again_", fault) == list(AGAIN[fault])
    assert len(running.took_by("web", f"web pay {fault}")) == (not fault.startswith("unread"))


async def test_a_connection_that_went_stale_costs_a_payment_nothing(running: Gateway) -> None:
    """It has a connection of its own; a read is tried again, a write under its key."""
    agent = await running.agent("stale")
    for effect in EFFECTS:
        assert await agent.call(f"again_{effect}", id=f"before {effect}", do="stale") == "done"
        assert await agent.call(f"again_{effect}", id=f"after {effect}") == "done"
    assert len(running.journal.of(DID, "after pay")) == 1


@pytest.mark.parametrize("fault", [fault for fault in DESK if fault != "die"])
async def test_what_a_fault_of_a_stdio_server_makes_of_each_effect(running: Gateway, fault: str) -> None:
    agent = await running.agent(f"desk {fault}", on="desk")
    assert await told(running, agent, "quick_" if fault == "hang" else "", fault) == list(DESK[fault])


@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_stdio_server_that_dies_during_a_call_comes_back_for_the_next(running: Gateway, effect: str) -> None:
    agent = await running.agent(f"desk dies {effect}", on="desk")

    tried = count()

    async def back() -> bool:
        return await agent.call("read", id=f"back {next(tried)}") == "done"

    await eventually(back, "the stdio server")
    assert await agent.call(effect, id=f"dies {effect}", do="die") == DESK["die"][EFFECTS.index(effect)]
    await eventually(back, "the stdio server")
    assert len(running.took_by("desk", f"dies {effect}")) == 1
