"""What clients see of tools: pages of them, output schemas that leave room for the gateway's own answers, marked arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.core.model import Json, Tool
from gateway.engine import ListedTool
from gateway.wire import jsonrpc, mcp_headers
from gateway.wire.jsonrpc import RpcError
from gateway.wire.mcp import ListedNames

_OURS: Final = {"type": "object", "description": "The gateway's answer where the tool was not run.", "required": ["call", "status"]}


def shown(tools: Sequence[ListedTool], names: ListedNames) -> list[dict[str, Json]]:
    """Definitions as `tools/list` gives them: untouched but for the name and the room in `outputSchema`."""
    return [_with_room({**one.definition, "name": one.short or names.listed(one.tool.name)}) for one in tools]


def page(tools: Sequence[ListedTool], cursor: Json, size: int, id: jsonrpc.Id) -> tuple[Sequence[ListedTool], str | None]:
    """One page and the cursor of the next, which is the name of the last tool shown. Raises RpcError -32602 for a cursor not ours."""
    start = 0
    if cursor is not None:
        names = [one.tool.name for one in tools]
        if cursor not in names:
            raise RpcError(jsonrpc.INVALID_PARAMS, "params.cursor is no cursor of this list; start again without one", id)
        start = names.index(cursor) + 1
    end = start + size
    return tools[start:end], tools[end - 1].tool.name if end < len(tools) else None


class Marks:
    """Which arguments of a tool a client repeats in `Mcp-Param-…` headers; read from a definition once."""

    def __init__(self) -> None:
        self._by_digest: dict[str, mcp_headers.Marked] = {}

    def of(self, tool: Tool | None) -> mcp_headers.Marked:
        if tool is None:
            return {}
        found = self._by_digest.get(tool.digest)
        if found is None:
            found = self._by_digest[tool.digest] = _marked(tool.definition.get("inputSchema"))
        return found


def _marked(schema: Json) -> mcp_headers.Marked:
    try:
        return mcp_headers.marked_arguments(schema) if isinstance(schema, dict) else {}
    except mcp_headers.HeaderError:
        return {}  # clients must leave such a tool out; a call of it has no headers that could be compared


def _with_room(definition: dict[str, Json]) -> dict[str, Json]:
    """Official clients raise for `structuredContent` outside `outputSchema`, one of them on errors too: a refusal or a held call must fit."""
    schema = definition.get("outputSchema")
    if not isinstance(schema, dict):
        return definition
    outside: dict[str, Any] = {"$schema": schema["$schema"]} if "$schema" in schema else {}
    if schema.get("type") == "object":  # the session revisions want to see it at the root
        outside["type"] = "object"
    inside = {name: part for name, part in schema.items() if name != "$schema"}
    if "$id" not in schema:
        inside = _moved(inside, "#/anyOf/0")
    return {**definition, "outputSchema": {**outside, "anyOf": [inside, _OURS]}}


def _moved(schema: Any, place: str) -> Any:
    """The schema with its references into itself leading to where it stands now."""
    if isinstance(schema, list):
        return [_moved(part, place) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {name: place + part[1:] if name == "$ref" and _is_local(part) else _moved(part, place) for name, part in schema.items()}


def _is_local(reference: Any) -> bool:
    return isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))
