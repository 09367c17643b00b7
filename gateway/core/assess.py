"""The ladder before the queue: SCOPE → SHAPE → AUTHORITY, and which people CONSENT demands. Pure; on the caller's task.

All guards of a stage speak; a denial ends the ladder after its stage. A guard that raises is a denial; a shadowed guard is only recorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.canonical import canonical, fingerprint
from gateway.core.guards.approval import asks
from gateway.core.guards.guard import Ask, ConditionFault, Guard, Placed, RunFacts, Stage
from gateway.core.guards.result import kept_aside
from gateway.core.model import CallRequest, Finding, Json, Outcome, Principal, Requirement, Tool
from gateway.core.policy import PolicySet, ToolRule

S = TypeVar("S")

LADDER = (Stage.SCOPE, Stage.SHAPE, Stage.AUTHORITY)


class Assessment(Struct, frozen=True):
    """What was found before the queue; immutable. `arguments` as dispatched (before any key goes in); `findings` deny."""

    policy_digest: str
    rule: ToolRule
    tool: Tool | None
    arguments: Json
    fingerprint: str
    findings: tuple[Finding, ...]
    shadowed: tuple[Finding, ...]
    requirements: tuple[Requirement, ...]
    repeat: Requirement | None
    """What a deliberate repeat of a non_idempotent call needs, whatever the rule's own gate says."""
    show: str


def assess(
    policies: PolicySet, request: CallRequest, principal: Principal, run: RunFacts, tool: Tool | None, away: str | None = None
) -> Assessment:
    """Judge one call by facts fixed when the run opened. Never raises for what a caller sent. `away`: why the tool's upstream is missing."""
    rule = policies.rule_for(request.tool)
    found = _Found()
    ask, unbound = _bound(Ask(request, principal, run, tool, rule.effect, request.arguments, request.arguments, away), rule)
    for stage in LADDER:
        if stage is Stage.SHAPE:
            found.enforced.extend(unbound)
        for place in rule.stages[stage]:
            if findings := attempt(place, place.guard.check, ask):
                found.hear(place, findings)
        if found.enforced:
            break
    consent = () if found.enforced else rule.stages[Stage.CONSENT]
    requirements = [requirement for place in consent if (requirement := found.consent(place, ask))]
    return Assessment(
        policies.digest, rule, tool, ask.arguments, _fingerprint(rule, request.tool, ask.arguments), _once(found.enforced), _once(found.shadowed),
        tuple(requirements), rule.repeat, _show(requirements, ask),
    )  # fmt: skip


def _once(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(findings)) if findings else ()


class _Found:
    """Findings as they come, enforced or only recorded."""

    def __init__(self) -> None:
        self.enforced: list[Finding] = []
        self.shadowed: list[Finding] = []

    def hear(self, place: Placed, findings: Sequence[Finding]) -> None:
        for finding in findings:
            (self.enforced if place.enforces(finding.reason) else self.shadowed).append(finding)

    def consent(self, place: Placed, ask: Ask) -> Requirement | None:
        """A requirement can't be shadowed away (DESIGN §6), only that of a skipped rule is; one that can't be judged denies."""
        wanted: list[Requirement | None] = []

        def judge(ask: Ask) -> Sequence[Finding]:
            wanted.append(place.guard.require(ask))
            return ()

        failed = attempt(place, judge, ask)
        if not place.skipped:
            self.enforced.extend(failed)
            return wanted[0] if wanted else None
        self.shadowed.extend(failed or [asks("People would be asked.", place.where) for requirement in wanted if requirement is not None])
        return None


def attempt(place: Placed, judge: Callable[[S], Sequence[Finding]], subject: S) -> Sequence[Finding]:
    """A guard's findings with their place; a guard that can't judge denies."""
    try:
        findings = judge(subject)
        return [replace(finding, rule=place.where) for finding in findings] if findings else ()
    except ConditionFault as fault:
        message = f"The rule's condition can't be evaluated on these arguments: {fault}"
        return (Finding(place.guard.kind, "condition.failed", message, place.where),)
    except Exception as fault:  # noqa: BLE001  a broken guard must deny (P16), whatever it raises
        return (broken(place.guard.kind, f"The guard {place.guard.kind!r} failed ({type(fault).__name__}).", place.where),)


def broken(guard: str, message: str, rule: str = "") -> Finding:
    """What can't be judged is denied (P16)."""
    return Finding(guard, "guard.failed", message, rule)


def _bound(ask: Ask, rule: ToolRule) -> tuple[Ask, list[Finding]]:
    """What is injected goes in before the ladder: what is asked has one fingerprint, however far it climbs."""
    if not rule.binding or not isinstance(ask.given, dict):
        return ask, []
    extra: dict[str, Json] = {}

    def bind(guard: Guard) -> Sequence[Finding]:
        extra.update(guard.bind(ask))
        return ()

    failed = [finding for place in rule.binding for finding in attempt(place, bind, place.guard)]
    return (replace(ask, arguments={**ask.given, **extra}) if extra else ask), failed


def _fingerprint(rule: ToolRule, tool: str, arguments: Json) -> str:
    if not isinstance(arguments, dict):
        return fingerprint(tool, None)
    picked = rule.idempotency.key_from
    return fingerprint(tool, {name: arguments[name] for name in picked if name in arguments} if picked else arguments)


_FIELD = re.compile(r"\{(args(?:\.[A-Za-z_][A-Za-z0-9_]*)+)\}")


def _show(requirements: list[Requirement], ask: Ask) -> str:
    """The approver's sentence: the first requirement's template filled in, else the tool's name. Foreign text is made safe where it is shown."""
    template = next((r.show for r in requirements if r.show), None)
    return ask.request.tool if template is None else _FIELD.sub(lambda m: _value(m[1], ask.arguments), template)


def _value(path: str, arguments: Json) -> str:
    value = arguments
    for name in path.split(".")[1:]:
        if not isinstance(value, Mapping) or name not in value:
            return "(absent)"
        value = value[name]
    return (value if isinstance(value, str) else canonical(value).decode())[:200]


def review(rule: ToolRule, outcome: Outcome) -> Outcome:
    """RESULT: what of an answer may be recorded and seen. A guard that raises, or objects, replaces the result by a readable note; one that
    is only too long, and that no guard has to look into, is kept whole beside it."""
    if outcome.result is None:
        return outcome
    result, reason, state = outcome.result, outcome.reason, outcome.state
    for place in rule.stages[Stage.RESULT]:
        try:
            after, finding = place.guard.review(result)
        except Exception as fault:  # noqa: BLE001  an unreviewed result must not pass (P16)
            note = f"The tool ran, but its result could not be reviewed ({type(fault).__name__}); it was dropped."
            after, finding = {"content": [{"type": "text", "text": note}], "isError": True}, broken(place.guard.kind, note, place.where)
        if not place.shadow:
            result = after
            if finding is not None:
                reason, state = finding.reason, "failed" if state == "succeeded" else state
    if reason == "result.too_large" and not any(place.guard.inspects and not place.shadow for place in rule.stages[Stage.RESULT]):
        return replace(outcome, result=kept_aside(outcome.result), reason=reason, whole=outcome.result)
    same = result is outcome.result and reason == outcome.reason and state == outcome.state
    return outcome if same else replace(outcome, result=result, reason=reason, state=state)
