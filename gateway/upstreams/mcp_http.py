"""An MCP server over Streamable HTTP, of either era: greeted once, then every call a POST on a warm connection or one of its own.

What the greeting found is kept until the server shows that it no longer holds: its tools can't be read, or it has forgotten our session.
Then it is greeted anew, before the next call. A call that couldn't be sent for that reason was not applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.model import Json, Tool
from gateway.ports import Answer, Client, Dispatch, Hear, UpstreamFault
from gateway.upstreams.credentials import NONE, Credentials
from gateway.upstreams.http_dial import tls_context
from gateway.upstreams.http_pool import Pool
from gateway.upstreams.mcp_notices import Notices
from gateway.upstreams.mcp_peer import Peer
from gateway.upstreams.mcp_post import Endpoint, HttpTransport
from gateway.upstreams.sending import seconds_left
from gateway.wire import mcp_headers
from gateway.wire.mcp_headers import HeaderError, Marked

log = logging.getLogger("gateway.upstream")

GREET_S: Final = 15.0
DISCOVER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Link:
    """What one greeting made."""

    peer: Peer
    transport: HttpTransport


class McpHttp:
    """`credentials` go with every request and into no message."""

    def __init__(
        self,
        name: str,
        url: str,
        credentials: Credentials = NONE,
        *,
        connect_timeout_ms: int = 10_000,
        greet_s: float = GREET_S,
        discover_s: float = DISCOVER_S,
    ) -> None:
        """Raises ValueError for a URL that can't be asked; the message doesn't show it."""
        self.name = name
        self._endpoint = Endpoint(url, credentials)
        self._tls = tls_context() if self._endpoint.origin.secure else None
        self._connect_s, self._greet_s, self._discover_s = connect_timeout_ms / 1000, greet_s, discover_s
        self._pool: Pool | None = None
        self._link: _Link | None = None
        self._greeting = asyncio.Lock()
        self._notices = Notices(name)
        self._marks: dict[str, Marked] = {}

    # ---- the port -------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._pool is None:
            self._pool = Pool(self._endpoint.origin, self._tls, self._connect_s)
        await self._linked()

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        async with self._greeting:
            await self._notices.detach()
            link, self._link = self._link, None
        if link is not None:
            await link.transport.close()
        if pool is not None:
            await pool.close()
        if self._endpoint.tokens is not None:
            await self._endpoint.tokens.close()

    async def tools(self) -> list[dict[str, Any]]:
        """Raises UpstreamFault; the server is greeted anew then, when it is asked again."""
        link = await self._linked()
        try:
            tools = await link.peer.tools()
        except UpstreamFault:
            self._forget(link)
            raise
        return [tool for tool in tools if self._can_be_called(tool)] if link.peer.is_2026 else tools

    async def send(self, dispatch: Dispatch) -> Answer:
        until = _now() + seconds_left(dispatch.remaining_ms)
        link = await self._linked(until)
        return await link.peer.call(dispatch, self._marked(dispatch.tool) if link.peer.is_2026 else {})

    @property
    def offers(self) -> Mapping[str, Json]:
        return self._link.peer.offers if self._link is not None else {}

    async def request(
        self, method: str, params: Mapping[str, Json], *, remaining_ms: int, capabilities: Mapping[str, Json] | None = None
    ) -> Mapping[str, Json]:
        link = await self._linked(_now() + seconds_left(remaining_ms))
        return await link.peer.request(method, params, remaining_ms=remaining_ms, client=Client(capabilities=capabilities or {}))

    async def watch(self, uris: Collection[str]) -> None:
        await self._notices.watch(uris)

    def listen(self, hear: Hear) -> None:
        self._notices.hear = hear

    # ---- the greeting ---------------------------------------------------------------------------------------------------

    async def _linked(self, until: float | None = None) -> _Link:
        """Raises UpstreamFault `unavailable`: whatever went wrong in the greeting, nothing else was sent."""
        if self._link is not None:
            return self._link
        try:
            async with asyncio.timeout_at(until), self._greeting:
                if self._link is None:
                    self._link = await self._greeted()
                return self._link
        except TimeoutError:
            raise UpstreamFault("unavailable", "the server did not answer the greeting in time") from None
        except UpstreamFault as fault:
            raise UpstreamFault("unavailable", f"the server could not be greeted: {fault.message}", status=fault.status) from None

    async def _greeted(self) -> _Link:
        """Some old servers break on `server/discover`: then once more without it."""
        try:
            return await self._met(probe=True)
        except UpstreamFault as fault:
            if fault.kind not in ("closed", "reset", "cut", "garbage", "timeout"):
                raise
            return await self._met(probe=False)

    async def _met(self, *, probe: bool) -> _Link:
        if self._pool is None:
            raise UpstreamFault("unavailable", "the upstream is closed")
        transport = HttpTransport(self._endpoint, self._pool)
        link = _Link(Peer(transport, self._notices.noticed), transport)
        transport.gone = lambda: self._forget(link)
        await link.peer.greet(probe=probe, patience_s=self._discover_s, within_s=self._greet_s)
        await self._notices.detach()
        self._notices.attach(link.peer, transport.stand)
        return link

    def _forget(self, link: _Link) -> None:
        """Calls under way on it go on; its session is left to the server, which may still work for them."""
        if self._link is link:
            self._link = None

    # ---- arguments that headers repeat ----------------------------------------------------------------------------------

    def _marked(self, tool: Tool) -> Marked:
        """Read from a definition once. A mark that the protocol forbids keeps the tool off the list, so none of its calls comes here."""
        found = self._marks.get(tool.digest)
        if found is None:
            schema = tool.definition.get("inputSchema")
            found = self._marks[tool.digest] = mcp_headers.marked_arguments(schema) if isinstance(schema, dict) else {}
        return found

    def _can_be_called(self, tool: Mapping[str, Any]) -> bool:
        try:
            mcp_headers.marked_arguments(tool["inputSchema"])
        except HeaderError as error:
            log.warning("upstream %s: left out the tool %.200r: %s", self.name, tool["name"], error)
            return False
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
