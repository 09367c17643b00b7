"""The four lives as tables: run, turn, call, hold (DESIGN §4).

Every transition stands here, as data: `TABLE[state][input] -> next state`. A missing entry *is* the protocol error: `step` raises
`IllegalTransition` and nothing has changed. The diagrams in the README are drawn from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class IllegalTransition(Exception):
    """An event that this state can't take; a fault of ours, never an answer to a caller."""


Table = Mapping[str, Mapping[str, str]]

RUN: Table = {
    "new": {"open": "open"},
    "open": {"freeze": "frozen", "close": "closing"},
    "frozen": {"resume": "open", "close": "closing"},
    "closing": {"done": "closed"},
    "closed": {},
}

TURN: Table = {
    "new": {"open": "open"},
    "open": {"answer": "answered", "close": "closed"},
    "answered": {"close": "closed"},
    "closed": {},
}

CALL: Table = {
    "new": {"refuse": "denied", "hold": "held", "admit": "admitted"},
    "held": {"approve": "ready", "deny": "denied", "expire": "denied", "void": "denied", "withdraw": "cancelled"},
    "ready": {"admit": "admitted", "expire": "denied", "void": "denied", "withdraw": "cancelled"},
    "admitted": {
        "admit": "admitted",
        "succeed": "succeeded",
        "fail": "failed",
        "cancel": "cancelled",
        "doubt": "in_doubt",
    },
    "in_doubt": {"succeed": "succeeded", "fail": "failed", "reopen": "ready", "abandon": "abandoned"},
    "denied": {},
    "succeeded": {},
    "failed": {},
    "cancelled": {},
    "abandoned": {},
}

HOLD: Table = {
    "new": {"hold": "held"},
    "held": {"vote": "held", "approve": "approved", "deny": "denied", "expire": "expired", "void": "void", "withdraw": "cancelled"},
    "approved": {"admit": "consumed", "expire": "expired", "void": "void", "withdraw": "cancelled"},
    "denied": {},
    "expired": {},
    "void": {},
    "cancelled": {},
    "consumed": {},
}

LIVES: Mapping[str, Table] = {"run": RUN, "turn": TURN, "call": CALL, "hold": HOLD}

SETTLED_INPUT = {"succeeded": "succeed", "failed": "fail", "cancelled": "cancel", "in_doubt": "doubt"}
"""State named by a `CallSettled` -> input of CALL. Only what was admitted can be settled; what waits is withdrawn."""

RECONCILED_INPUT = {"succeeded": "succeed", "failed": "fail", "ready": "reopen", "abandoned": "abandon"}
"""State named by a `CallReconciled` -> input of CALL. Only what is in doubt can be reconciled."""

LIVE_CALL = frozenset({"held", "ready", "admitted"})
"""A run that closes waits for these to end."""


def state_of(thing: Any) -> str:
    """`new` before a thing's first event."""
    return "new" if thing is None else str(thing.state)


def step(table: Table, state: str, by: str) -> str:
    """The next state, or IllegalTransition."""
    try:
        return table[state][by]
    except KeyError:
        raise IllegalTransition(f"{state!r} can't take {by!r}; it takes {sorted(table.get(state, {})) or 'nothing'}") from None
