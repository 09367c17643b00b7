"""All tools of all upstreams by their full names, kept up to date by one task an upstream.

An upstream that can't be reached stops neither the others nor the start: it is tried again, and its tools appear when it is there. Tools
that were seen once stay while their upstream is away; a call then meets the upstream's own fault. What comes from outside is checked
here: names, duplicates, schemas that can't be enforced.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway.core.canonical import digest
from gateway.core.guards.guard import Shape
from gateway.core.model import Json, Tool
from gateway.ports import Answer, Dispatch, Upstream, UpstreamFault

log = logging.getLogger("gateway.catalog")

CompileShape = Callable[[Mapping[str, Json]], Shape | str]
"""The judge of an input schema, or the text of why it can't be enforced."""

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
        *,
        wait_s: float = 10.0,
        refresh_s: float = 10.0,
        backoff_s: tuple[float, float] = (0.5, 30.0),
    ) -> None:
        """Raises ValueError for a name that is out of shape or used twice."""
        self._upstreams = {upstream.name: upstream for upstream in upstreams}
        if len(self._upstreams) < len(upstreams) or not all(map(_UPSTREAM.fullmatch, self._upstreams)):
            raise ValueError(f"upstreams need different names of A-Z a-z 0-9 _ -, not {[upstream.name for upstream in upstreams]}")
        self._compile_shape = compile_shape
        self._wait_s, self._refresh_s, self._backoff_s = wait_s, refresh_s, backoff_s
        self._keepers: list[asyncio.Task[None]] = []
        self._digests: dict[str, list[str]] = {}
        self._shelves: dict[str, dict[str, Tool]] = {}
        self._by_name: dict[str, Tool] = {}
        self._all: tuple[Tool, ...] = ()
        self._away: dict[str, str] = dict.fromkeys(self._upstreams, "it was not asked yet")

    async def open(self) -> None:
        """Ask all upstreams at once; returns when each has answered or failed, at the latest after `wait_s`."""
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

    def tool(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def all(self) -> Sequence[Tool]:
        return self._all

    def away(self, name: str) -> str | None:
        """Why the upstream of this tool doesn't answer; None if it does, or if there is no such upstream."""
        return self._away.get(name.partition(".")[0])

    async def send(self, dispatch: Dispatch) -> Answer:
        upstream = self._upstreams.get(dispatch.tool.upstream)
        if upstream is None:
            raise UpstreamFault("unavailable", f"there is no upstream {dispatch.tool.upstream!r}")
        return await upstream.send(dispatch)

    # ---- keeping up to date ---------------------------------------------------------------------------------------------

    async def _keep(self, upstream: Upstream, asked: asyncio.Event) -> None:
        failures, taken = 0, None
        while True:
            try:
                await upstream.open()
                offered = await upstream.tools()
                if offered is not taken:  # thousands of definitions take long to compare
                    self._take(upstream.name, offered)
                failures, taken = 0, offered
            except UpstreamFault as fault:
                failures, taken = failures + 1, None
                self._note(upstream.name, fault.message)
            asked.set()
            backoff_s = min(self._backoff_s[0] * 2 ** min(failures - 1, 30), self._backoff_s[1]) * random.uniform(0.5, 1)
            await asyncio.sleep(backoff_s if failures else self._refresh_s)

    def _note(self, upstream: str, why: str) -> None:
        if self._away.get(upstream) != why:
            log.warning("upstream %s: %s", upstream, why)
            self._away[upstream] = why

    def _take(self, upstream: str, definitions: Sequence[Mapping[str, Json]]) -> None:
        self._away.pop(upstream, None)
        digests = [digest(definition) for definition in definitions[:MAX_TOOLS]]
        if digests == self._digests.get(upstream):
            return
        self._digests[upstream] = digests
        shelf: dict[str, Tool] = {}
        for definition, its_digest in zip(definitions, digests, strict=False):
            local = definition.get("name")
            name = f"{upstream}.{local}"
            if not isinstance(local, str) or not _TOOL.fullmatch(local) or name in shelf:
                log.warning("upstream %s: left out the tool %.200r, whose name is out of shape or used twice", upstream, local)
                continue
            known = self._by_name.get(name)
            shelf[name] = known if known and known.digest == its_digest else self._tool(name, upstream, local, definition, its_digest)
        self._shelves[upstream] = shelf
        self._by_name = {name: tool for each in self._shelves.values() for name, tool in each.items()}
        self._all = tuple(sorted(self._by_name.values(), key=lambda tool: tool.name))

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
