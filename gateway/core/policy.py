"""The compiled policy: what `policy/compile` makes of YAML and the core obeys. Frozen; its digest is what a run pins.

A `PolicySet` is one policy plus the ceilings that match the same run. `rule_for(tool)` merges the rules that speak about a tool:
the policy's first match, and each ceiling's; the strictest wins. No rule means the rule that denies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

from gateway.core.guards.guard import Condition, Guard, Placed, Stage, Value
from gateway.core.model import Effect, Finding, Limits, Principal, Requirement

_EFFECTS = list(Effect)
_REMEMBERED = 2_000
MOST_READ = 64 * 1024 * 1024


@dataclass(frozen=True)
class Retry:
    """`attempts` counts all tries; waits double from `backoff_ms`."""

    attempts: int = 1
    backoff_ms: int = 200


@dataclass(frozen=True)
class Idempotency:
    """How a key is made and sent. `send_as`: ("header", name), ("header_quoted", name), ("argument", name), ("meta", name) or None."""

    key_from: tuple[str, ...] = ()
    send_as: tuple[str, str] | None = None
    on_error: str = "keep"
    not_applied_statuses: frozenset[int] = frozenset()
    not_applied_if: Condition | None = None


@dataclass(frozen=True)
class Probe:
    """How to find out what became of a call in doubt: a read, its arguments over `args`, and what its `result` means."""

    tool: str
    arguments: tuple[tuple[str, Value], ...]
    happened_if: Condition
    absent_if: Condition
    after_ms: int = 60_000


@dataclass(frozen=True)
class ToolRule:
    """One rule, or several merged. `tool` is a pattern (`crm.get_*`); `where` is `file:line`; `guards` in no meaningful order."""

    tool: str
    where: str
    digest: str
    effect: Effect
    guards: tuple[Placed, ...]
    timeout_ms: int = 30_000
    min_time_ms: int = 0
    retry: Retry = Retry()
    idempotency: Idempotency = Idempotency()
    upstream_key_ttl_ms: int = 86_400_000
    usd_micros: int = 0
    probe: Probe | None = None
    poll: bool = False
    shadow: frozenset[str] = frozenset()
    """Guards of the document that only record this rule's calls; the rule's own say so themselves."""
    shadow_mode: bool = False
    listed: bool = True
    listed_as: str | None = None
    """The short name of its tool, `*` for the tool's own (`core.naming`); None: the prefixed one."""
    stages: Mapping[Stage, tuple[Placed, ...]] = field(init=False, repr=False, compare=False)
    binding: tuple[Placed, ...] = field(init=False, repr=False, compare=False)
    """The guards that inject arguments."""
    repeat: Requirement | None = field(init=False, repr=False, compare=False)
    """Whom a deliberate repeat waits for, whatever the rule's own gate says."""
    read_bytes: int = field(init=False, repr=False, compare=False)
    """How much of an answer is read at all."""

    def __post_init__(self) -> None:
        stages = {stage: tuple(p for p in self.guards if p.guard.stage is stage) for stage in Stage}
        object.__setattr__(self, "stages", stages)
        object.__setattr__(self, "binding", tuple(p for p in stages[Stage.SHAPE] if p.guard.binding and not p.skipped))
        always = [getattr(place.guard, "always", None) for place in stages[Stage.CONSENT] if not place.skipped]
        object.__setattr__(self, "repeat", next((requirement for requirement in always if requirement is not None), None))
        wanted = [place.guard.read_bytes for place in stages[Stage.RESULT] if not place.shadow]
        object.__setattr__(self, "read_bytes", min([one for one in wanted if one is not None] + [MOST_READ]))

    def speaks_about(self, tool: str) -> bool:
        return fnmatchcase(tool, self.tool)


@dataclass(frozen=True)
class Match:
    """Which runs a document is for; empty means any."""

    principals: frozenset[str] = frozenset()
    task_types: frozenset[str] = frozenset()

    def fits(self, principal: Principal, task_type: str) -> bool:
        if self.task_types and task_type not in self.task_types:
            return False
        return not self.principals or principal.matches(self.principals)


@dataclass(frozen=True)
class Listing:
    """What listed definitions say of the policy: each tool's effect in its annotations, the run's budget in its description."""

    effect: bool = True
    budget: bool = False


