"""All tools of all upstreams by their full names, kept up to date by one task an upstream.

What an upstream offers is pinned at first sight (`pins`); a definition that is another since is held back until it is accepted.
An upstream that can't be reached stops neither the others nor the start: it is tried again, and its tools appear when it is there. Tools
that were seen once stay while their upstream is away; a call then meets the upstream's own fault. What comes from outside is checked
here: names, duplicates, schemas that can't be enforced.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from gateway.core.canonical import digest
from gateway.core.deployment import Pin
from gateway.core.guards.guard import Shape
from gateway.core.model import Json, Tool
from gateway.ports import Answer, Dispatch, Hear, LedgerFault, Notice, Server, Upstream, UpstreamFault
from gateway.upstreams.pins import Pins

log = logging.getLogger("gateway.catalog")

CompileShape = Callable[[Mapping[str, Json]], Shape | str]
"""The judge of an input schema, or the text of why it can't be enforced."""

TOOLS_CHANGED: Final = "notifications/tools/list_changed"
MAX_TOOLS: Final = 5_000
"""Of one upstream."""

_UPSTREAM: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOOL: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")


class Catalog:
    """`wait_s`: how long the start waits for upstreams. `refresh_s`: how often tools are asked for again; `backoff_s`: first and longest
    wait after a failure. `all()` gives the same sequence until something changes."""

    def __init__(
        self,
        upstreams: Sequence[Upstream],
        compile_shape: CompileShape,
        pins: Pins | None = None,
        *,
        wait_s: float = 10.0,
        refresh_s: float = 10.0,
        backoff_s: tuple[float, float] = (0.5, 30.0),
    ) -> None:
        """Without `pins` nothing is held back for its definition. Raises ValueError for a name that is out of shape or used twice."""
        self._upstreams = {upstream.name: upstream for upstream in upstreams}
        if len(self._upstreams) < len(upstreams) or not all(map(_UPSTREAM.fullmatch, self._upstreams)):
            raise ValueError(f"upstreams need different names of A-Z a-z 0-9 _ -, not {[upstream.name for upstream in upstreams]}")
        self._compile_shape = compile_shape
        self._pins = pins
        self._wait_s, self._refresh_s, self._backoff_s = wait_s, refresh_s, backoff_s
        self._keepers: list[asyncio.Task[None]] = []
        self._digests: dict[str, list[str]] = {}
        self._shelves: dict[str, dict[str, Tool]] = {}
        self._by_name: dict[str, Tool] = {}
        self._all: tuple[Tool, ...] = ()
        self._stale = {name: asyncio.Event() for name in self._upstreams}
        self._hearers: list[Hear] = []
        self._away: dict[str, str] = dict.fromkeys(self._upstreams, "it was not asked yet")

    async def open(self) -> None:
        """Ask all upstreams at once; returns when each has answered or failed, at the latest after `wait_s`. Raises LedgerFault."""
        if self._pins is not None:
            await self._pins.open(self._offer)
        for server in self._upstreams.values():
            if isinstance(server, Server):
                server.listen(self._hear)
        asked = [asyncio.Event() for _ in self._upstreams]
        self._keepers = [asyncio.ensure_future(self._keep(*each)) for each in zip(self._upstreams.values(), asked, strict=True)]
        for keeper in self._keepers:
            keeper.add_done_callback(_crashed)
        waiting = [asyncio.ensure_future(event.wait()) for event in asked]
        if waiting:
            await asyncio.wait(waiting, timeout=self._wait_s)
        for task in waiting:
            task.cancel()

    async def close(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(upstream.close() for upstream in self._upstreams.values()))
        if self._pins is not None:
            await self._pins.close()

    def tool(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def all(self) -> Sequence[Tool]:
        return self._all

    def away(self, name: str) -> str | None:
        """Why the upstream of this tool doesn't answer; None if it does, or if there is no such upstream."""
        return self._away.get(name.partition(".")[0])

    def pins(self) -> Mapping[str, Pin]:
        """What is accepted of the upstreams that there are, whether they answer or not."""
        pins = self._pins.pins if self._pins is not None else {}
        return {tool: pin for tool, pin in pins.items() if tool.partition(".")[0] in self._upstreams}

    async def accept(self, tools: Sequence[Tool], by: str) -> None:
        """Raises LedgerFault."""
        assert self._pins is not None, "only a catalog with pins has something to accept"
        await self._pins.accept(tools, by)

    def send(self, dispatch: Dispatch) -> Awaitable[Answer]:
        upstream = self._upstreams.get(dispatch.tool.upstream)
        if upstream is None:
            raise UpstreamFault("unavailable", f"there is no upstream {dispatch.tool.upstream!r}")
        return upstream.send(dispatch)

    def server(self, upstream: str) -> Server | None:
        found = self._upstreams.get(upstream)
        return found if isinstance(found, Server) else None

    def listen(self, hear: Hear) -> Callable[[], None]:
        self._hearers.append(hear)
        return lambda: self._hearers.remove(hear)

    def _hear(self, notice: Notice) -> None:
        if notice.method == TOOLS_CHANGED:  # told to others once it was seen here
            self._stale[notice.upstream].set()
        else:
            self._tell(notice)

    def _tell(self, notice: Notice) -> None:
        for hear in list(self._hearers):
            hear(notice)

    # ---- keeping up to date ---------------------------------------------------------------------------------------------

    async def _keep(self, upstream: Upstream, asked: asyncio.Event) -> None:
        failures, taken = 0, None
        while True:
            try:
                await upstream.open()
                offered = await upstream.tools()
                if offered is not taken:  # thousands of definitions take long to compare
                    await self._take(upstream.name, offered)
                failures, taken = 0, offered
            except UpstreamFault as fault:
                failures, taken = failures + 1, None
                self._note(upstream.name, fault.message)
            except LedgerFault as fault:
                failures += 1
                self._note(upstream.name, f"what it offers can't be recorded: {fault}")
            asked.set()
            backoff_s = min(self._backoff_s[0] * 2 ** min(failures - 1, 30), self._backoff_s[1]) * random.uniform(0.5, 1)
            stale = self._stale[upstream.name]
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff_s if failures else self._refresh_s):
                    await stale.wait()
            stale.clear()

    def _note(self, upstream: str, why: str) -> None:
        if self._away.get(upstream) != why:
            log.warning("upstream %s: %s", upstream, why)
            self._away[upstream] = why

    async def _take(self, upstream: str, definitions: Sequence[Mapping[str, Json]]) -> None:
        digests = [digest(definition) for definition in definitions[:MAX_TOOLS]]
        if digests != self._digests.get(upstream):
            shelf = self._shelf(upstream, definitions, digests)
            if self._pins is not None:
                await self._pins.see(upstream, shelf.values())
            self._digests[upstream], self._shelves[upstream] = digests, shelf
            self._offer()
        self._away.pop(upstream, None)

    def _shelf(self, upstream: str, definitions: Sequence[Mapping[str, Json]], digests: Sequence[str]) -> dict[str, Tool]:
        before = self._shelves.get(upstream, {})
        shelf: dict[str, Tool] = {}
        for definition, its_digest in zip(definitions, digests, strict=False):
            local = definition.get("name")
            name = f"{upstream}.{local}"
            if not isinstance(local, str) or not _TOOL.fullmatch(local) or name in shelf:
                log.warning("upstream %s: left out the tool %.200r, whose name is out of shape or used twice", upstream, local)
                continue
            known = before.get(name)
            shelf[name] = known if known and known.digest == its_digest else self._tool(name, upstream, local, definition, its_digest)
        return shelf

    def _offer(self) -> None:
        """What is on the shelves, judged by what is accepted now; whoever listens is told of what has changed."""
        before = self._by_name
        after = {name: self._judged(tool, before.get(name)) for shelf in self._shelves.values() for name, tool in shelf.items()}
        if changed := {name.partition(".")[0] for name in before.keys() | after.keys() if before.get(name) != after.get(name)}:
            self._by_name, self._all = after, tuple(sorted(after.values(), key=lambda tool: tool.name))
            for upstream in sorted(changed):
                self._tell(Notice(upstream, TOOLS_CHANGED, {}))

    def _judged(self, tool: Tool, before: Tool | None) -> Tool:
        why = self._pins.objection(tool) if self._pins is not None else None
        if why is None:
            return tool
        if before is None or (before.digest, before.unaccepted) != (tool.digest, why):
            log.warning("tool %s is held back: %s; `gateway tools diff` shows it", tool.name, why)
        return replace(tool, unaccepted=why)

    def _tool(self, name: str, upstream: str, local: str, definition: Mapping[str, Json], its_digest: str) -> Tool:
        schema = definition.get("inputSchema")
        shape = _malformed(definition) or (self._compile_shape(schema) if isinstance(schema, dict) else "it has no input schema")
        if isinstance(shape, str):
            log.warning("tool %s is held back: %s", name, shape)
            return Tool(name, upstream, local, definition, its_digest, unsupported=shape)
        return Tool(name, upstream, local, definition, its_digest, shape)


_TYPES: Final = {"title": str, "description": str, "annotations": dict, "outputSchema": dict, "_meta": dict, "icons": list}


def _malformed(definition: Mapping[str, Json]) -> str | None:
    """What of a definition clients couldn't read: one such tool would cost them the whole list."""
    wrong = [name for name, kind in _TYPES.items() if name in definition and not isinstance(definition[name], kind)]
    return f"its definition is malformed: {', '.join(wrong)}" if wrong else None


def _crashed(keeper: asyncio.Task[None]) -> None:
    if not keeper.cancelled():
        log.critical("an upstream is no longer kept up to date", exc_info=keeper.exception())
