"""MCP, server side and what both eras share: the names, the 2026-07-28 ladder, results, tool names.

Session era: 2024-11-05 … 2025-11-25 (`initialize`, then messages). 2026-07-28 has no session: each request carries its
own envelope in `params._meta`, and over HTTP repeats part of it in headers. Plain dicts in and out, nothing is dropped.
Source: 2026-07-28, "Base Protocol" and "Streamable HTTP"; 2025-11-25, "Lifecycle".
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from gateway.wire import jsonrpc, mcp_headers
from gateway.wire.jsonrpc import Notification, Request, Response, RpcError

VERSION_2026: Final = "2026-07-28"
SESSION_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
CACHED: Final = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"})
METHODS_2026: Final = CACHED | {"server/discover", "tools/call", "prompts/get", "completion/complete", "subscriptions/listen"}

META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
META_CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
META_PROGRESS_TOKEN: Final = "progressToken"

OURS: Final = "tool-call-gateway/"
META_CALL: Final = OURS + "call"
META_BUDGET: Final = OURS + "budget"
META_ERROR: Final = OURS + "error"
META_CALL_ID: Final = OURS + "call_id"
META_OPERATION_ID: Final = OURS + "operation_id"
META_TURN: Final = OURS + "turn"
META_TOOL_USE_ID: Final = "claudecode/toolUseId"

_HTTP_STATUS: Final = {jsonrpc.METHOD_NOT_FOUND: 404, jsonrpc.INTERNAL_ERROR: 500}
_LISTED_MAX: Final = 64  # OpenAI's bound on a function's name
_NOT_LISTABLE: Final = re.compile(r"[^A-Za-z0-9_-]")


def is_2026(headers: Mapping[str, str]) -> bool:
    """Whether a POST asks for the sessionless era; without the header it is of the session era (2025-03-26)."""
    version = headers.get(mcp_headers.VERSION_HEADER)
    return version is not None and version.strip(" \t") not in SESSION_VERSIONS


def inbound_2026(headers: Mapping[str, str] | None, body: Any, methods: Container[str] = METHODS_2026) -> Request | Notification:
    """The first failed rung raises RpcError, to be sent with `http_status`; a notification is answered by 202.

    `headers` have lower-case names; None on stdio, which has none. Rungs: one request or notification; the envelope
    (-32602); the version header agrees (-32020); the version is ours (-32022); `Mcp-Method`, `Mcp-Name` agree
    (-32020); the method is in `methods` (-32601).
    """
    message = jsonrpc.read(body)
    if isinstance(message, Response):
        raise RpcError(jsonrpc.INVALID_REQUEST, "a client sends requests and notifications, no responses", None)
    if isinstance(message, Notification):
        return message
    version = _envelope_version(message)
    if headers is not None and headers.get(mcp_headers.VERSION_HEADER, "").strip(" \t") != version:
        raise RpcError(
            jsonrpc.HEADER_MISMATCH,
            f"header {mcp_headers.VERSION_HEADER} is missing or does not match the body's {META_VERSION}",
            message.id,
        )
    if version != VERSION_2026:
        choice = {"supported": [VERSION_2026], "requested": version}
        raise RpcError(jsonrpc.UNSUPPORTED_VERSION, "Unsupported protocol version", message.id, choice)
    if headers is not None:
        mcp_headers.check_name(headers, message)
    if message.method not in methods:
        raise RpcError(jsonrpc.METHOD_NOT_FOUND, "Method not found", message.id, message.method)
    return message


def http_status(error: RpcError) -> int:
    """The status that 2026-07-28 gives a JSON-RPC error over HTTP."""
    return _HTTP_STATUS.get(error.code, 400)


class ToolCall(Struct, frozen=True):
    """The params of a `tools/call`. `meta` is all of `_meta`, ours and foreign keys alike."""

    name: str
    arguments: dict[str, Any]
    meta: dict[str, Any]

    @property
    def progress_token(self) -> str | int | None:
        token = self.meta.get(META_PROGRESS_TOKEN)
        return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None


def tool_call(request: Request) -> ToolCall:
    """Raises RpcError -32602 for a name that is no string, or arguments or `_meta` that are no object."""
    name, arguments, meta = (request.params.get(member) for member in ("name", "arguments", "_meta"))
    arguments, meta = {} if arguments is None else arguments, {} if meta is None else meta
    if not isinstance(name, str):
        raise RpcError(jsonrpc.INVALID_PARAMS, "params.name must be the name of a tool", request.id)
    if not isinstance(arguments, dict):
        raise RpcError(jsonrpc.INVALID_PARAMS, "params.arguments must be an object", request.id)
    if not isinstance(meta, dict):
        raise RpcError(jsonrpc.INVALID_PARAMS, "params._meta must be an object", request.id)
    return ToolCall(name, arguments, meta)


def strip_ours(meta: Mapping[str, Any]) -> dict[str, Any]:
    """`_meta` without the keys that only the gateway may write."""
    return {key: value for key, value in meta.items() if not key.startswith(OURS)}


def complete(result: Mapping[str, Any], server_info: Mapping[str, Any]) -> dict[str, Any]:
    """A 2026-07-28 result: `resultType` and `serverInfo` are added where an upstream didn't already say them."""
    meta = result.get("_meta")
    identity = {META_SERVER_INFO: server_info}
    return {"resultType": "complete", **result, "_meta": identity | meta if isinstance(meta, dict) else identity}


