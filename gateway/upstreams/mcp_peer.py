"""An MCP server as it is met over any transport: its era, its tools, calls and other requests.

The era is found once a connection: `server/discover`, and without a 2026 answer `initialize`. JSON stays raw both ways. A 2026 server that
asks back (`input_required`) is given the answers with the same request again, inside the same call; nothing else is ever sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from gateway.core.model import Json
from gateway.ports import NOBODY, Answer, Client, Dispatch, Unanswered, UpstreamFault, UpstreamRefusal
from gateway.upstreams.mcp_attendant import Attendant, at_least
from gateway.upstreams.mcp_calls import CLIENT_INFO, NOTHING, answer_of, call_message, unanswered
from gateway.upstreams.sending import refuse_way, seconds_left
from gateway.wire import jsonrpc, mcp, mcp_client, mcp_input
from gateway.wire.jsonrpc import Id, Notification, Request, Response
from gateway.wire.mcp_client import Dialect, PeerError
from gateway.wire.mcp_headers import Marked

MAX_BYTES: Final = 16 * 1024 * 1024
"""Of any answer but that of a call, which says itself."""
MAX_PAGES: Final = 1_000
MAX_ROUNDS: Final = 10
"""How often one call may ask back; as often as official clients answer."""
LIST_S: Final = 30.0
SETTING_S: Final = 5.0
MAX_TTL_S: Final = 300.0

TOOLS_CHANGED: Final = "notifications/tools/list_changed"
_ROUND_S: Final = 0.1
Heard = Callable[[Request | Notification], None]


@dataclass(frozen=True, slots=True)
class Terms:
    """How one request is made. `until`: on the loop's clock. `heard` gets what the server says before it answers; None: nobody is there for
    it. `fresh`: on a connection of its own. `marked`: the arguments that a header repeats, where there are headers."""

    until: float
    heard: Heard | None = None
    max_bytes: int = MAX_BYTES
    fresh: bool = False
    marked: Marked = field(default_factory=dict)


class Reply(NamedTuple):
    """An answer to a request. `status`: HTTP's, where there was one; an error without JSON-RPC has the status as its code."""

    response: Response
    status: int | None = None
    retry_after_ms: int | None = None


class Transport(Protocol):
    """`version`: the revision that is spoken. `alone` gets what the server says when nobody is there for it. The peer sets both."""

    version: str
    alone: Heard

    async def ask(self, message: dict[str, Any], terms: Terms) -> Reply:
        """Raises UpstreamFault, `timeout` when the time is up. Cancelling it closes what can be closed."""

    def say(self, message: dict[str, Any]) -> None:
        """Send what has no answer; whether it arrives, nobody knows."""

    async def tell(self, message: dict[str, Any]) -> None:
        """The same; returns when it has left, or can't."""

    def closing_cancels(self) -> bool:
        """Whether a server sees that a request was given up, without being told."""


