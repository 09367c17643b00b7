"""A call and its answer in MCP, the same over stdio and HTTP: raw JSON both ways, nothing lost, nothing of ours taken from outside."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from gateway.core.model import Json
from gateway.ports import Answer, Dispatch, UpstreamFault
from gateway.upstreams.sending import arguments_of, rfc3339
from gateway.wire import mcp
from gateway.wire.jsonrpc import Id, Response
from gateway.wire.mcp_client import Dialect

CLIENT_INFO: Final = {"name": "tool-call-gateway", "version": "0.1.0"}
NOTHING: Final[Mapping[str, Json]] = MappingProxyType({})
_TRACE: Final = ("traceparent", "tracestate")


def call_message(dialect: Dialect, id: Id, dispatch: Dispatch, more: Mapping[str, Json] = NOTHING) -> dict[str, Any]:
    """The `tools/call` request. Progress is asked for, with the request's id as token, if somebody listens. `more`: further params, the
    answers to what an earlier round of the same call asked for."""
    meta: dict[str, Json] = mcp.strip_ours(dispatch.meta)
    meta |= {name: dispatch.trace[name] for name in _TRACE if name in dispatch.trace}
    if dispatch.send_as is not None and dispatch.send_as[0] == "meta":
        meta[dispatch.send_as[1]] = dispatch.key
    meta[mcp.OURS + "deadline"] = rfc3339(dispatch.deadline_at)
    meta[mcp.OURS + "remaining_ms"] = dispatch.remaining_ms
    token = id if dispatch.client.progress is not None else None
    message = dialect.call_tool(id, dispatch.tool.local_name, arguments_of(dispatch), meta, token)
    if more:
        message["params"] |= more
    return message


def answer_of(response: Response, status: int | None = None, retry_after_ms: int | None = None) -> Answer:
    """A JSON-RPC error is a definite answer too, told as the tool's error. Raises UpstreamFault `garbage` for what is no result of a call."""
    if response.error is not None:
        text = f"MCP error {response.error['code']}: {response.error['message']}"
        told = {**mcp.call_result_text(text, True, {"error": response.error}), "_meta": {mcp.META_ERROR: response.error}}
        return Answer(told, status, retry_after_ms)
    result = response.result
    if not isinstance(result, dict) or not _is_content(result.get("content", [])):
        raise UpstreamFault("garbage", "the tool answered with something that is no result of a call", status=status)
    if isinstance(result.get("_meta"), dict):
        result = {**result, "_meta": mcp.strip_ours(result["_meta"])}
    return Answer(result, status)


def unanswered(why: str) -> Answer:
    """What became of a call that asked back."""
    return Answer(mcp.call_result_text(f"The tool asks for more input, which it didn't get; it did not run: {why}.", True))


def _is_content(content: Json) -> bool:
    return isinstance(content, list) and all(isinstance(block, dict) for block in content)
