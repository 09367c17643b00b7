"""What a server asks its client in the midst of a request, and how it is answered: results in 2026-07-28, requests before.

`inputRequests` is id -> {method, params}, `inputResponses` is id -> result; the methods and results are those of the session era's requests.
Source: 2026-07-28, "Multi Round-Trip Requests"; 2025-11-25, "Elicitation", "Sampling", "Roots".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Request, RpcError

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

QUESTIONS: Final = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""What a client can be asked, and the capability that says so."""


def askable(capabilities: Any) -> dict[str, Any]:
    """Of a client's capabilities, those that let a server ask it something."""
    if not capabilities or not isinstance(capabilities, dict):
        return {}
    return {name: said for name, said in capabilities.items() if name in QUESTIONS.values() and isinstance(said, dict)}


def lacking(capabilities: Mapping[str, Any], requests: Mapping[str, Any]) -> str | None:
    """What the client would have to be capable of for the first of these requests that it can't answer; None if it can answer all."""
    for one in requests.values():
        method = one.get("method") if isinstance(one, dict) else None
        name = QUESTIONS.get(method) if isinstance(method, str) else None
        if name is None:
            return f"answer {str(method)[:64]!r}"
        if name not in capabilities:
            return name
        params = one.get("params")
        if isinstance(params, dict) and params.get("mode") == "url" and "url" not in capabilities[name]:
            return "elicitation.url"
    return None


def input_required(requests: Mapping[str, Any], state: str) -> dict[str, Any]:
    asked = {"inputRequests": requests} if requests else {}
    return {"resultType": "input_required", **asked, "requestState": state}


def is_input_required(result: Any) -> bool:
    return isinstance(result, dict) and result.get("resultType") == "input_required"


def requests(result: Mapping[str, Any]) -> dict[str, Any]:
    """The `inputRequests` of such a result; empty without any."""
    found = result.get("inputRequests")
    return found if isinstance(found, dict) else {}


def responses(request: Request) -> dict[str, Any] | None:
    """The `inputResponses` of a request; None without. Raises RpcError -32602 for any that are no objects."""
    if "inputResponses" not in request.params:
        return None
    found = request.params["inputResponses"]
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise RpcError(jsonrpc.INVALID_PARAMS, "params.inputResponses must be an object of results", request.id)
    return found


def state(request: Request) -> str | None:
    """Raises RpcError -32602 for a `requestState` that is no string."""
    found = request.params.get("requestState")
    if found is not None and not isinstance(found, str):
        raise RpcError(jsonrpc.INVALID_PARAMS, "params.requestState must be the string that was given", request.id)
    return found
