"""Pins over a real ledger: first sight once for all processes, nothing anew after a restart, accepting in effect everywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.core import streams
from gateway.core.canonical import digest
from gateway.core.deployment import STREAM
from gateway.core.events import PoliciesLoaded
from gateway.core.model import Tool
from gateway.ledger.ledger import StoreLedger
from gateway.ledger.postgres import PostgresLedger
from gateway.ledger.sqlite import SqliteLedger
from gateway.ports import Committed, Decision, LedgerFault, Step
from gateway.upstreams import pins as under_test
from gateway.upstreams.pins import CHANGED, NEW, Pins
from tests.fakes import FakeClock
from tests.waiting import START_S, WAIT_S

pytestmark = pytest.mark.anyio


class Wilful(SqliteLedger):
    """`down`: nothing can be appended or followed. `appends`: how often that was asked for."""

    down = False
    appends = 0

    async def transact(self, streams: Any, step: Step) -> Committed:
        self.appends += 1
        if self.down:
            raise LedgerFault("the disk is away")
        return await super().transact(streams, step)

    async def watch(self, stream: str, after: int) -> None:
        if self.down:
            raise LedgerFault("the disk is away")
        await super().watch(stream, after)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Wilful]:
    ledger = Wilful(tmp_path / "gateway.db", empty=streams.empty, evolve=streams.evolve, clock=FakeClock())
    await ledger.open()
    yield ledger
    await ledger.close()


def tool(name: str, description: str = "Does it.") -> Tool:
    upstream, _, local = name.partition(".")
    definition = {"name": local, "description": description}
    return Tool(name, upstream, local, definition, digest(definition))


GET, PUT = tool("crm.get"), tool("crm.put")
OTHER = tool("crm.get", "Does something else.")


async def opened(ledger: StoreLedger, changed: Any = lambda: None, **options: Any) -> Pins:
    pins = Pins(ledger, **options)
    await pins.open(changed)
    return pins


async def kinds(ledger: StoreLedger) -> list[str]:
    return [type(one.event).__name__ for one in await ledger.events(STREAM)]


async def test_first_sight_accepts_what_is_offered_and_keeps_its_text(ledger: Wilful) -> None:
    pins = await opened(ledger)
    await pins.see("crm", [GET, PUT])
    assert [pins.objection(one) for one in (GET, PUT, OTHER, tool("crm.new"))] == [None, None, CHANGED, NEW]
    assert json.loads(await ledger.policy_text(GET.digest) or "") == GET.definition
    assert await kinds(ledger) == ["ToolsPinned"]
    await pins.close()


async def test_a_restart_pins_nothing_anew_and_what_is_known_costs_no_append(ledger: Wilful) -> None:
    first = await opened(ledger)
    await first.see("crm", [GET])
    await first.close()
    ledger.appends = 0
    second = await opened(ledger)
    await second.see("crm", [OTHER, PUT])
    assert [second.objection(one) for one in (GET, OTHER, PUT)] == [None, CHANGED, NEW]
    assert (ledger.appends, await kinds(ledger)) == (0, ["ToolsPinned"])
    await second.close()


async def test_two_processes_that_see_an_upstream_first_pin_it_once(ledger: Wilful) -> None:
    one, two = await opened(ledger), await opened(ledger)
    await asyncio.gather(one.see("crm", [GET, PUT]), two.see("crm", [OTHER, PUT]))
    assert await kinds(ledger) == ["ToolsPinned"]
    assert one.pins == two.pins
    assert {one.objection(GET), one.objection(OTHER)} == {None, CHANGED}
    for pins in (one, two):
        await pins.close()


async def test_what_one_process_accepts_holds_in_all_of_them(ledger: Wilful) -> None:
    heard = asyncio.Event()
    one, two = await opened(ledger), await opened(ledger, heard.set)
    await one.see("crm", [GET])
    async with asyncio.timeout(5):
        await heard.wait()
    heard.clear()
    await one.accept([OTHER], "user:ops")
    assert one.objection(OTHER) is None
    async with asyncio.timeout(5):
        await heard.wait()
    assert (two.objection(OTHER), two.objection(GET)) == (None, CHANGED)
    assert (two.pins["crm.get"].by, json.loads(await ledger.policy_text(OTHER.digest) or "")) == ("user:ops", OTHER.definition)
    for pins in (one, two):
        await pins.close()


async def test_other_news_of_the_stream_changes_nothing(ledger: Wilful) -> None:
    told: list[int] = []
    pins = await opened(ledger, lambda: told.append(1))
    await pins.see("crm", [GET])
    await ledger.transact([STREAM], lambda states, now: Decision(((STREAM, PoliciesLoaded(1, "d", ())),), None))
    await pins.accept([OTHER], "user:ops")
    assert told == [1, 1]
    await pins.close()


async def test_what_stands_in_the_deployments_own_files_is_never_held_back_and_recorded(ledger: Wilful) -> None:
    pins = await opened(ledger, own=frozenset({"crm"}))
    await pins.see("crm", [GET])
    assert pins.objection(OTHER) is None
    await pins.see("crm", [OTHER])
    assert (pins.pins["crm.get"].digest, await kinds(ledger)) == (OTHER.digest, ["ToolsPinned", "ToolsPinned"])
    await pins.close()


async def test_an_upstream_that_can_not_be_recorded_was_not_seen(ledger: Wilful) -> None:
    pins = await opened(ledger)
    ledger.down = True
    with pytest.raises(LedgerFault):
        await pins.see("crm", [GET])
    assert pins.objection(GET) == NEW
    ledger.down = False
    await pins.see("crm", [GET])
    assert pins.objection(GET) is None
    await pins.close()


async def test_following_goes_on_after_an_outage(ledger: Wilful, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "RETRY_S", 0.01)
    heard = asyncio.Event()
    ledger.down = True
    pins = await opened(ledger, heard.set)
    other = Pins(ledger)
    await asyncio.sleep(0)
    ledger.down = False
    await other.see("crm", [GET])
    async with asyncio.timeout(5):
        await heard.wait()
    assert pins.objection(GET) is None
    await pins.close()


async def recorded(append: Callable[..., Awaitable[None]], *what: Any) -> None:
    """Again, as the catalog does: a batch that took too long beside a busy machine is refused, and nothing of it stands."""
    async with asyncio.timeout(START_S):
        while True:
            try:
                return await append(*what)
            except LedgerFault:
                await asyncio.sleep(0)


async def test_two_gateways_on_one_database_pin_once_and_hear_of_each_other(new_database: Callable[[], str]) -> None:
    dsn, heard = new_database(), asyncio.Event()
    ledgers = [PostgresLedger(dsn, empty=streams.empty, evolve=streams.evolve, clock=FakeClock()) for _ in range(2)]
    for ledger in ledgers:
        await ledger.open()
    one, two = await opened(ledgers[0]), await opened(ledgers[1], heard.set)
    await asyncio.gather(recorded(one.see, "crm", [GET, PUT]), recorded(two.see, "crm", [OTHER, PUT]))
    assert (await kinds(ledgers[0]), one.pins) == (["ToolsPinned"], two.pins)
    wanted = OTHER if one.objection(OTHER) else GET
    heard.clear()
    await recorded(one.accept, [wanted], "user:ops")
    await asyncio.wait_for(heard.wait(), WAIT_S)
    assert two.objection(wanted) is None
    for pins in (one, two):
        await pins.close()
    for ledger in ledgers:
        await ledger.close()
