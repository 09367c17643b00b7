"""What doors give the engine and get from it, apart from calls (`core.model.CallRequest`, `Reply`)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from gateway.core.deployment import Pin
from gateway.core.model import BudgetLeft, Json, Principal, Tool
from gateway.core.run import CallRecord, Hold, Run, Turn


class Caller(Struct, frozen=True):
    """Who asks. `run` is set when the bearer was a run token: then only that run and its descendants may be touched."""

    principal: Principal
    run: str | None = None


class RunRequest(Struct, frozen=True):
    """A run to open. `budgets` in the policy's YAML names; they may only tighten."""

    door: str
    run_key: str | None = None
    policy: str | None = None
    task_type: str | None = None
    goal: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    budgets: Mapping[str, Json] = field(default_factory=dict)
    parent_run: str | None = None
    continues: str | None = None
    implicit: bool = False


class AskedCall(Struct, frozen=True):
    """One call of a turn's answer, as the model asked for it."""

    call_id: str
    tool: str
    arguments: Json


class UsageRequest(Struct, frozen=True):
    """One model call's figures; `cost_usd` as a number or text, None if unknown."""

    model: str | None = None
    input: int = 0
    output: int = 0
    cache_creation: int = 0
    cache_read: int = 0
    cost_usd: float | str | None = None


class RunView(Struct, frozen=True):
    """A run as its owner sees it. `calls`: state -> count; `existed`: it was there before this request."""

    run: Run
    budget: BudgetLeft
    tools: tuple[str, ...]
    calls: Mapping[str, int]
    awaiting_approval: bool
    existed: bool = False


class TurnResult(Struct, frozen=True):
    """What came of one asked call. `synthetic`: no outcome, but what keeps the conversation valid; None while it is still to come."""

    call_id: str
    tool: str
    call: str | None
    state: str
    result: Mapping[str, Json] | None
    synthetic: bool = False


class TurnView(Struct, frozen=True):
    turn: Turn
    budget: BudgetLeft
    results: tuple[TurnResult, ...]


class HoldView(Struct, frozen=True):
    """A hold with the dispatched arguments that an approval binds (None if erased)."""

    hold: Hold
    call: CallRecord
    run: Run
    arguments: Json


class ToolView(Struct, frozen=True):
    """A tool as operators see it. `state`: accepted, changed or new (both held back), unsupported (held back for its schema), away (accepted
    once, not offered now). `accepted`: the accepted definition where another one is offered."""

    name: str
    state: str
    tool: Tool | None
    pin: Pin | None
    accepted: Mapping[str, Json] | None


class ListedTool(Struct, frozen=True):
    """A tool as a run may see it: `definition` with injected arguments hidden; `short`: the name that the policy lists it under."""

    tool: Tool
    definition: Mapping[str, Json]
    effect: str
    short: str | None = None
