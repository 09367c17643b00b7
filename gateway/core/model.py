"""The nouns that cross walls: who asks, what for, what was judged, what came of it.

Everything here is frozen and holds plain values, so that it can stand in an event, travel between tasks and be compared.
Times are integer milliseconds: `…_at` since the Unix epoch, `…_ms` a duration. Money is integer micro-dollars.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

Json = Any
"""A parsed JSON value: dict, list, str, int, float, bool or None."""


class Effect(StrEnum):
    """What a repeat of a call does to the world (DESIGN §4); unknown tools count as the last."""

    READ_ONLY = "read_only"
    IDEMPOTENT_WRITE = "idempotent_write"
    NON_IDEMPOTENT = "non_idempotent"

    @property
    def writes(self) -> bool:
        return self is not Effect.READ_ONLY


class Principal(Struct, frozen=True):
    """Who is accountable, as authentication found it; nothing here comes from a request's body."""

    id: str
    groups: frozenset[str] = frozenset()
    task_types: frozenset[str] = frozenset()
    claims: Mapping[str, Json] = field(default_factory=dict)
    trust: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    person: bool = False

    def matches(self, names: frozenset[str]) -> bool:
        """Does one of `names` (`agent:x`, `user:y`, `group:z`) mean this principal?"""
        return self.id in names or any(f"group:{group}" in names for group in self.groups)


class PrincipalCaps(Struct, frozen=True):
    """What one principal may have at once, over all its runs; None = unlimited."""

    open_runs: int | None = 20
    open_holds: int | None = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """A named operation of an upstream as the catalog holds it.

    `definition` is the upstream's own JSON (MCP tool shape) untouched; `digest` is over it. `shape` judges arguments by its
    `inputSchema`. A tool is held back, which is neither listed nor called, for what its schema can't be enforced for (`unsupported`) or its
    definition isn't accepted for (`unaccepted`).
    """

    name: str
    upstream: str
    local_name: str
    definition: Mapping[str, Json]
    digest: str
    shape: Any = dataclasses.field(default=None, compare=False)
    unsupported: str | None = None
    unaccepted: str | None = None

    @property
    def usable(self) -> bool:
        return self.unsupported is None and self.unaccepted is None


class Amounts(Struct, frozen=True):
    """What a call or a turn takes from a purse; pending while unknown, then posted."""

    turns: int = 0
    tool_calls: int = 0
    tokens: int = 0
    usd_micros: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.turns + other.turns,
            self.tool_calls + other.tool_calls,
            self.tokens + other.tokens,
            self.usd_micros + other.usd_micros,
        )

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.turns - other.turns,
            self.tool_calls - other.tool_calls,
            self.tokens - other.tokens,
            self.usd_micros - other.usd_micros,
        )


NOTHING = Amounts()


class Limits(Struct, frozen=True):
    """A run's caps as fixed when it opened (policy, ceilings, the caller's own tightening); None = unlimited."""

    turns: int | None = None
    tool_calls: int | None = None
    tool_calls_per_turn: int | None = None
    tokens: int | None = None
    tokens_per_turn: int | None = None
    input_tokens_per_turn: int | None = None
    usd_micros: int | None = None
    deadline_ms: int | None = None
    max_age_ms: int = 7 * 86_400_000
    idle_after_ms: int = 1_800_000
    in_flight_calls: int | None = None
    open_holds: int | None = 5
    pause_while_held: bool = False
    require_turns: bool = False
    close_on: tuple[str, ...] = ("turns", "tokens", "cost", "deadline")


class Finding(Struct, frozen=True):
    """One guard's objection. `rule` is `file:line` of the rule that speaks. `closes`: the run ends with it (the reason's run reason)."""

    guard: str
    reason: str
    message: str
    rule: str = ""
    closes: bool = False