@dataclass(frozen=True)
class Policy:
    """One document. `guards` are those built once a document (turns, budgets, loops); `deny` is what an unnamed tool meets."""

    name: str
    file: str
    digest: str
    kind: str
    priority: int
    apply: str
    match: Match
    limits: Limits
    rules: tuple[ToolRule, ...]
    guards: tuple[Placed, ...]
    deny: ToolRule
    description: str = ""
    listing: Listing = Listing()


@dataclass(frozen=True)
class PolicySet:
    """What governs one run."""

    digest: str
    policy: Policy
    ceilings: tuple[Policy, ...] = ()
    _rules: dict[str, ToolRule] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def limits(self) -> Limits:
        """The strictest of the policy's and the ceilings' caps."""
        return reduce(stricter, (ceiling.limits for ceiling in self.ceilings), self.policy.limits)

    def rule_for(self, tool: str) -> ToolRule:
        """The merged rule for a tool's name; remembered, since a set never changes. Names come from models, so not all are."""
        rule = self._rules.get(tool)
        if rule is None:
            if len(self._rules) >= _REMEMBERED:
                self._rules.clear()
            rule = self._rules[tool] = self._merge(tool)
        return rule

    def _merge(self, tool: str) -> ToolRule:
        rules: list[ToolRule] = []
        documents: list[Placed] = []
        skipped: list[Placed] = []
        for document in (self.policy, *self.ceilings):
            rule, passed = _first(document, tool)
            if rule is None and document is self.policy:
                return document.deny
            rules += [rule] if rule is not None else []
            documents += [replace(p, shadow=rule is not None and p.guard.kind in rule.shadow) for p in document.guards]
            skipped += [replace(p, shadow=True, skipped=True) for one in passed for p in one.guards]
        merged = reduce(_merged, rules)
        return replace(merged, guards=(*merged.guards, *_once(documents), *skipped))


def _once(documents: list[Placed]) -> tuple[Placed, ...]:
    """Equal guards judge alike: of those, one that enforces stands for all, so that a policy can't shadow away a ceiling's."""
    kept: dict[Guard, Placed] = {}
    for place in sorted(documents, key=lambda place: place.shadow):
        kept.setdefault(place.guard, place)
    return tuple(kept.values())


def _first(policy: Policy, tool: str) -> tuple[ToolRule | None, list[ToolRule]]:
    """The first enforcing rule for a tool, and the shadow rules met on the way."""
    shadows: list[ToolRule] = []
    for rule in policy.rules:
        if rule.speaks_about(tool):
            if not rule.shadow_mode:
                return rule, shadows
            shadows.append(rule)
    return None, shadows


def _merged(one: ToolRule, two: ToolRule) -> ToolRule:
    """`one` (the policy's) under `two` (a ceiling's): the stricter of each."""
    return replace(
        one,
        digest=f"{one.digest}+{two.digest}",
        effect=max(one.effect, two.effect, key=_EFFECTS.index),
        guards=one.guards + two.guards,
        timeout_ms=min(one.timeout_ms, two.timeout_ms),
        min_time_ms=max(one.min_time_ms, two.min_time_ms),
        retry=min(one.retry, two.retry, key=lambda retry: retry.attempts),
        upstream_key_ttl_ms=min(one.upstream_key_ttl_ms, two.upstream_key_ttl_ms),
        usd_micros=max(one.usd_micros, two.usd_micros),
    )


def ungoverned(principal: Principal, task_type: str, named: str | None) -> Finding:
    """No policy (of that name) governs this principal's runs of this task type."""
    which = f" named {named!r}" if named else ""
    return Finding("policy", "policy.none", f"No policy{which} matches principal {principal.id!r} with task type {task_type!r}.")


def stricter(one: Limits, two: Limits) -> Limits:
    """Field by field the lower cap; closing and requiring add up, pausing needs both."""
    lower: dict[str, Any] = {}
    for name in Limits.__struct_fields__:
        a, b = getattr(one, name), getattr(two, name)
        if name == "close_on":
            lower[name] = tuple(sorted({*a, *b}))
        elif isinstance(a, bool):
            lower[name] = (a or b) if name == "require_turns" else (a and b)
        else:
            lower[name] = min((x for x in (a, b) if x is not None), default=None)
    return Limits(**lower)
