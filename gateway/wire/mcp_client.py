"""MCP, client side: what to write to a server of either era, and which era its answers show.

A server is asked `server/discover` first; whatever does not answer like a 2026-07-28 server (no fixed code: old ones
say -32601, -32602, -32600 or nothing at all) is then sent `initialize`. Same messages on stdio and HTTP.
Source: 2026-07-28, "Versioning and Compatibility" and "stdio"; 2025-11-25, "Lifecycle".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.wire import jsonrpc, mcp
from gateway.wire.jsonrpc import Id, Request, Response

_MODERN_REFUSALS: Final = (jsonrpc.HEADER_MISMATCH, jsonrpc.MISSING_CAPABILITY)
_ANY_CLIENTS: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"context": {}, "tools": {}}, "roots": {}}
_PROTOCOL: Final = "io.modelcontextprotocol/"


class PeerError(ValueError):
    """A server's answer that the protocol doesn't allow; the tool's side is to blame."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one server is spoken to. In 2026-07-28 each request carries the envelope, before it there is none.

    `capabilities` are those of the client that the request is made for, and `log_level` what it wants to hear of the server's log."""

    version: str
    client_info: Mapping[str, Any]
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    log_level: str | None = None

    def request(self, id: Id, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        params = dict(params or {})
        if self.version == mcp.VERSION_2026:
            params["_meta"] = {
                **params.get("_meta", {}),
                mcp.META_VERSION: self.version,
                mcp.META_CLIENT_INFO: self.client_info,
                mcp.META_CLIENT_CAPABILITIES: self.capabilities,
                **({} if self.log_level is None else {mcp.META_LOG_LEVEL: self.log_level}),
            }
        return jsonrpc.request(id, method, params)

    def list_tools(self, id: Id, cursor: str | None = None) -> dict[str, Any]:
        return self.request(id, "tools/list", None if cursor is None else {"cursor": cursor})

    def call_tool(
        self,
        id: Id,
        name: str,
        arguments: Mapping[str, Any],
        meta: Mapping[str, Any] | None = None,
        progress_token: str | int | None = None,
    ) -> dict[str, Any]:
        kept = travelling(meta or {})
        if progress_token is not None:
            kept[mcp.META_PROGRESS_TOKEN] = progress_token
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        return self.request(id, "tools/call", {**params, "_meta": kept} if kept else params)


def discover(id: Id, client_info: Mapping[str, Any]) -> dict[str, Any]:
    """The probe that shows a server's era."""
    return Dialect(mcp.VERSION_2026, client_info).request(id, "server/discover")


def speaks_2026(answer: Response) -> bool:
    """Whether the answer to `discover` is that of a 2026-07-28 server; if not, or without one, `initialize`."""
    if answer.error is None:
        return _names_2026(answer.result, "supportedVersions")
    if answer.error["code"] == jsonrpc.UNSUPPORTED_VERSION:
        return _names_2026(answer.error.get("data"), "supported")
    return answer.error["code"] in _MODERN_REFUSALS


def initialize(id: Id, client_info: Mapping[str, Any], version: str = mcp.SESSION_VERSIONS[0]) -> dict[str, Any]:
    """One connection serves many clients: it can do what any of them can, and each question goes to the one behind the call."""
    params = {"protocolVersion": version, "capabilities": _ANY_CLIENTS, "clientInfo": client_info}
    return jsonrpc.request(id, "initialize", params)


def agreed_version(answer: Response) -> str:
    """The version in an answer to `initialize`. Raises PeerError where it is an error, or a version not ours."""
    if answer.error is not None:
        raise PeerError(f"initialize was refused: {answer.error['code']} {answer.error['message'][:200]}")
    version = answer.result.get("protocolVersion") if isinstance(answer.result, dict) else None
    if version not in mcp.SESSION_VERSIONS:
        raise PeerError(f"initialize answered with version {str(version)[:64]!r}; known are {mcp.SESSION_VERSIONS}")
    return str(version)


def initialized() -> dict[str, Any]:
    return jsonrpc.notification("notifications/initialized")


def cancelled(request_id: Id, reason: str) -> dict[str, Any]:
    """For stdio in both eras and for HTTP of the session era; over HTTP in 2026-07-28 closing the stream says it."""
    return jsonrpc.notification("notifications/cancelled", {"requestId": request_id, "reason": reason})


def tools_page(result: Any) -> tuple[list[dict[str, Any]], str | None]:
    """The tools of one page and the cursor of the next. Raises PeerError for a page, tool or cursor out of shape."""
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(tools, list):
        raise PeerError("tools/list answered without a list of tools")
    for place, tool in enumerate(tools):
        if not (isinstance(tool, dict) and isinstance(tool.get("name"), str) and tool["name"]):
            raise PeerError(f"tools/list: tool {place} has no name")
        if not isinstance(tool.get("inputSchema"), dict):
            raise PeerError(f"tools/list: tool {tool['name'][:64]!r} has no inputSchema")
    cursor = result.get("nextCursor")
    if not (cursor is None or isinstance(cursor, str)):
        raise PeerError("tools/list: nextCursor is no string")
    return tools, cursor


def answer_to(request: Request) -> dict[str, Any]:
    """What a server's own request gets where no client is there to be asked: only `ping` is answered with a result."""
    if request.method == "ping":
        return jsonrpc.result(request.id, {})
    return jsonrpc.error(request.id, jsonrpc.METHOD_NOT_FOUND, "Nobody is there who could be asked this now", request.method)


def _names_2026(answer: Any, member: str) -> bool:
    versions = answer.get(member) if isinstance(answer, dict) else None
    return isinstance(versions, list) and mcp.VERSION_2026 in versions


def travelling(meta: Mapping[str, Any]) -> dict[str, Any]:
    """An agent's `_meta` without what belongs to its own connection: the envelope, the progress token."""
    return {key: value for key, value in meta.items() if key != mcp.META_PROGRESS_TOKEN and not key.startswith(_PROTOCOL)}
