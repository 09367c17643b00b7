"""Resources, prompts and completion: asked of those MCP servers of which the run may use a tool.

Names and URIs stand as they are while the run has one such server. With several, each prompt is listed as `upstream.name` and each URI as
`via:upstream:uri`; neither can be taken for another's, as no upstream's name has a dot or a colon. A URI without that, from the text of some
result, is asked of each server in turn. Lists go on over servers that don't answer: one that is away must not hide the others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.core.guards.result import RESULTS
from gateway.core.model import Json
from gateway.core.outcomes import FAULTS
from gateway.doors.mcp.post import Post
from gateway.engine import Engine
from gateway.ports import RequestFault, Server, UpstreamFault, UpstreamRefusal
from gateway.wire import json, jsonrpc
from gateway.wire.jsonrpc import Request, RpcError

log = logging.getLogger("gateway.mcp")

PATIENCE_MS: Final = 30_000
_VIA: Final = "via:"


@dataclass(frozen=True, slots=True)
class _List:
    """What a list is of: the capability it belongs to, the member of its result, and the field by which one is asked for."""

    capability: str
    member: str
    named_by: str


LISTS: Final[Mapping[str, _List]] = {
    "prompts/list": _List("prompts", "prompts", "name"),
    "resources/list": _List("resources", "resources", "uri"),
    "resources/templates/list": _List("resources", "resourceTemplates", "uriTemplate"),
}
CAPABILITY: Final = {
    **{method: one.capability for method, one in LISTS.items()},
    "prompts/get": "prompts",
    "resources/read": "resources",
    "completion/complete": "completions",
}
"""Method -> the capability without which there is no such method."""


class Usable:
    """The servers that one run may use, by name; `offering` those that have a capability now."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self.servers = servers
        self._alone = len(servers) < 2

    def offering(self, capability: str) -> dict[str, Server]:
        return {name: server for name, server in self.servers.items() if capability in server.offers}

    def shown(self, upstream: str, named_by: str, value: Json) -> Json:
        """A name or URI of an upstream as clients see it."""
        if self._alone or not isinstance(value, str):
            return value
        return f"{upstream}.{value}" if named_by == "name" else f"{_VIA}{upstream}:{value}"

    def meant(self, named_by: str, value: str) -> tuple[list[str], str]:
        """The upstreams that may be meant, and what to ask them for."""
        if self._alone or (named_by != "name" and not value.startswith(_VIA)):
            return list(self.servers), value
        upstream, _, local = value.partition(".") if named_by == "name" else value.removeprefix(_VIA).partition(":")
        return [upstream] if upstream in self.servers else [], local