class Requirement(Struct, frozen=True):
    """One rule's demand for people: `quorum` of `approvers`, decided within `expires_in_ms`, executed within `execute_within_ms`."""

    rule: str
    rule_digest: str
    approvers: tuple[str, ...]
    quorum: int = 1
    expires_in_ms: int = 86_400_000
    execute_within_ms: int = 900_000
    hold_open_ms: int = 20_000
    editable: tuple[str, ...] = ()
    show: str | None = None
    execute: str = "on_repeat"


class Malformed(str):
    """Arguments that were no JSON object; the text says why. Stands in `CallRequest.arguments`."""

    __slots__ = ()


class CallRequest(Struct, frozen=True):
    """One tool call as a door read it. `arguments` is a dict, or `Malformed`.

    `wait_ms` caps waiting for people and for another's dispatch (None: the rule's `hold_open`).
    `turn` 0 is "no turn"; a number above the highest opens that turn.
    """

    tool: str
    arguments: Json
    door: str
    call_id: str | None = None
    operation_id: str | None = None
    turn: int = 0
    wait_ms: int | None = None
    trace: Mapping[str, str] = field(default_factory=dict)


class Payload(Struct, frozen=True):
    """Bytes that stand beside an event, which holds only `hash` = sha256(salt + data): erasable, unguessable."""

    hash: str
    salt: bytes
    data: bytes


class Outcome(Struct, frozen=True):
    """What one attempt came to. `state` is the call's next state: succeeded, failed, cancelled or in_doubt.

    `not_applied`: the upstream surely did nothing (frees the key). `answered`: the upstream gave a definite answer, `result`.
    `retry`: another attempt under the same key may help, after `retry_after_ms` if the upstream named a time. `whole`: what the tool really
    answered where that was too long to be shown, and `result` is a note in its place.
    """

    state: str
    reason: str | None = None
    message: str = ""
    result: Mapping[str, Json] | None = None
    status: int | None = None
    answered: bool = False
    not_applied: bool = False
    retry: bool = False
    retry_after_ms: int | None = None
    whole: Mapping[str, Json] | None = None


class BudgetLeft(Struct, frozen=True):
    """What is left, in every answer. None = unlimited; turns_left is "unmetered" where no turn was ever declared."""

    turns_left: int | str | None
    final_turn: bool
    tool_calls_left: int | None
    tokens_left: int | None
    cost_usd_left: float | None
    deadline_at: int | None
    seconds_left: float | None
    warning: str | None


class Completed(Struct, frozen=True):
    """The call has a definite result: fresh, or `replayed` from the record with `message` and `differences` beside it."""

    call: str
    status: str
    result: Mapping[str, Json]
    budget: BudgetLeft
    reason: str | None = None
    replayed: bool = False
    message: str | None = None
    differences: Json = None


class Refused(Struct, frozen=True):
    """Nothing was dispatched. The first finding's reason is the answer's; `run_status`/`run_reason` say if the run ended."""

    call: str | None
    findings: tuple[Finding, ...]
    budget: BudgetLeft | None = None


class Held(Struct, frozen=True):
    """Waits for people; nothing was executed. `state` is held, or ready when approved and not yet executed."""

    call: str
    hold: str
    expires_at: int
    reason: str
    message: str
    budget: BudgetLeft
    state: str = "held"


class Question(Struct, frozen=True):
    """What the tool of a running call asks its client: id -> {method, params}. `number` counts the questions of one call."""

    number: int
    requests: Mapping[str, Json]


class Busy(Struct, frozen=True):
    """The one dispatch of this key is still running; the caller's patience ended first (`call.in_flight`), or its tool asks the caller."""

    call: str
    budget: BudgetLeft
    question: Question | None = None


class Failed(Struct, frozen=True):
    """Dispatched or tried, and the upstream gave no answer (timeout, unavailable), or the call was cancelled."""

    call: str
    outcome: Outcome
    budget: BudgetLeft


class Doubt(Struct, frozen=True):
    """A write whose outcome nobody knows (`call.in_doubt`); only a person or a probe settles it. `call` is the reconciliation id."""

    call: str
    outcome: Outcome
    budget: BudgetLeft


Reply = Completed | Refused | Held | Busy | Failed | Doubt