class Peer:
    """`hear` gets the notifications that belong to no request. `told`: a change of the tools would be among them."""

    def __init__(self, transport: Transport, hear: Callable[[Notification], None]) -> None:
        self.offers: Mapping[str, Json] = {}
        self.told = False
        self._transport, self._hear = transport, hear
        transport.alone = self.alone
        self._ids = count(1)
        self._dialect = Dialect(mcp.VERSION_2026, CLIENT_INFO)
        self._tools: list[dict[str, Any]] | None = None
        self._tools_until = 0.0
        self._changes = 0
        self._log_level: str | None = None

    @property
    def is_2026(self) -> bool:
        return self._dialect.version == mcp.VERSION_2026

    def new_id(self) -> Id:
        return next(self._ids)

    def message(self, method: str, params: Mapping[str, Json], client: Client = NOBODY) -> dict[str, Any]:
        """A request; what an agent put into its `_meta` for others than the server stays behind."""
        meta = params.get("_meta")
        theirs = {"_meta": mcp_client.travelling(mcp.strip_ours(meta))} if isinstance(meta, dict) else {}
        return self._for(client).request(self.new_id(), method, {**params, **theirs})

    def alone(self, message: Request | Notification) -> None:
        """What the server says without being asked, or with nobody there for it."""
        if isinstance(message, Request):
            self._transport.say(mcp_client.answer_to(message))
            return
        if message.method == TOOLS_CHANGED:
            self._tools = None
            self._changes += 1
        self._hear(message)

    # ---- the era --------------------------------------------------------------------------------------------------------

    async def greet(self, *, probe: bool, patience_s: float, within_s: float) -> None:
        """Find out the era: `server/discover`, unless `probe` is off; without a 2026 answer, or any in time, `initialize`.

        Raises UpstreamFault."""
        terms = Terms(_now() + within_s)
        asked: dict[str, asyncio.Task[Reply]] = {}
        try:
            if probe:
                asked["discover"] = self._asking(mcp_client.discover(self.new_id(), CLIENT_INFO), mcp.VERSION_2026, terms)
                await asyncio.wait(asked.values(), timeout=patience_s)
            if not self._found_2026(asked):
                asked["initialize"] = self._asking(mcp_client.initialize(self.new_id(), CLIENT_INFO), mcp.SESSION_VERSIONS[0], terms)
                await asyncio.wait(asked.values(), return_when=asyncio.FIRST_COMPLETED)
            if not self._found_2026(asked):
                await self._agree((await asked["initialize"]).response)
        except PeerError as error:
            raise UpstreamFault("garbage", str(error)) from None
        finally:
            for task in asked.values():
                task.cancel()
            await asyncio.gather(*asked.values(), return_exceptions=True)

    def _asking(self, message: dict[str, Any], version: str, terms: Terms) -> asyncio.Task[Reply]:
        self._transport.version = version
        return asyncio.get_running_loop().create_task(self._transport.ask(message, terms))

    def _found_2026(self, asked: Mapping[str, asyncio.Task[Reply]]) -> bool:
        """Has `discover` been answered by a 2026 server? Raises the fault that it met."""
        if "discover" not in asked or not asked["discover"].done():
            return False
        response = asked["discover"].result().response
        if not mcp_client.speaks_2026(response):
            return False
        self._transport.version = mcp.VERSION_2026
        self.offers = _capabilities(response.result)
        return True

    async def _agree(self, response: Response) -> None:
        version = mcp_client.agreed_version(response)
        self._dialect = Dialect(version, CLIENT_INFO)
        self._transport.version = version
        self.offers = _capabilities(response.result)
        await self._transport.tell(mcp_client.initialized())

    # ---- tools ----------------------------------------------------------------------------------------------------------

    async def tools(self) -> list[dict[str, Any]]:
        """All pages; kept while the server says so, or would say that they changed. Raises UpstreamFault."""
        if self._tools is not None and (self.told or _now() < self._tools_until):
            return self._tools
        changes = self._changes
        tools, ttl_s = await self._all_pages()
        if changes == self._changes:
            self._tools, self._tools_until = tools, _now() + ttl_s
        return tools

    async def _all_pages(self) -> tuple[list[dict[str, Any]], float]:
        tools: list[dict[str, Any]] = []
        cursor, seen, ttl_s = None, set[str](), MAX_TTL_S
        while len(seen) < MAX_PAGES:
            response = (await self._ask(self._dialect.list_tools(self.new_id(), cursor), Terms(_now() + LIST_S))).response
            if response.error is not None and response.error["code"] == jsonrpc.METHOD_NOT_FOUND:
                return [], ttl_s
            page, cursor = _page(response)
            tools += page
            ttl_s = min(ttl_s, _ttl_s(response.result))
            if cursor is None:
                return tools, ttl_s
            if cursor in seen:
                break
            seen.add(cursor)
        raise UpstreamFault("garbage", "tools/list does not come to an end")

    # ---- calls and other requests ---------------------------------------------------------------------------------------

    async def call(self, dispatch: Dispatch, marked: Marked = NOTHING) -> Answer:
        """One call, with as many rounds of questions as it takes. Raises UpstreamFault."""
        refuse_way(dispatch, "header", "header_quoted")
        client = dispatch.client
        until = _now() + seconds_left(dispatch.remaining_ms)
        attendant = Attendant(client, self._transport.say, self.alone)
        terms = Terms(until, attendant.heard, dispatch.max_bytes, dispatch.fresh_connection, marked)
        more: Mapping[str, Json] = {}
        try:
            await self._set_log_level(client)
            for _ in range(MAX_ROUNDS + 1):
                reply = await self._ask(call_message(self._for(client), self.new_id(), dispatch, more), terms)
                if not mcp_input.is_input_required(reply.response.result):
                    return answer_of(*reply)
                more = await self._answered(client, reply.response.result, until)
        except Unanswered as nobody:
            return unanswered(nobody.message)
        finally:
            attendant.end()
        return unanswered(f"it asked more than {MAX_ROUNDS} times")

    async def _answered(self, client: Client, result: Mapping[str, Json], until: float) -> dict[str, Json]:
        """What goes with the request when it is made again. Raises Unanswered, UpstreamFault `timeout`."""
        questions, state = result.get("inputRequests"), result.get("requestState")
        more: dict[str, Json] = {} if state is None else {"requestState": state}
        try:
            async with asyncio.timeout_at(until):
                if not questions:
                    await asyncio.sleep(_ROUND_S)
                elif client.ask is None or not isinstance(questions, dict):
                    raise Unanswered(jsonrpc.METHOD_NOT_FOUND, "nobody can be asked here")
                else:
                    more["inputResponses"] = dict(await client.ask(questions))
        except TimeoutError:
            raise Unanswered(jsonrpc.INTERNAL_ERROR, "nobody answered in time") from None
        return more

    async def request(self, method: str, params: Mapping[str, Json], *, remaining_ms: int, client: Client = NOBODY) -> Mapping[str, Json]:
        """Raises UpstreamRefusal, UpstreamFault."""
        terms = Terms(_now() + seconds_left(remaining_ms))
        response = (await self._ask(self.message(method, params, client), terms)).response
        if response.error is not None:
            raise UpstreamRefusal(response.error["code"], response.error["message"], response.error.get("data"))
        if not isinstance(response.result, dict):
            raise UpstreamFault("garbage", f"{method} was answered with something that is no result")
        meta = response.result.get("_meta")
        return {**response.result, "_meta": mcp.strip_ours(meta)} if isinstance(meta, dict) else response.result

    async def _ask(self, message: dict[str, Any], terms: Terms) -> Reply:
        """A request that is given up is cancelled at the server, which is not waited for any longer."""
        try:
            return await self._transport.ask(message, terms)
        except UpstreamFault as fault:
            if fault.kind == "timeout":
                self._cancel(message["id"], "the deadline has passed")
            raise
        except asyncio.CancelledError:
            self._cancel(message["id"], "the caller cancelled it")
            raise

    def _cancel(self, id: Id, reason: str) -> None:
        if not self._transport.closing_cancels():
            self._transport.say(mcp_client.cancelled(id, reason))

    def _for(self, client: Client) -> Dialect:
        return replace(self._dialect, capabilities=client.capabilities, log_level=client.log_level) if client is not NOBODY else self._dialect

    async def _set_log_level(self, client: Client) -> None:
        """In the session era the level is the connection's: the first client that wants more sets it; each hears what it wants."""
        wanted = client.log_level
        if self.is_2026 or wanted is None or client.log is None or "logging" not in self.offers:
            return
        if self._log_level is None or not at_least(wanted, self._log_level):
            self._log_level = wanted
            with suppress(UpstreamFault, UpstreamRefusal):
                await self.request("logging/setLevel", {"level": wanted}, remaining_ms=int(SETTING_S * 1000))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _page(response: Response) -> tuple[list[dict[str, Any]], str | None]:
    if response.error is not None:
        raise UpstreamFault("garbage", f"tools/list was refused: {response.error['code']}")
    try:
        return mcp_client.tools_page(response.result)
    except PeerError as error:
        raise UpstreamFault("garbage", str(error)) from None


def _ttl_s(result: Mapping[str, Json]) -> float:
    """How long a list may be kept; a server that says nothing is asked again each time."""
    ttl = result.get("ttlMs")
    return min(max(ttl / 1000, 0.0), MAX_TTL_S) if isinstance(ttl, (int, float)) else 0.0


def _capabilities(result: Json) -> Mapping[str, Json]:
    capabilities = result.get("capabilities") if isinstance(result, dict) else None
    return capabilities if isinstance(capabilities, dict) else {}
