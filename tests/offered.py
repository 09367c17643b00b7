"""An engine over the real ledger and catalog, with an upstream in memory whose definitions a test changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.app_adapters import shape
from gateway.core import streams
from gateway.core.model import Principal
from gateway.engine import Caller, Engine
from gateway.policy.store import load_policies
from gateway.ports import Answer, Dispatch
from gateway.system import SystemClock, SystemIds
from gateway.upstreams.catalog import Catalog
from gateway.upstreams.pins import Pins
from tests.engine.stage import WilfulLedger
from tests.waiting import until

POLICY = """\
version: 1
name: p
run: {budgets: {turns: 9, tool_calls: 9, deadline: 90s, tokens: unlimited}}
defaults: {approvers: ["user:mia"]}
tools:
  - {tool: shop.pay, approval: {hold_open: 0s}}
  - {tool: shop.*, effect: read_only, retry: {attempts: 2, backoff: 1ms}}
"""
BOT = Caller(Principal("agent:bot"))
MIA = Caller(Principal("user:mia", roles=frozenset({"approver"}), person=True))
OPS = Caller(Principal("user:ops", roles=frozenset({"operator"}), person=True))
VIC = Caller(Principal("user:vic", roles=frozenset({"viewer"}), person=True))


def defined(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}} | more


class Shop:
    """The port Upstream. `sent`: every dispatch; `act`: what the next ones come to."""

    name = "shop"

    def __init__(self, *definitions: dict[str, Any]) -> None:
        self.definitions: Sequence[dict[str, Any]] = definitions
        self.sent: list[Dispatch] = []
        self.act: Callable[[], Awaitable[Answer]] | None = None

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def tools(self) -> Sequence[dict[str, Any]]:
        return self.definitions

    async def send(self, dispatch: Dispatch) -> Answer:
        self.sent.append(dispatch)
        if self.act is not None:
            return await self.act()
        return Answer({"content": [], "structuredContent": dict(dispatch.arguments), "isError": False})


class Offered:
    def __init__(self, engine: Engine, ledger: WilfulLedger, catalog: Catalog, shop: Shop) -> None:
        self.engine, self.ledger, self.catalog, self.shop = engine, ledger, catalog, shop

    async def offers(self, *definitions: dict[str, Any]) -> None:
        """From now on; returns when the catalog has seen it."""
        self.shop.definitions = definitions
        shown = list(definitions)
        await until(lambda: [dict(tool.definition) for tool in self.catalog.all()] == sorted(shown, key=lambda one: one["name"]), "the new offer")


@asynccontextmanager
async def offered(folder: Path, *definitions: dict[str, Any]) -> AsyncIterator[Offered]:
    (folder / "p.yaml").write_text(POLICY)
    clock, shop = SystemClock(), Shop(*definitions)
    ledger = WilfulLedger(folder / "gateway.db", empty=streams.empty, evolve=streams.evolve, clock=clock)
    ledger.joins, ledger.watches = asyncio.Queue(), asyncio.Queue()
    await ledger.open()
    catalog = Catalog([shop], shape, Pins(ledger), refresh_s=0.02)
    engine = Engine(ledger, catalog, load_policies(folder), clock, SystemIds(clock, b"s" * 32))
    await catalog.open()
    try:
        yield Offered(engine, ledger, catalog, shop)
    finally:
        await engine.stop(0)
        await catalog.close()
        await ledger.close()
