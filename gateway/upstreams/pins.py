"""The accepted definitions of tools, as the stream `gateway` has them: read at the start, followed from then on, written at first sight.

An upstream that is away keeps its pins, a restart pins nothing anew, and of several processes that see an upstream first one records it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.core.canonical import canonical
from gateway.core.decide import tools
from gateway.core.deployment import STREAM, Deployment, Pin
from gateway.core.events import Event
from gateway.core.model import Tool
from gateway.ports import Decision, Ledger, LedgerFault

log = logging.getLogger("gateway.catalog")

RETRY_S = 1.0
CHANGED = "its upstream has changed its definition since it was accepted"
NEW = "its upstream has offered it only since its tools were first seen, and nobody has accepted it"


class Pins:
    """`own`: the upstreams whose definitions stand in the deployment's own files; their tools are never held back."""

    def __init__(self, ledger: Ledger, own: frozenset[str] = frozenset()) -> None:
        self._ledger = ledger
        self._own = own
        self._known = Deployment()
        self._watching: asyncio.Task[None] | None = None
        self._changed: Callable[[], None] = lambda: None

    async def open(self, changed: Callable[[], None]) -> None:
        """`changed` is called whenever something else is accepted than before, by whichever process. Raises LedgerFault."""
        self._known = await self._ledger.state(STREAM)
        self._changed = changed
        self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    @property
    def pins(self) -> Mapping[str, Pin]:
        return self._known.pins

    def objection(self, tool: Tool) -> str | None:
        """Why a tool must be held back; None if its definition is the accepted one."""
        pin = self._known.pins.get(tool.name)
        if tool.upstream in self._own or (pin is not None and pin.digest == tool.digest):
            return None
        return NEW if pin is None else CHANGED

    async def see(self, upstream: str, offered: Iterable[Tool]) -> None:
        """Pin an upstream's tools if none of them was ever seen. Raises LedgerFault: then it is as if they hadn't been seen."""
        seen = list(offered)
        digests = {tool.name: tool.digest for tool in seen}
        await self._append(seen, lambda known: tools.see(known, upstream, digests, own=upstream in self._own))

    async def accept(self, chosen: Iterable[Tool], by: str) -> None:
        """Accept these definitions; durable, and in effect here when it returns. Raises LedgerFault."""
        accepted = list(chosen)
        digests = {tool.name: tool.digest for tool in accepted}
        await self._append(accepted, lambda known: tools.accept(known, digests, by))

    async def _append(self, about: list[Tool], decide: Callable[[Deployment], tuple[Event, ...]]) -> None:
        if not decide(self._known):
            return
        texts = {tool.digest: canonical(tool.definition).decode() for tool in about}

        def step(states: Mapping[str, Any], now: int) -> Decision:
            events = decide(states[STREAM])
            return Decision(tuple((STREAM, event) for event in events), None, policies=texts if events else {})

        self._take((await self._ledger.transact([STREAM], step)).states[STREAM])

    def _take(self, known: Deployment) -> None:
        if known.seq > self._known.seq:
            before, self._known = self._known.pins, known
            if known.pins is not before:
                self._changed()

    async def _watch(self) -> None:
        while True:
            try:
                await self._ledger.watch(STREAM, self._known.seq)
                self._take(await self._ledger.state(STREAM))
            except LedgerFault as fault:
                log.warning("what is accepted of tools can't be followed for now: %s", fault)
                await asyncio.sleep(RETRY_S)
