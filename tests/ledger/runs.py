"""A run with a few calls, as events that the gateway's own folds accept."""

from __future__ import annotations

from typing import Any

from gateway.core.events import CallAdmitted, CallHeld, CallSettled, Event, RunOpened, VoteCast
from gateway.ports import Decision

RUN = "run_r"
HOLD = "hold_r_1"
LIMITS: dict[str, Any] = {"turns": 12, "tool_calls": 40, "deadline_ms": 90_000, "close_on": ["turns", "deadline"]}
REQUIREMENT: dict[str, Any] = {"rule": "refunds.yaml:9", "rule_digest": "d", "approvers": ["group:finance"], "quorum": 2}


def open_run(run: str = RUN, **changes: Any) -> Event:
    return RunOpened(run, "agent:a", "agent:a", "refunds", "digest", LIMITS, "interactive", "rest", **changes)


def _asked(number: int) -> dict[str, Any]:
    return {
        "run": RUN, "call": f"call_r_{number}", "turn": 0, "call_id": None, "tool": "billing.refund", "fingerprint": f"print{number}",
        "door": "rest", "operation_id": None, "arguments": None,
    }  # fmt: skip


def admit(number: int, **changes: Any) -> Event:
    given = {"key": f"key{number}", "upstream": "billing", "effect": "non_idempotent", "owner": "one", "lease_until": 9, "deadline_at": 9}
    return CallAdmitted(**{**_asked(number), **given, **changes})


def settle(number: int, state: str = "succeeded", **changes: Any) -> Event:
    return CallSettled(RUN, f"call_r_{number}", 1, state, **changes)


def hold(number: int, *, expires_in_ms: int = 60_000, at: int = 1_800_000_000_000) -> Event:
    given = {"hold": HOLD, "digest": "what is seen", "key": f"key{number}", "upstream": "billing", "effect": "non_idempotent"}
    return CallHeld(**{**_asked(number), **given, "requirements": (REQUIREMENT,), "expires_at": at + expires_in_ms})


def vote(by: str, number: int = 1) -> Event:
    return VoteCast(RUN, f"call_r_{number}", HOLD, by, "approve", ("finance",), "what is seen")


async def life(ledger: Any, *events: Event) -> None:
    """Append them, each in a transact of its own."""
    for event in events:
        await ledger.transact((RUN,), lambda states, now, event=event: Decision(((RUN, event),), None))
