"""An MCP server as a child process, kept running by one supervisor task: restart with backoff and jitter, stop without orphans.

A call that was never written is `unavailable`; one whose process died is `closed`: it may have happened. Nothing is written again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gateway.core.model import Json
from gateway.ports import Answer, Client, Dispatch, Hear, UpstreamFault
from gateway.upstreams.child import Child
from gateway.upstreams.lines import Foreign
from gateway.upstreams.mcp_lines import LineTransport
from gateway.upstreams.mcp_notices import Notices
from gateway.upstreams.mcp_peer import Peer

MAX_LINE: Final = 17 * 1024 * 1024


class McpStdio:
    """`argv` is run in `cwd` with a minimal environment and `env`. `backoff_s`: first and longest wait between two starts; a process
    that stayed for `stable_s` starts again at the first. `discover_s`: how long an old server may stay silent about the new era."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        kill_grace_s: float = 5.0,
        backoff_s: tuple[float, float] = (0.5, 30.0),
        stable_s: float = 30.0,
        start_s: float = 60.0,
        discover_s: float = 5.0,
    ) -> None:
        self.name = name
        self._argv, self._env, self._cwd = argv, env, cwd
        self._kill_grace_s, self._backoff_s, self._stable_s = kill_grace_s, backoff_s, stable_s
        self._start_s, self._discover_s = start_s, discover_s
        self._log = logging.getLogger(f"gateway.upstream.{name}")
        self._notices = Notices(name)
        self._peer: Peer | None = None
        self._child: Child | None = None
        self._why = "it was not started"
        self._tried = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the supervisor; wait for the start that is under way. It goes on trying after a failure."""
        if self._supervisor is None:
            self._supervisor = asyncio.get_running_loop().create_task(self._supervise())
        await self._tried.wait()
        self._current()

    async def close(self) -> None:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.wait([supervisor])
            await self._stop()  # where the cancel came while it was stopping a process already
            self._tried.clear()

    async def tools(self) -> list[dict[str, Any]]:
        return await self._current().tools()

    async def send(self, dispatch: Dispatch) -> Answer:
        return await self._current().call(dispatch)

    @property
    def offers(self) -> Mapping[str, Json]:
        return self._peer.offers if self._peer is not None else {}

    async def request(
        self, method: str, params: Mapping[str, Json], *, remaining_ms: int, capabilities: Mapping[str, Json] | None = None
    ) -> Mapping[str, Json]:
        return await self._current().request(method, params, remaining_ms=remaining_ms, client=Client(capabilities=capabilities or {}))

    async def watch(self, uris: Collection[str]) -> None:
        await self._notices.watch(uris)

    def listen(self, hear: Hear) -> None:
        self._notices.hear = hear

    def _current(self) -> Peer:
        if self._peer is None:
            raise UpstreamFault("unavailable", f"the process is not running: {self._why}")
        return self._peer

    # ---- the supervisor -------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        """Some old servers die of `server/discover`: after a start that failed, the next one is made the other way."""
        loop = asyncio.get_running_loop()
        failures, probe = 0, True
        while True:
            began = loop.time()
            try:
                self._why = await self._live(probe)
            except UpstreamFault as fault:
                self._why, probe = fault.message, not probe
            failures = 1 if loop.time() - began >= self._stable_s else failures + 1
            wait_s = min(self._backoff_s[0] * 2 ** min(failures - 1, 30), self._backoff_s[1]) * random.uniform(0.5, 1)
            self._log.warning("not running: %s; next start in %.1f s", self._why, wait_s)
            await asyncio.sleep(wait_s)

    async def _live(self, probe: bool) -> str:
        """One process from start to end; returns how it ended. Raises UpstreamFault if it never came to serve."""
        self._tried.clear()
        foreign = Foreign(self._log, asyncio.get_running_loop().time)
        lines = LineTransport(foreign)
        peer = Peer(lines, self._notices.noticed)
        try:
            async with asyncio.timeout(self._start_s):
                self._child = child = await Child.start(self._argv, lines.hear, foreign, max_line=MAX_LINE, cwd=self._cwd, env=self._env)
                child.ended.add_done_callback(lambda ended: lines.end(f"the process ended with exit code {ended.result()}"))
                lines.write = child.write
                await peer.greet(probe=probe, patience_s=self._discover_s, within_s=self._start_s)
            self._peer = peer
            self._notices.attach(peer, None)
            self._tried.set()
            return f"it ended with exit code {await asyncio.shield(child.ended)}"
        except TimeoutError:
            raise UpstreamFault("unavailable", f"it was not ready within {self._start_s:g} s") from None
        finally:
            self._peer = None
            self._tried.set()
            lines.end("the process was stopped")
            await self._notices.detach()
            await self._stop()

    async def _stop(self) -> None:
        if self._child is not None:
            await self._child.stop(self._kill_grace_s)
            self._child = None
