"""What the client asks and makes of the answers, apart from sending: values, errors, and flows that yield what to send.

A flow yields a request, and is sent the response or the httpx.TransportError that came instead, or yields seconds to wait; it returns its
result. No flow knows whether its driver is sync or async.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import httpx

PATIENCE_S = 300.0
_WAIT_S = 20.0
"""The longest the gateway is asked to hold one request open for people."""
_RECONNECT_S = 1.0

T = TypeVar("T")


class GatewayError(Exception):
    """The gateway said no. `reason` is a stable code, `hint` what to do next; `problem` is the whole answer."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{problem.get('reason', status)}: {problem.get('detail', 'no problem document')}")
        self.status = status
        self.problem = dict(problem)
        self.reason: str = problem.get("reason", "")
        self.hint: str = problem.get("hint", "")
        self.retryable: bool = problem.get("retryable", False)
        self.call: str | None = problem.get("call")
        self.budget = _budget(problem.get("budget"))


class StillHeld(GatewayError):
    """Patience ended before people decided. Nothing was executed; the same call later goes on from there."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(202, {"detail": body["message"], "retryable": True, **body})
        self.hold: str = body["hold"]["hold"]
        self.url: str = body["hold"]["url"]
        self.expires_at: str = body["hold"]["expires_at"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What is left; None = unlimited, `turns_left` "unmetered" until a turn is declared."""

    turns_left: int | str | None = None
    final_turn: bool = False
    tool_calls_left: int | None = None
    tokens_left: int | None = None
    cost_usd_left: float | None = None
    deadline: str | None = None
    seconds_left: float | None = None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class CallResult:
    """A tool's answer. `result` is an MCP CallToolResult; `replayed`: it comes from the record, nothing was executed now."""

    call: str
    status: str
    result: Mapping[str, Any]
    replayed: bool
    message: str | None
    differences: Mapping[str, Any] | None
    budget: Budget

    @property
    def is_error(self) -> bool:
        return bool(self.result.get("isError"))

    @property
    def text(self) -> str:
        """All text blocks, joined by line ends."""
        return "\n".join(block["text"] for block in self.result.get("content", ()) if block.get("type") == "text")

    @property
    def structured(self) -> Any:
        return self.result.get("structuredContent")


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call. `calls`: what became of each call it asked for."""

    number: int
    status: str
    calls: Sequence[Mapping[str, Any]]
    budget: Budget


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to send. `bearer` in place of the key; `extra_s`: how much longer than others its answer may take."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    bearer: str | None = None
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_s: float = 0.0


Flow = Generator[Ask | float, Any, T]


# ---- flows --------------------------------------------------------------------------------------------------------------


def sent(ask: Ask) -> Flow[httpx.Response]:
    """The answer, whatever it says. Raises httpx.TransportError where none came."""
    answer: httpx.Response | httpx.TransportError = yield ask
    if isinstance(answer, httpx.TransportError):
        raise answer
    return answer


def asking(ask: Ask) -> Flow[dict[str, Any]]:
    """The body of a good answer. Raises GatewayError."""
    response = yield from sent(ask)
    if response.status_code >= 400:
        raise GatewayError(response.status_code, _json(response))
    return _json(response)


def calling(ask: Ask, patience_s: float) -> Flow[CallResult]:
    """Make a call, and the same again while it only has to be waited for."""
    end = time.monotonic() + patience_s
    while True:
        wait = round(max(0.0, min(_WAIT_S, end - time.monotonic())), 3)
        pause = _RECONNECT_S
        try:
            response = yield from sent(replace(ask, query={"wait": wait}, extra_s=wait))
        except httpx.TransportError as lost:
            fault: Exception = lost
        else:
            if response.status_code == 200:
                return _result(_json(response))
            fault, pause = _refusal(response), _seconds(response)
        if not _passes(fault) or time.monotonic() + pause > end:
            raise fault
        yield pause


def _refusal(response: httpx.Response) -> GatewayError:
    body = _json(response)
    return StillHeld(body) if response.status_code == 202 else GatewayError(response.status_code, body)


def _passes(fault: Exception) -> bool:
    return not isinstance(fault, GatewayError) or isinstance(fault, StillHeld) or fault.reason in (
        "call.in_flight", "budget.in_flight", "ledger.unavailable", "gateway.stopping",
    )  # fmt: skip


def _seconds(response: httpx.Response) -> float:
    """Of Retry-After; a proxy may write a date there instead."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else _RECONNECT_S


def turning(ask: Ask) -> Flow[Turn]:
    body = yield from asking(ask)
    return Turn(body["turn"], body["status"], body["calls"], _budget(body["budget"]) or Budget())


def ending(run: str, token: str, handoff: Mapping[str, Any] | None) -> Flow[dict[str, Any]]:
    """Finish; a run that a budget or a loop has closed meanwhile is over as well."""
    path = f"/v1/runs/{run}"
    try:
        return (yield from asking(Ask("POST", f"{path}/finish", {"handoff": handoff}, token)))
    except GatewayError as error:
        if error.reason != "run.not_open":
            raise
        return (yield from asking(Ask("GET", path, bearer=token)))


def listing(state: str) -> Flow[list[dict[str, Any]]]:
    holds: list[dict[str, Any]] = (yield from asking(Ask("GET", "/v1/holds", query={"state": state})))["holds"]
    return holds


def voting(hold: str, vote: str, digest: str, word: str, text: str) -> Flow[dict[str, Any]]:
    return asking(Ask("POST", f"/v1/holds/{hold}/{vote}", {"digest": digest, word: text}))


def opening(asked: Mapping[str, Any], run: Callable[[Mapping[str, Any]], T]) -> Flow[T]:
    return run((yield from asking(Ask("POST", "/v1/runs", asked))))


# ---- reading answers ----------------------------------------------------------------------------------------------------


def _json(response: httpx.Response) -> dict[str, Any]:
    """What isn't a JSON object (a proxy's page, say) is an empty one."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _budget(body: Mapping[str, Any] | None) -> Budget | None:
    return None if body is None else Budget(**{one.name: body[one.name] for one in fields(Budget) if one.name in body})


def _result(body: Mapping[str, Any]) -> CallResult:
    return CallResult(**{one.name: body[one.name] for one in fields(CallResult) if one.name != "budget"}, budget=_budget(body["budget"]) or Budget())


class Connection:
    """How requests look on the wire, whichever client sends them. `key` may be a run token."""

    def __init__(self, url: str, key: str, timeout_s: float) -> None:
        self._url = url.rstrip("/")
        self._key = key
        self._timeout_s = timeout_s

    def request(self, ask: Ask) -> dict[str, Any]:
        return {
            "method": ask.method,
            "url": self._url + ask.path,
            "json": ask.body,
            "params": ask.query,
            "headers": {"authorization": f"Bearer {ask.bearer or self._key}", **ask.headers},
            "timeout": httpx.Timeout(self._timeout_s + ask.extra_s, connect=min(10.0, self._timeout_s)),
        }
