"""What `gateway check` says of policies that load: warnings where they may mean something else than was meant, errors where nobody can act.

What is known of the deployment comes as `Deployment`; without it only the texts are judged.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.core.guards.guard import Stage
from gateway.core.model import Json, Principal, Requirement
from gateway.core.naming import short_names
from gateway.core.policy import Policy, PolicySet, Probe, ToolRule
from gateway.policy.compile import CEILING, checked
from gateway.policy.conditions import needs_double
from gateway.policy.document import Document
from gateway.policy.store import LoadedPolicies
from gateway.source import Position, child

_SHORT = 64
_IDENTIFIER = re.compile(r"(^|_)id$|Id$")
_UNMETERED = "turns are counted only where clients declare them or models are called through the gateway; `require_turns: true` refuses others"
_GRANTS = "grants aren't given by this version"


@dataclass(frozen=True, order=True)
class Remark:
    """One thing to look at; with an error `gateway check` fails."""

    position: Position
    message: str
    is_error: bool = False

    def __str__(self) -> str:
        return f"{self.position}: {'error' if self.is_error else 'warning'}: {self.message}"


@dataclass(frozen=True)
class Deployment:
    """What `check` knows beside the policies. `tools`: full name -> definition as the upstream gives it; None: not known.

    `principals`: those with keys, with their roles; None: not known, or tokens may bring others. `bounded`: has this principal a quota?
    `files`: policies, their folder, the ledger.
    """

    tools: Mapping[str, Mapping[str, Json]] | None = None
    principals: Sequence[Principal] | None = None
    bounded: Callable[[Principal], bool] | None = None
    files: Sequence[Path] = ()


def lint(policies: LoadedPolicies, deployment: Deployment) -> list[Remark]:
    """All remarks, by place."""
    remarks: list[Remark] = [*_writable(deployment.files)]
    for policy, text in policies.documents():
        document = checked(policy.file, text.encode())
        remarks += [Remark(document.source.at(at), message, is_error) for at, message, is_error in _of_document(document, policy, deployment)]
    if deployment.bounded is not None:
        remarks += _unbounded(policies.policies, deployment.principals or (), deployment.bounded)
    return sorted(set(remarks))


Found = tuple[str, str, bool]
"""(JSON pointer, message, whether it is an error)"""


def _of_document(document: Document, policy: Policy, deployment: Deployment) -> Iterator[Found]:
    if policy.kind != CEILING and not policy.limits.require_turns:
        yield "/run", _UNMETERED, False
    if deployment.principals is not None:
        yield from ((pointer, message, False) for pointer, message in _unmatched(policy, document.data.get("match", {}), deployment.principals))
    for index, (rule, data) in enumerate(zip(policy.rules, document.data.get("tools", ()), strict=True)):
        at = child("/tools", index)
        yield from ((pointer, message, False) for pointer, message in _arithmetic(at, data))
        if isinstance(data.get("approval"), dict) and "grants" in data["approval"]:
            yield f"{at}/approval/grants", _GRANTS, False
        if deployment.principals is not None:
            yield from ((f"{at}/approval", message, True) for message in _unapprovable(rule, deployment.principals))
        if deployment.tools is not None:
            yield from ((f"{at}/{name}", message, False) for name, message in _of_tools(policy, rule, data, deployment.tools))


def _arithmetic(at: str, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for pointer, text in _expressions(at, data):
        for offset, advice in needs_double(text):
            yield pointer, f"{advice} (at character {offset + 1} of the expression)"


def _expressions(at: str, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    approval, probe = data.get("approval"), data.get("probe", {})
    single = {
        "/allow_if": data.get("allow_if"),
        "/approval/when": approval.get("when") if isinstance(approval, dict) else None,
        **{f"/probe/{name}": probe.get(name) for name in ("happened_if", "absent_if")},
        **{child("/arguments/bind", name): text for name, text in data.get("arguments", {}).get("bind", {}).items()},
        **{child("/probe/arguments", name): text for name, text in probe.get("arguments", {}).items()},
        **{child("/idempotency/not_applied_on", i): item for i, item in enumerate(data.get("idempotency", {}).get("not_applied_on", ()))},
    }
    return ((at + pointer, text) for pointer, text in single.items() if isinstance(text, str))


# ---- people -------------------------------------------------------------------------------------------------------------


def _unmatched(policy: Policy, data: Mapping[str, Any], principals: Sequence[Principal]) -> Iterator[tuple[str, str]]:
    """What of `match` fits nobody."""
    for index, name in enumerate(data.get("principals", ())):
        if not any(principal.matches(frozenset({name})) for principal in principals):
            yield child("/match/principals", index), f"no key of gateway.yaml is {name}'s"
    meant = [one for one in principals if not policy.match.principals or one.matches(policy.match.principals)] or principals
    for index, task_type in enumerate(data.get("task_types", ())):
        if not any(task_type in (one.task_types or {"interactive"}) for one in meant):
            yield child("/match/task_types", index), f"nobody whom this policy means may claim {task_type}; see `task_types` in gateway.yaml"


def _unapprovable(rule: ToolRule, principals: Sequence[Principal]) -> Iterator[str]:
    for requirement in _requirements(rule):
        able = sorted({p.id for p in principals if p.person and "approver" in p.roles and p.matches(frozenset(requirement.approvers))})
        if len(able) < requirement.quorum:
            names = f"only {', '.join(able)}" if able else "nobody"
            yield (
                f"{requirement.quorum} of {', '.join(requirement.approvers)} would have to approve, but {names} can: "
                "it takes a principal with `person: true` and the role approver"
            )


def _requirements(rule: ToolRule) -> set[Requirement]:
    guards = [place.guard for place in rule.stages[Stage.CONSENT]]
    return {found for guard in guards for found in (getattr(guard, "requirement", None), getattr(guard, "always", None)) if found is not None}


def _unbounded(policies: Iterable[Policy], principals: Iterable[Principal], bounded: Callable[[Principal], bool]) -> Iterator[Remark]:
    for principal in principals:
        governing = next((p for p in policies if not p.match.principals or principal.matches(p.match.principals)), None)
        if governing is not None and not principal.person and not bounded(principal):
            message = f"no quota bounds {principal.id}: it can open run after run; set `limits.quotas` in gateway.yaml"
            yield Remark(Position(governing.file, 1, 1), message)


# ---- tools --------------------------------------------------------------------------------------------------------------


def _of_tools(policy: Policy, rule: ToolRule, data: Mapping[str, Any], tools: Mapping[str, Mapping[str, Json]]) -> Iterator[tuple[str, str]]:
    if not any(rule.speaks_about(name) for name in tools):
        yield "tool", f"no tool of the upstreams is named {rule.tool}"
    if rule.probe is not None:
        yield from (("probe", message) for message in _of_probe(rule.probe, tools))
    prefixed = short_names(PolicySet(policy.digest, policy), tools).prefixed if rule.listed_as else {}
    for name, definition in sorted(tools.items()):
        first = next((r for r in policy.rules if r.speaks_about(name) and (not r.shadow_mode or r is rule)), None)
        if first is rule:
            if name in prefixed:
                yield "as", f"{name} keeps its prefixed name: {prefixed[name]}"
            yield from (("effect", message) for message in _disagreements(name, rule, data, definition.get("annotations")))
            yield from (("idempotency", message) for message in _free_text(name, rule, data, definition.get("inputSchema")))


def _of_probe(probe: Probe, tools: Mapping[str, Mapping[str, Json]]) -> Iterator[str]:
    definition = tools.get(probe.tool)
    if definition is None:
        yield f"no tool of the upstreams is named {probe.tool}, so calls in doubt wait for a person"
        return
    hints, schema = definition.get("annotations"), definition.get("inputSchema")
    if isinstance(hints, dict) and hints.get("readOnlyHint") is False:
        yield f"a probe only reads, but the upstream of {probe.tool} says readOnlyHint: false"
    given = {name for name, _ in probe.arguments}
    if missing := sorted(_names(schema, "required") - given):
        yield f"{probe.tool} requires {', '.join(missing)}; the probe doesn't give {'it' if len(missing) == 1 else 'them'}"
    if unknown := sorted(given - _names(schema, "properties")):
        yield f"{probe.tool} has no argument {', '.join(unknown)}"


def _names(schema: Json, key: str) -> set[str]:
    """An upstream may write anything there."""
    names = schema.get(key) if isinstance(schema, dict) else None
    return {name for name in names if isinstance(name, str)} if isinstance(names, list | dict) else set()


def _disagreements(name: str, rule: ToolRule, data: Mapping[str, Any], hints: Json) -> Iterator[str]:
    """Hints are the upstream's word only; but either they or the policy are wrong."""
    if not isinstance(hints, dict) or "effect" not in data:
        return
    said = {
        "readOnlyHint: true": hints.get("readOnlyHint") is True and rule.effect.writes,
        "readOnlyHint: false": hints.get("readOnlyHint") is False and not rule.effect.writes,
        "destructiveHint: true": hints.get("destructiveHint") is True and not rule.effect.writes,
        "idempotentHint: false": hints.get("idempotentHint") is False and rule.effect == "idempotent_write",
    }
    for hint in (hint for hint, disagrees in said.items() if disagrees):
        yield f"{name} is {rule.effect} here, but its upstream says {hint}"


