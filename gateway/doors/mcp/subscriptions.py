"""Changes that clients want to hear of: the stream of `subscriptions/listen` (2026-07-28), and `resources/subscribe` before it.

A stream says first what it will tell, then tells it until the client leaves or the gateway stops, which ends it with a result. In the session
era nothing is said outside the answers to POSTs: what a session subscribed to is told on those of its streams that are open.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from gateway.doors.http import Departure
from gateway.doors.mcp.post import Post, Rejected
from gateway.doors.mcp.servers import Servers, Usable
from gateway.doors.mcp.stream import Stream
from gateway.ports import Catalog, Notice, UpstreamFault, UpstreamRefusal
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Request, RpcError

log = logging.getLogger("gateway.mcp")

META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
MAX_URIS: Final = 1_000
MAX_SESSIONS: Final = 1_000
MAX_STREAMS: Final = 32
"""Of one principal, in this process."""
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
UPDATED: Final = "notifications/resources/updated"
_FLAGS: Final = {
    "toolsListChanged": TOOLS_CHANGED,
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}

Uris = Mapping[tuple[str, str], str]
"""(upstream, its URI) -> the URI as the client wrote it."""


class Subscriptions:
    def __init__(self, catalog: Catalog, servers: Servers) -> None:
        self._catalog = catalog
        self._servers = servers
        self._watched: dict[str, Counter[str]] = {}
        self._of_sessions: dict[str, dict[tuple[str, str], str]] = {}
        self._streams: dict[asyncio.Future[None], str] = {}

    def stop(self) -> None:
        """End all streams."""
        for over in self._streams:
            if not over.done():
                over.set_result(None)

    # ---- 2026-07-28 -----------------------------------------------------------------------------------------------------

    async def listen(self, post: Post, request: Request, stream: Stream) -> dict[str, Any]:
        """Returns the last result, once the client has left or the gateway stops. Raises RpcError -32602."""
        wanted = request.params.get("notifications")
        uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
        if not isinstance(wanted, dict) or not _are_uris(uris):
            raise RpcError(jsonrpc.INVALID_PARAMS, "params.notifications must say what to tell, at most 1000 URIs among it", request.id)
        if list(self._streams.values()).count(post.caller.principal.id) >= MAX_STREAMS:
            raise Rejected(429, f"a principal listens on at most {MAX_STREAMS} streams; close one", request.id)
        usable = await self._servers.usable(post)
        places = {place: uri for uri in uris or () for place in _places(usable, uri)}
        tag = {"_meta": {META_SUBSCRIPTION: request.id}}
        methods = {method for flag, method in _FLAGS.items() if wanted.get(flag) is True}
        honoured: dict[str, Any] = {flag: True for flag, method in _FLAGS.items() if method in methods}
        if places:
            honoured["resourceSubscriptions"] = list(dict.fromkeys(places.values()))
        stream.say(jsonrpc.notification("notifications/subscriptions/acknowledged", {"notifications": honoured, **tag}))

        def hear(notice: Notice) -> None:
            mine = notice.method == TOOLS_CHANGED or notice.upstream in usable.servers
            if notice.method in methods and mine:
                stream.say(jsonrpc.notification(notice.method, tag))
            elif (updated := _updated(notice, places)) is not None:
                stream.say(jsonrpc.notification(UPDATED, updated | tag))

        await self._until_over(post, places, hear)
        return tag

    async def _until_over(self, post: Post, places: Uris, hear: Callable[[Notice], None]) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._streams[over] = post.caller.principal.id
        unhear = self._catalog.listen(hear)
        try:
            await self._watch(places, 1)
            with Departure(post.receive) as gone:
                await asyncio.wait([over, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            unhear()
            del self._streams[over]
            await self._watch(places, -1)

    # ---- sessions -------------------------------------------------------------------------------------------------------

    async def subscribe(self, post: Post, request: Request, session: str) -> None:
        """`resources/subscribe` and `/unsubscribe`. Raises RpcError -32602 for a URI that no server takes subscriptions to."""
        uri = request.params.get("uri")
        places = _places(await self._servers.usable(post), uri) if isinstance(uri, str) else []
        if not places:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"no server here tells of changes of {str(uri)[:200]!r}", request.id)
        known = self._of_sessions.setdefault(session, {})
        on = request.method == "resources/subscribe"
        changed = {place: str(uri) for place in places if (place in known) is not on}
        if on and len(known) + len(changed) > MAX_URIS:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"a session subscribes to at most {MAX_URIS} URIs", request.id)
        self._of_sessions[session] = known | changed if on else {place: uri for place, uri in known.items() if place not in changed}
        await self._watch(changed, 1 if on else -1)
        if len(self._of_sessions) > MAX_SESSIONS:
            await self.forget(next(iter(self._of_sessions)))

    async def forget(self, session: str) -> None:
        await self._watch(self._of_sessions.pop(session, {}), -1)

    @contextmanager
    def told(self, session: str, stream: Stream) -> Iterator[None]:
        """While a stream of the session is open."""
        if not (places := self._of_sessions.get(session)):
            yield
            return

        def hear(notice: Notice) -> None:
            if (updated := _updated(notice, places)) is not None:
                stream.say(jsonrpc.notification(UPDATED, updated))

        unhear = self._catalog.listen(hear)
        try:
            yield
        finally:
            unhear()

    # ---- upstreams ------------------------------------------------------------------------------------------------------

    async def _watch(self, places: Collection[tuple[str, str]], count: int) -> None:
        """One listener more, or less, for each of these; each server is told all URIs of its own that have one."""
        for upstream, uri in places:
            counts = self._watched.setdefault(upstream, Counter())
            counts[uri] += count
        for upstream in {name for name, _ in places}:
            self._watched[upstream] = +self._watched[upstream]
            server = self._catalog.server(upstream)
            try:
                if server is not None:
                    await server.watch(list(self._watched[upstream]))
            except (UpstreamFault, UpstreamRefusal) as fault:
                log.warning("upstream %s: its resources can't be watched: %s", upstream, fault)


def _places(usable: Usable, uri: str) -> list[tuple[str, str]]:
    """Where a URI may be that somebody wants to hear of."""
    names, local = usable.meant("uri", uri)
    offering = usable.offering("resources")
    return [(name, local) for name in names if name in offering and _takes_subscriptions(offering[name].offers["resources"])]


def _takes_subscriptions(said: Any) -> bool:
    return isinstance(said, dict) and said.get("subscribe") is True


def _updated(notice: Notice, places: Uris) -> dict[str, Any] | None:
    """The params of an update that is waited for, with the URI as its client knows it."""
    uri = notice.params.get("uri")
    if notice.method != UPDATED or not isinstance(uri, str) or (notice.upstream, uri) not in places:
        return None
    return {**notice.params, "uri": places[notice.upstream, uri]}


def _are_uris(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) <= MAX_URIS and all(isinstance(one, str) for one in value))
