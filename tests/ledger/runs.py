"""A run with a few calls, as events that the gateway's own folds accept."""

from __future__ import annotations

from typing import Any

from gateway.core.canonical import call_key
from gateway.core.events import CallAdmitted, CallHeld, CallSettled, Event, HoldCounted, RunOpened, RunRegistered, VoteCast
from gateway.core.run import principal_stream
from gateway.ports import Decision

RUN = "run_r"
NOW = 1_800_000_000_000
AGENT = "agent:a"
HOLD = "hold_r_1"
LIMITS: dict[str, Any] = {"turns": 12, "tool_calls": 40, "deadline_ms": 90_000, "close_on": ["turns", "deadline"]}
REQUIREMENT: dict[str, Any] = {"rule": "refunds.yaml:9", "rule_digest": "d", "approvers": ["group:finance"], "quorum": 2}


def open_run(run: str = RUN, **changes: Any) -> Event:
    return RunOpened(run, AGENT, AGENT, "refunds", "digest", LIMITS, "interactive", "rest", **changes)


def _asked(number: int) -> dict[str, Any]:
    return {
        "run": RUN, "call": f"call_r_{number}", "turn": 0, "call_id": None, "tool": "billing.refund", "fingerprint": f"print{number}",
        "door": "rest", "operation_id": None, "arguments": None,
    }  # fmt: skip


def _known(number: int) -> dict[str, Any]:
    return {"key": call_key(RUN, "billing.refund", f"print{number}", None, 0), "upstream": "billing", "effect": "non_idempotent"}


def admit(number: int, **changes: Any) -> Event:
    return CallAdmitted(**{**_asked(number), **_known(number), "owner": "one", "deadline_at": NOW + 9, "lease_until": NOW + 9, **changes})


def settle(number: int, state: str = "succeeded", **changes: Any) -> Event:
    return CallSettled(RUN, f"call_r_{number}", 1, state, **{"by": "one", **changes})


def hold(number: int, *, expires_in_ms: int = 60_000, at: int = NOW) -> Event:
    given = {"hold": HOLD, "digest": "what is seen", "requirements": (REQUIREMENT,), "expires_at": at + expires_in_ms}
    return CallHeld(**{**_asked(number), **_known(number), **given})


def vote(by: str, number: int = 1) -> Event:
    return VoteCast(RUN, f"call_r_{number}", HOLD, by, "approve", ("finance",), "what is seen")


def told(*events: Event) -> tuple[tuple[str, Event], ...]:
    """Each in its stream, and what the principal's stream is told of it."""
    placed: list[tuple[str, Event]] = []
    for event in events:
        placed.append((RUN, event))
        if isinstance(event, RunOpened) and event.parent is None:
            placed.append((principal_stream(AGENT), RunRegistered(AGENT, event.run, None)))
        elif isinstance(event, CallHeld):
            placed.append((principal_stream(AGENT), HoldCounted(AGENT, event.hold)))
    return tuple(placed)


async def life(ledger: Any, *events: Event) -> None:
    """Append them, each in a transact of its own."""
    for event in events:
        placed = told(event)
        await ledger.transact(tuple({stream for stream, _ in placed}), lambda states, now, placed=placed: Decision(placed, None))