def discover(capabilities: Mapping[str, Any], *, ttl_ms: int, instructions: str | None = None) -> dict[str, Any]:
    """The result of `server/discover`."""
    said = {} if instructions is None else {"instructions": instructions}
    return cached({"supportedVersions": [VERSION_2026], "capabilities": capabilities, **said}, ttl_ms)


def cached(result: Mapping[str, Any], ttl_ms: int) -> dict[str, Any]:
    """A result that may be kept for a while, by an upstream's figure if it gave one. `cacheScope` is private: it depends on who asks."""
    return {"ttlMs": ttl_ms, **result, "cacheScope": "private"}


def initialize_result(
    requested: Any, capabilities: Mapping[str, Any], server_info: Mapping[str, Any], instructions: str | None = None
) -> dict[str, Any]:
    """The result of `initialize`: the version that the client asked for, or our newest of the session era."""
    version = requested if requested in SESSION_VERSIONS else SESSION_VERSIONS[0]
    said = {} if instructions is None else {"instructions": instructions}
    return {"protocolVersion": version, "capabilities": capabilities, "serverInfo": server_info, **said}


def tools_list(tools: Iterable[Mapping[str, Any]], *, ttl_ms: int, next_cursor: str | None = None) -> dict[str, Any]:
    more = {} if next_cursor is None else {"nextCursor": next_cursor}
    return cached({"tools": list(tools), **more}, ttl_ms)


def call_result_text(text: str, is_error: bool, structured: Mapping[str, Any] | None = None) -> dict[str, Any]:
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": is_error}
    return result if structured is None else {**result, "structuredContent": structured}


def progress(token: str | int, progress: float, total: float | None = None, message: str | None = None) -> dict[str, Any]:
    """A `notifications/progress`. `progress` must rise with each one for the same token."""
    optional = {"total": total, "message": message}
    params = {"progressToken": token, "progress": progress, **{k: v for k, v in optional.items() if v is not None}}
    return jsonrpc.notification("notifications/progress", params)


def listed_name(name: str) -> str:
    """`upstream.tool` as clients see it: `upstream__tool`, of [A-Za-z0-9_-], at most 64 long, always with a `__`. Not unique by itself."""
    listed = _NOT_LISTABLE.sub("_", name.replace(".", "__", 1))
    return listed if len(listed) <= _LISTED_MAX else _hashed(name, 8)


class ListedNames:
    """The two-way map between `upstream.tool` and listed names over a whole catalog.

    Names that would be listed alike all get a hash of their own, so that none of them can be taken for another; the
    order in which tools come changes nothing. Build it over all tools, not over those that one run may use.
    """

    def __init__(self, names: Iterable[str]) -> None:
        listed = {name: listed_name(name) for name in names}
        while alike := {shown for shown, count in Counter(listed.values()).items() if count > 1}:
            listed = {name: _hashed(name, 32) if shown in alike else shown for name, shown in listed.items()}
        self._listed: Final = listed
        self._names: Final = {shown: name for name, shown in listed.items()} | {name: name for name in listed}

    def listed(self, name: str) -> str:
        """Raises KeyError for a name outside the catalog."""
        return self._listed[name]

    def name(self, inbound: str) -> str | None:
        """The tool that an agent means, by either form; None if there is none."""
        return self._names.get(inbound)


def _hashed(name: str, digits: int) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()[:digits]
    return _NOT_LISTABLE.sub("_", name.replace(".", "__", 1))[: _LISTED_MAX - 2 - digits] + "__" + digest




def _envelope_version(request: Request) -> str:
    meta = request.params.get("_meta")
    envelope = meta if isinstance(meta, dict) else {}
    version = envelope.get(META_VERSION)
    if isinstance(version, str) and isinstance(envelope.get(META_CLIENT_CAPABILITIES), dict):
        return version
    wanted = f"params._meta must carry {META_VERSION} (a string) and {META_CLIENT_CAPABILITIES} (an object)"
    raise RpcError(jsonrpc.INVALID_PARAMS, wanted, request.id)