def _free_text(name: str, rule: ToolRule, data: Mapping[str, Any], schema: Json) -> Iterator[str]:
    if not rule.effect.writes or rule.idempotency.key_from or not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    narrowed = data.get("arguments", {}).get("schema", {}).get("properties", {})
    bound = data.get("arguments", {}).get("bind", {})
    free = [
        field for field, one in (properties.items() if isinstance(properties, dict) else ())
        if field not in bound and _is_free(field, one) and _is_free(field, {"type": "string", **narrowed.get(field, {})})
    ]  # fmt: skip
    if free:
        yield (
            f"the key of {name} includes free text ({', '.join(free)}): a model that words it anew repeats the write; "
            "name the significant arguments in `idempotency.key_from`"
        )


def _is_free(field: str, schema: Json) -> bool:
    if not isinstance(schema, dict) or schema.get("type") != "string" or _IDENTIFIER.search(field):
        return False
    longest = schema.get("maxLength")
    return not (schema.keys() & {"enum", "const", "format", "pattern"}) and not (isinstance(longest, int) and longest <= _SHORT)


# ---- files --------------------------------------------------------------------------------------------------------------


def _writable(files: Iterable[Path]) -> Iterator[Remark]:
    for path in files:
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            message = f"others than its owner can write it (mode {stat.filemode(mode)}); an agent that could would make its own rules"
            yield Remark(Position(str(path), 1, 1), message)
