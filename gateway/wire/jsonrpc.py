"""JSON-RPC 2.0 as MCP uses it: one message read into a value, answers built as plain dicts.

Ids are strings or integers, never null or fractional; params are objects; batches are refused (MCP dropped them in
2025-06-18). Members that the specification doesn't name are ignored.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import Struct

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
# MCP 2026-07-28, "Error Codes"
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

Id: TypeAlias = str | int


class RpcError(Exception):
    """A message that is refused, with all that its error answer needs. `id` is None where it couldn't be read."""

    def __init__(self, code: int, message: str, id: Id | None, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id
        self.data = data

    def answer(self) -> dict[str, Any]:
        return error(self.id, self.code, self.message, self.data)


class Request(Struct, frozen=True):
    id: Id
    method: str
    params: dict[str, Any]


class Notification(Struct, frozen=True):
    method: str
    params: dict[str, Any]


class Response(Struct, frozen=True):
    """`error` is None exactly when the request succeeded. `id` is None in an answer to an unreadable request."""

    id: Id | None
    result: Any
    error: dict[str, Any] | None


def read(message: Any) -> Request | Notification | Response:
    """One parsed message. Raises RpcError (-32600 for its shape, -32602 for params that are no object)."""
    if not isinstance(message, dict):
        raise RpcError(INVALID_REQUEST, f"a message must be a single JSON object, not {_kind(message)}", None)
    id = _id(message)
    if message.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'jsonrpc must be "2.0"', id)
    answered = ("result" in message) + ("error" in message)
    if answered + ("method" in message) != 1:
        raise RpcError(INVALID_REQUEST, "a message has exactly one of method, result and error", id)
    return _response(message, id) if answered else _call(message, id)


def result(id: Id, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error(id: Id | None, code: int, message: str, data: Any = None) -> dict[str, Any]:
    details = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": id, "error": details if data is None else {**details, "data": data}}


def request(id: Id, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params else {})}


def notification(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}


def _call(message: dict[str, Any], id: Id | None) -> Request | Notification:
    method, params = message["method"], message.get("params")
    if params is None:  # some clients write null for none
        params = {}
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, f"method must be a string, not {_kind(method)}", id)
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, f"params must be an object, not {_kind(params)}", id)
    if "id" not in message:
        return Notification(method, params)
    if id is None:
        raise RpcError(INVALID_REQUEST, "a request's id must not be null", None)
    return Request(id, method, params)


def _response(message: dict[str, Any], id: Id | None) -> Response:
    if "result" in message:
        if id is None:
            raise RpcError(INVALID_REQUEST, "a result must carry the id of its request", None)
        return Response(id, message["result"], None)
    details = message["error"]
    if not (isinstance(details, dict) and _is_integer(details.get("code")) and isinstance(details.get("message"), str)):
        raise RpcError(INVALID_REQUEST, "an error must carry an integer code and a message", id)
    return Response(id, None, details)


def _id(message: dict[str, Any]) -> Id | None:
    id: Id | None = message.get("id")
    if id is None or type(id) in (str, int):
        return id
    raise RpcError(INVALID_REQUEST, f"id must be a string or an integer, not {_kind(id)}", None)


def _is_integer(value: Any) -> bool:
    return type(value) is int  # True and False are of a type of their own


def _kind(value: Any) -> str:
    names: dict[type, str] = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
