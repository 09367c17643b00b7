"""What a guard is: one kind of rule, with its YAML schema, stage, own little state and check.

A new guard is one file with a subclass of `Guard` and one line in the tuple `GUARDS`. The document schema, `gateway check`, the
ladder and the docs pick it up from the class attributes. Guards of one stage can't see each other, so their order can't matter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from msgspec import Struct

from gateway.core.events import Event
from gateway.core.model import Amounts, CallRequest, Effect, Finding, Json, Principal, Requirement, Tool
from gateway.core.reasons import reason

if TYPE_CHECKING:
    from gateway.core.run import Tree

Fold = Callable[[Any, Any, "Tree"], Any]
"""`fold(state, event, tree before it)`: the little state after an event; the very same when nothing changed."""


class Stage(IntEnum):
    """The rungs, in order; a denial ends the ladder after its stage (DESIGN §3)."""

    SCOPE = 1
    SHAPE = 2
    AUTHORITY = 3
    LIMIT = 4
    CONSENT = 5
    RESULT = 6


class Shape(Protocol):
    """A compiled JSON Schema: the messages of what is wrong, () if nothing."""

    def __call__(self, value: Json, /) -> tuple[str, ...]: ...


class Condition(Protocol):
    """A compiled CEL condition over facts `{args, tool, run, principal}` or `{result, …}`; raises ConditionFault."""

    def __call__(self, facts: Mapping[str, Json], /) -> bool: ...


class Value(Protocol):
    """A compiled CEL expression that yields a value; raises ConditionFault."""

    def __call__(self, facts: Mapping[str, Json], /) -> Json: ...


class ConditionFault(Exception):
    """An expression couldn't be evaluated on these facts. The message names no argument's value."""


class RunFacts(Struct, frozen=True):
    """What conditions may know of a run: all fixed when it opened."""

    id: str
    task_type: str
    goal: str | None
    labels: Mapping[str, str]
    policy: str


class Ask(Struct, frozen=True, dict=True):
    """One call as the guards before the queue see it.

    `arguments` are as they would be dispatched (given + bound); `given` is what the caller sent. `tool` is None if no
    upstream has it; `away` then says why its upstream doesn't answer.
    """

    request: CallRequest
    principal: Principal
    run: RunFacts
    tool: Tool | None
    effect: Effect
    given: Json
    arguments: Json
    away: str | None = None

    @property
    def facts(self) -> dict[str, Json]:
        """The variables of CEL: args, tool, run, principal. Made once; `cached_property` would take a lock for it."""
        made = self.__dict__.get("_facts")
        if made is None:
            made = self.__dict__["_facts"] = self._made_facts()
        return made

    def _made_facts(self) -> dict[str, Json]:
        principal, run = self.principal, self.run
        return {
            "args": self.arguments,
            "tool": {"name": self.request.tool, "upstream": self.request.tool.partition(".")[0]},
            "run": {
                "id": run.id, "task_type": run.task_type, "goal": run.goal or "", "labels": dict(run.labels), "policy": run.policy
            },
            "principal": {"id": principal.id, "groups": sorted(principal.groups), "claims": dict(principal.claims)},
        }  # fmt: skip


class Bid(Struct, frozen=True):
    """What a call, or a new turn (`tool` is then ""), would take, inside the ledger's step, with the tree's state as it is now.

    `amounts` are what it would set aside (nothing for a call whose amounts were set aside when it was held). `holds`: it would be held, not
    dispatched. `poll`: the rule exempts it from loops. `again`: another attempt of a call that has its place in its turn and in flight.
    """

    tree: Tree
    run: str
    turn: int
    now: int
    amounts: Amounts
    tool: str = ""
    fingerprint: str = ""
    effect: Effect = Effect.READ_ONLY
    holds: bool = False
    poll: bool = False
    again: bool = False


@dataclasses.dataclass(frozen=True)
class Section:
    """A guard's own parts of one document, with what it needs to build itself.

    `data` maps home (`top`, `run`, `defaults`, `rule`) to plain data, `pointer` to its JSON pointer; `rule` is absent for guards built once a
    document. `report(pointer, message)` collects mistakes; `shape(schema, pointer)`, `condition(text, variables, pointer)` and
    `value(text, variables, pointer)` compile and report by themselves (then they return None).
    """

    data: Mapping[str, Mapping[str, Any]]
    pointer: Mapping[str, str]
    effect: Effect
    where: str
    digest: str
    report: Callable[[str, str], None]
    shape: Callable[[Mapping[str, Any], str], Shape | None]
    condition: Callable[[str, frozenset[str], str], Condition | None]
    value: Callable[[str, frozenset[str], str], Value | None]
    kind: str = "policy"
    """`policy` or `ceiling`."""


@dataclasses.dataclass(frozen=True)
class Guard:
    """Base of all guards; a subclass overrides what its stage uses.

    `schema`: home -> {property: JSON Schema}; homes are `top`, `run`, `defaults`, `rule`. `per_rule`: built once for each rule (else once
    a document).
    """

    kind: ClassVar[str]
    stage: ClassVar[Stage]
    shadowable: ClassVar[bool] = True
    """May a rule name it in `shadow`? A finding whose reason is binding denies even then."""
    schema: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    per_rule: ClassVar[bool] = True
    start: ClassVar[Any] = None
    """LIMIT only: the guard's little state before any event."""
    folds: ClassVar[Mapping[type[Event], Fold]] = {}
    """LIMIT only: kind of event -> what it makes of that state."""
    tree: ClassVar[bool] = False
    """LIMIT only: events of a run fold into its ancestors' state too (purses)."""

    @classmethod
    def build(cls, section: Section) -> Self | None:
        """The guard for this rule or document; None when it has nothing to say there."""
        raise NotImplementedError

    @property
    def binding(self) -> bool:
        """SHAPE: has it arguments to inject?"""
        return False

    def bind(self, ask: Ask) -> Mapping[str, Json]:
        """SHAPE only: arguments injected before any check; raises ConditionFault."""
        return {}

    def check(self, ask: Ask) -> Sequence[Finding]:
        """SCOPE, SHAPE, AUTHORITY: what is wrong, judged by facts fixed at opening and the arguments."""
        return ()

    def require(self, ask: Ask) -> Requirement | None:
        """CONSENT: the people this rule demands for this call; raises ConditionFault."""
        return None

    def limit(self, bid: Bid) -> Sequence[Finding]:
        """LIMIT: what would be exceeded, judged by the run tree's state inside the step."""
        return ()

    @property
    def inspects(self) -> bool:
        """RESULT: does it look into a result? Then nobody may see one that it hasn't seen."""
        return False

    @property
    def read_bytes(self) -> int | None:
        """RESULT: how much of an answer is worth reading; None: it doesn't care."""
        return None

    def review(self, result: Mapping[str, Json]) -> tuple[Mapping[str, Json], Finding | None]:
        """RESULT: the result as it may be recorded and seen, and what was wrong with it."""
        return result, None


@dataclasses.dataclass(frozen=True)
class Placed:
    """A guard where a rule put it. `where` is `file:line`; `shadow`: it judges and is recorded, but doesn't enforce.

    `skipped`: its rule has `mode: shadow`, so nothing of it applies, neither what it would inject nor whom it would ask.
    """

    guard: Guard
    where: str
    shadow: bool = False
    skipped: bool = False

    def enforces(self, code: str) -> bool:
        """Does a finding with this reason deny, or is it only recorded?"""
        return not self.skipped and (not self.shadow or reason(code).binding)

