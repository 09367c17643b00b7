"""A `tools/call` read into the engine's `CallRequest`: which tool, which identity, which turn, how patient its client is.

Identity comes from `_meta` or `Gateway-…` headers, where a harness writes it; never from what restarts with a connection (the JSON-RPC id,
the progress token, a session), and never from the arguments, which the model wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gateway.core.model import CallRequest, Json, Malformed
from gateway.doors.http import Headers, trace_of
from gateway.wire import jsonrpc, mcp
from gateway.wire.jsonrpc import Request, RpcError

DOOR: Final = "mcp"
CALL_ID_HEADER: Final = "gateway-call-id"
TURN_HEADER: Final = "gateway-turn"

NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
"""What may name a tool, a call, an operation or a run."""

_MAX_TURN: Final = 10**9
_WITH_PROGRESS_MS: Final = 300_000
_HURRIED_MS: Final = 4_000
"""OpenAI's Agents SDK gives up after 5 s. It doesn't say who it is: its name is the Python SDK's default."""
_DEFAULT_CLIENT: Final = "mcp"


def call_request(
    request: Request,
    meta: Mapping[str, Any],
    headers: Mapping[str, str],
    raw_headers: Headers,
    tool: str,
    client: str | None,
    token: str | int | None,
) -> CallRequest:
    """`client`: how it names itself. Raises RpcError -32602 for an identity or a turn that isn't one: those are the harness's, and no model
    could put them right."""
    return CallRequest(
        tool,
        _arguments(request.params.get("arguments")),
        DOOR,
        call_id=_call_id(meta, headers, request.id),
        operation_id=_identity(meta.get(mcp.META_OPERATION_ID), mcp.META_OPERATION_ID, request.id),
        turn=_turn(meta, headers, request.id),
        wait_ms=_patience(client, headers, token),
        trace=_trace(meta, raw_headers),
    )


def progress_token(meta: Mapping[str, Any]) -> str | int | None:
    token = meta.get(mcp.META_PROGRESS_TOKEN)
    return token if type(token) in (str, int) else None


def _arguments(sent: Json) -> Json:
    if sent is None:
        return {}
    return sent if isinstance(sent, dict) else Malformed("the arguments are no JSON object")


def _call_id(meta: Mapping[str, Any], headers: Mapping[str, str], id: jsonrpc.Id) -> str | None:
    for name in (mcp.META_CALL_ID, mcp.META_TOOL_USE_ID):
        if (sent := meta.get(name)) is not None:
            return _identity(sent, name, id)
    return _identity(headers.get(CALL_ID_HEADER), CALL_ID_HEADER, id)


def _identity(sent: Json, source: str, id: jsonrpc.Id) -> str | None:
    if sent is None or (isinstance(sent, str) and NAME.fullmatch(sent)):
        return sent
    raise RpcError(jsonrpc.INVALID_PARAMS, f"{source} must be 1 to 256 characters, none of them a control character", id)


def _turn(meta: Mapping[str, Any], headers: Mapping[str, str], id: jsonrpc.Id) -> int:
    sent = meta.get(mcp.META_TURN)
    if sent is None:
        text = headers.get(TURN_HEADER)
        if text is None:
            return 0
        sent = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else text
    if type(sent) is int and 0 <= sent <= _MAX_TURN:
        return sent
    raise RpcError(jsonrpc.INVALID_PARAMS, f"{mcp.META_TURN} (or {TURN_HEADER}) must be a turn's number, at most {_MAX_TURN}", id)


def _patience(client: str | None, headers: Mapping[str, str], token: str | int | None) -> int | None:
    if token is not None:
        return _WITH_PROGRESS_MS
    hurried = client == _DEFAULT_CLIENT or "openai" in f"{client} {headers.get('user-agent')}".lower()
    return _HURRIED_MS if hurried else None


def _trace(meta: Mapping[str, Any], raw_headers: Headers) -> Mapping[str, str]:
    parent = meta.get("traceparent")
    if not isinstance(parent, str):
        return trace_of(raw_headers)
    return trace_of([*raw_headers, (b"traceparent", parent.encode(errors="replace"))])