class Servers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def capabilities(self) -> dict[str, dict[str, Json]]:
        """What any server offers beside tools, and whether it tells of changes; whose tools a run may use is seen only when it asks."""
        found: dict[str, dict[str, Json]] = {}
        for name in {tool.upstream for tool in self._engine.catalog.all()}:
            server = self._engine.catalog.server(name)
            for capability in ("prompts", "resources", "completions"):
                said = server.offers.get(capability) if server else None
                if isinstance(said, dict):
                    found[capability] = found.get(capability, {}) | {name: True for name in ("listChanged", "subscribe") if said.get(name) is True}
        return found

    async def usable(self, post: Post) -> Usable:
        listed = await self._engine.tools(post.caller, await post.run(self._engine))
        servers = {name: self._engine.catalog.server(name) for name in sorted({one.tool.upstream for one in listed})}
        return Usable({name: server for name, server in servers.items() if server is not None})

    async def answer(self, post: Post, request: Request, capabilities: Mapping[str, Json]) -> Mapping[str, Json]:
        """The result of a request about resources, prompts or completion; a server's `input_required` too.

        Raises RpcError, the server's own among them, and RequestFault where it gave no answer."""
        uri = request.params.get("uri")
        if request.method == "resources/read" and isinstance(uri, str) and uri.startswith(RESULTS):
            return await self._kept_aside(post, uri)
        if CAPABILITY[request.method] not in self.capabilities():
            raise RpcError(jsonrpc.METHOD_NOT_FOUND, "Method not found", request.id, request.method)
        usable = await self.usable(post)
        if request.method in LISTS:
            return await self._list(usable, LISTS[request.method], request)
        place, named_by = _reference(request)
        value = place.get(named_by)
        if not isinstance(value, str):
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{named_by} must be a string", request.id)
        upstreams, local = usable.meant(named_by, value)
        offering = usable.offering(CAPABILITY[request.method])
        chosen = [offering[name] for name in upstreams if name in offering]
        if not chosen:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"there is no {named_by} {value[:200]!r}", request.id, {named_by: value})
        params = {name: part for name, part in request.params.items() if name != "_meta"}
        params |= {"ref": {**place, named_by: local}} if "ref" in params else {named_by: local}
        return await _first(chosen, request, params, capabilities)

    async def _kept_aside(self, post: Post, uri: str) -> Mapping[str, Json]:
        """The whole of a result that was too long to be shown. Raises RequestFault."""
        value = await self._engine.kept_aside(post.caller, await post.run(self._engine), uri.removeprefix(RESULTS))
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(value).decode()}]}

    async def _list(self, usable: Usable, kind: _List, request: Request) -> Mapping[str, Json]:
        offering = usable.offering(kind.capability)
        start, cursor = _place(request, offering)
        found: list[Json] = []
        for name, server in offering.items():
            if name < start:
                continue
            try:
                result = await _asked(server, request.method, {} if cursor is None else {"cursor": cursor}, {})
            except (UpstreamFault, UpstreamRefusal) as fault:
                log.warning("upstream %s: %s: %s", name, request.method, fault)
                result = {}
            members, cursor = result.get(kind.member), result.get("nextCursor")
            found += [
                {**one, kind.named_by: usable.shown(name, kind.named_by, one.get(kind.named_by))}
                for one in (members if isinstance(members, list) else [])
                if isinstance(one, dict)
            ]
            if isinstance(cursor, str):
                return {kind.member: found, "nextCursor": f"{name}:{cursor}"}
            cursor = None
        return {kind.member: found}


async def _asked(server: Server, method: str, params: Mapping[str, Json], capabilities: Mapping[str, Json]) -> Mapping[str, Json]:
    """These are reads all: one that broke off, as on a connection that its server had just given up, is made once more."""
    try:
        return await server.request(method, params, remaining_ms=PATIENCE_MS, capabilities=capabilities)
    except UpstreamFault as fault:
        if fault.kind not in ("closed", "reset"):
            raise
    return await server.request(method, params, remaining_ms=PATIENCE_MS, capabilities=capabilities)


async def _first(servers: list[Server], request: Request, params: Mapping[str, Json], capabilities: Mapping[str, Json]) -> Mapping[str, Json]:
    """The first server's answer that is one; else the last one's refusal."""
    for left, server in zip(range(len(servers) - 1, -1, -1), servers, strict=True):
        try:
            return await _asked(server, request.method, params, capabilities)
        except UpstreamRefusal as no:
            if not left:
                raise RpcError(no.code, no.message, request.id, no.data) from None
        except UpstreamFault as fault:
            if not left:
                raise RequestFault(FAULTS[fault.kind].reason, f"{server.name}: {fault.message}") from None
    raise AssertionError("no server was asked")


def _reference(request: Request) -> tuple[Mapping[str, Json], str]:
    """Where a request names what it is about, and by which field."""
    if request.method != "completion/complete":
        return request.params, "name" if request.method == "prompts/get" else "uri"
    ref = request.params.get("ref")
    if not isinstance(ref, dict):
        raise RpcError(jsonrpc.INVALID_PARAMS, "params.ref must be an object", request.id)
    return ref, "name" if ref.get("type") == "ref/prompt" else "uri"


def _place(request: Request, offering: Mapping[str, Server]) -> tuple[str, str | None]:
    """The upstream at which a list goes on, and its own cursor."""
    cursor = request.params.get("cursor")
    if cursor is None:
        return "", None
    name, colon, theirs = cursor.partition(":") if isinstance(cursor, str) else ("", "", "")
    if name not in offering or not colon:
        raise RpcError(jsonrpc.INVALID_PARAMS, "params.cursor is no cursor of this list; start again without one", request.id)
    return name, theirs
