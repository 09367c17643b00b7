"""What an MCP server tells beside its answers: lists that changed, resources that were updated, its log.

In 2026-07-28 one standing `subscriptions/listen` brings all of it; before, a pipe does by itself, HTTP by a standing GET, and each resource is
subscribed to. Whatever breaks is opened again with backoff; a server that has no such thing is left in peace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from gateway.core.model import Json
from gateway.ports import Hear, Notice, UpstreamFault, UpstreamRefusal
from gateway.upstreams.mcp_peer import TOOLS_CHANGED, Peer
from gateway.wire import mcp, mcp_client
from gateway.wire.jsonrpc import Notification

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
PASSED_ON: Final = frozenset({
    TOOLS_CHANGED, "notifications/prompts/list_changed", "notifications/resources/list_changed", "notifications/resources/updated",
    "notifications/message",
})  # fmt: skip
BACKOFF_S: Final = (1.0, 30.0)
SUBSCRIBE_MS: Final = 10_000
DAY_MS: Final = 86_400_000

_LISTS: Final = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}

Stand = Callable[[Callable[[], None]], Awaitable[bool]]
"""Holds a standing stream open till it ends, and tells when it is; False if the server has none. Raises UpstreamFault."""


class Notices:
    """Of one upstream, over all its connections. `attach` begins with a new one, `detach` ends."""

    def __init__(self, upstream: str) -> None:
        self.hear: Hear | None = None
        self._upstream = upstream
        self._uris: frozenset[str] = frozenset()
        self._peer: Peer | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._acknowledged: asyncio.Future[None] | None = None
        self._failures = 0

    def noticed(self, notification: Notification) -> None:
        """For the peer: what belongs to no request. What only concerns our own connection to the server goes no further."""
        params = notification.params
        if notification.method == ACKNOWLEDGED:
            self._granted(params.get("notifications"))
        elif notification.method in PASSED_ON and self.hear is not None:
            meta = params.get("_meta")
            theirs = mcp_client.travelling(mcp.strip_ours(meta)) if isinstance(meta, dict) else {}
            bare = {name: value for name, value in params.items() if name != "_meta"}
            self.hear(Notice(self._upstream, notification.method, bare | ({"_meta": theirs} if theirs else {})))

    def attach(self, peer: Peer, stand: Stand | None) -> None:
        """`stand`: how a session-era server's standing stream is held open; None where a pipe brings everything."""
        self._peer, self._failures = peer, 0
        if peer.is_2026:
            self._begin(self._listen(peer))
        elif stand is None:
            peer.told = True
            self._begin(self._subscribe_all(peer))
        else:
            self._begin(self._hold(peer, stand))

    async def detach(self) -> None:
        self._peer = None
        await self._end()

    async def watch(self, uris: Collection[str]) -> None:
        """Raises UpstreamRefusal, UpstreamFault; what is wanted is remembered all the same."""
        before, self._uris = self._uris, frozenset(uris)
        peer = self._peer
        if peer is None:
            raise UpstreamFault("unavailable", "the server is away")
        if self._uris == before:
            return
        if not peer.is_2026:
            await self._subscribe(peer, self._uris - before, before - self._uris)
            return
        await self._end()
        self._acknowledged = asyncio.get_running_loop().create_future()
        self._begin(self._listen(peer))
        try:
            async with asyncio.timeout(SUBSCRIBE_MS / 1000):
                await self._acknowledged
        except TimeoutError:
            raise UpstreamFault("timeout", "the subscription was not acknowledged in time") from None

    # ---- keeping --------------------------------------------------------------------------------------------------------

    def _begin(self, keeping: Coroutine[Any, Any, None]) -> None:
        self._keeper = asyncio.get_running_loop().create_task(keeping)

    async def _end(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])

    async def _listen(self, peer: Peer) -> None:
        """The standing request of 2026-07-28. A refusal ends it; the end of a stream, or a fault, does not."""
        while wanted := self._filter(peer.offers):
            try:
                await peer.request("subscriptions/listen", {"notifications": wanted}, remaining_ms=DAY_MS)
                self._failures = 0
            except UpstreamRefusal as refusal:
                self._refused(refusal)
                return
            except UpstreamFault:
                self._failures += 1
            peer.told = False
            await self._pause()
        self._granted({})

    async def _hold(self, peer: Peer, stand: Stand) -> None:
        def opened() -> None:
            peer.told, self._failures = _says_changes(peer.offers, "tools"), 0

        await self._subscribe_all(peer)
        while True:
            with suppress(UpstreamFault):
                if not await stand(opened):
                    return
            peer.told = False
            self._failures += 1
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(min(BACKOFF_S[0] * 2 ** min(self._failures, 10), BACKOFF_S[1]))

    # ---- what is wanted -------------------------------------------------------------------------------------------------

    def _filter(self, offers: Mapping[str, Json]) -> dict[str, Json]:
        wanted: dict[str, Json] = {name: True for kind, name in _LISTS.items() if _says_changes(offers, kind)}
        return wanted | ({"resourceSubscriptions": sorted(self._uris)} if self._uris else {})

    def _granted(self, notifications: Json) -> None:
        if self._peer is not None and isinstance(notifications, dict):
            self._peer.told = notifications.get("toolsListChanged") is True
        if self._acknowledged is not None and not self._acknowledged.done():
            self._acknowledged.set_result(None)

    def _refused(self, refusal: UpstreamRefusal) -> None:
        if self._acknowledged is not None and not self._acknowledged.done():
            self._acknowledged.set_exception(refusal)

    async def _subscribe_all(self, peer: Peer) -> None:
        with suppress(UpstreamFault, UpstreamRefusal):
            await self._subscribe(peer, self._uris, frozenset())

    async def _subscribe(self, peer: Peer, more: Collection[str], fewer: Collection[str]) -> None:
        for method, uris in (("resources/subscribe", more), ("resources/unsubscribe", fewer)):
            for uri in sorted(uris):
                await peer.request(method, {"uri": uri}, remaining_ms=SUBSCRIBE_MS)


def _says_changes(offers: Mapping[str, Json], kind: str) -> bool:
    offer = offers.get(kind)
    return isinstance(offer, dict) and offer.get("listChanged") is True
