"""Errors as RFC 9457 problems, one shape for every door. Status, title, hint and `retryable` come from reason rows, never from doors.

`Retry-After` stands only where waiting helps: something will end, be decided, or come back by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.core.model import BudgetLeft, Busy, Doubt, Failed, Finding, Json, Refused
from gateway.core.reasons import Reason, reason
from gateway.doors.render import budget_json
from gateway.ports import GatewayFault, LedgerFault, RequestFault


@dataclass(frozen=True, slots=True)
class Problem:
    """An error answer: HTTP status, JSON body, and the headers that belong to it."""

    status: int
    body: dict[str, Any]
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())


def problem(fault: GatewayFault | Refused | Busy | Failed | Doubt, budget: BudgetLeft | None = None) -> Problem:
    """The problem that a fault or a reply without a result is. `budget` is the run's, where the fault itself doesn't know it."""
    match fault:
        case Refused():
            first = fault.findings[0]
            return _problem(first.reason, first.message, fault.findings, fault.call, fault.budget)
        case Busy():
            return running(f"Call {fault.call} is still running.", fault.call, fault.budget)
        case Failed() | Doubt():
            outcome, wait_ms = fault.outcome, fault.outcome.retry_after_ms
            assert outcome.reason is not None
            wait_s = None if wait_ms is None else math.ceil(wait_ms / 1000)
            return _problem(outcome.reason, outcome.message, (), fault.call, fault.budget, wait_s=wait_s)
        case RequestFault():
            return _problem(fault.reason, fault.message, fault.findings, None, budget, data=fault.data)
        case LedgerFault():  # what went wrong inside is for the log, not for whoever asked
            return _problem("ledger.unavailable", "The gateway can't record anything at the moment, so it does nothing.", (), None, budget)
        case _:
            return failure()


def running(detail: str, call: str | None = None, budget: BudgetLeft | None = None) -> Problem:
    """The wait for a call's result ended before the call did."""
    return _problem("call.in_flight", detail, (), call, budget)


def failure() -> Problem:
    """A mistake of the gateway's own; its traceback is in the log."""
    return _problem("gateway.failed", "The gateway failed on this request.", (), None, None)


def _problem(
    code: str,
    detail: str,
    findings: Iterable[Finding],
    call: str | None,
    budget: BudgetLeft | None,
    *,
    wait_s: int | None = None,
    data: Mapping[str, Json] | None = None,
) -> Problem:
    row = reason(code)
    body = {
        **(data or {}),
        "type": f"urn:tool-call-gateway:reason:{code}",
        "title": row.title,
        "status": row.status,
        "reason": code,
        "detail": detail or row.title,
        "findings": [{"guard": f.guard, "reason": f.reason, "message": f.message, "rule": f.rule} for f in findings],
        "retryable": row.retryable,
        "hint": row.hint,
        "call": call,
        "budget": None if budget is None else budget_json(budget),
    }
    return Problem(row.status, body, tuple(_headers(row, wait_s)))


def _headers(row: Reason, wait_s: int | None) -> Iterable[tuple[bytes, bytes]]:
    if row.wait_s is not None:
        yield b"retry-after", str(row.wait_s if wait_s is None else wait_s).encode()
    if row.status == 401:
        yield b"www-authenticate", b'Bearer realm="tool-call-gateway"'
