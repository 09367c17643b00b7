"""A policy file -> the frozen `Policy` that the core obeys, or one PolicyError with every mistake as `file:line:column: message`.

bytes -> plain data with positions -> document schema -> each guard builds itself from its sections -> rules. What a ceiling doesn't say is
filled in with what tightens nothing; what a policy doesn't say, with the defaults of the language (DESIGN §6).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from gateway.core.guards import GUARDS
from gateway.core.guards.allow import Allow
from gateway.core.guards.budgets import SAYS_NOTHING, limits_of
from gateway.core.guards.guard import Condition, Guard, Placed, Section
from gateway.core.model import Effect, Limits
from gateway.core.naming import OWN
from gateway.core.policy import Idempotency, Listing, Match, Policy, Probe, Retry, ToolRule
from gateway.core.units import duration_ms, usd_micros
from gateway.policy.document import RESULT_VARIABLES, Document
from gateway.policy.rule_checks import DEFAULT_TIMEOUT, Rule, complaints, covers
from gateway.policy.schema import MOST_ATTEMPTS, document_schema
from gateway.ports import PolicyError
from gateway.source import SourceError, child, read_and_check

CEILING = "ceiling"
_NO_CAP = "9999999999d"
_PROBE_VARIABLES = frozenset({"args"})

schema = cache(document_schema)


def compile_document(file: str, text: bytes) -> Policy:
    """`file` is the name that positions show. Raises PolicyError, one line a mistake, in file order."""
    document = checked(file, text)
    policy = _policy(document, hashlib.sha256(text).hexdigest())
    if policy is None:
        raise PolicyError("\n".join(str(mistake) for mistake in sorted(set(document.mistakes))))
    return policy


def checked(file: str, text: bytes) -> Document:
    """The file read and held against the schema. Raises PolicyError if too little of it could be read to go on."""
    try:
        return Document(*read_and_check(file, text, schema()))
    except SourceError as error:
        raise PolicyError(str(error)) from None


def _policy(document: Document, digest: str) -> Policy | None:
    """None if there is any mistake."""
    data = document.data
    kind = data.get("kind", "policy")
    if kind == CEILING and "listing" in data:
        document.report("/listing", "what is listed is the policy's to say")
    if kind == "policy" and not data.get("tools"):
        document.report("/tools", "`tools` names no rule; without one every call is denied")
    guards = tuple(_placed(document, kind))
    rules = tuple(_rules(document, kind))
    _check_probes(document)
    if document.mistakes:
        return None
    base = SAYS_NOTHING if kind == CEILING else Limits()
    match = document.part("match")
    return Policy(
        data["name"], document.source.file, digest, kind, data.get("priority", 0),
        data.get("apply", "at_once" if kind == CEILING else "new_runs"),
        Match(frozenset(match.get("principals", ())), frozenset(match.get("task_types", ()))),
        limits_of(document.part("run"), base), rules, guards, _deny(document, digest), data.get("description", ""),
        Listing(**document.part("listing")),
    )  # fmt: skip


def _deny(document: Document, digest: str) -> ToolRule:
    """What a tool meets that no rule names."""
    where = document.where("/tools")
    return ToolRule("*", where, digest, Effect.NON_IDEMPOTENT, (Placed(Allow(permitted=False), where),), listed=False)


# ---- guards -------------------------------------------------------------------------------------------------------------


def _placed(document: Document, kind: str) -> Iterable[Placed]:
    """The guards that are built once a document."""
    for guard in GUARDS:
        if not guard.per_rule:
            own = (at for at in _homes(guard, None) if at in document.source.positions)
            where = document.where(next(own, "/run" if "run" in guard.schema else ""))
            built = guard.build(_section(document, kind, Effect.NON_IDEMPOTENT, where, ""))
            if built is not None:
                yield Placed(built, where)


def _section(document: Document, kind: str, effect: Effect, where: str, digest: str, index: int | None = None) -> Section:
    data = {"top": document.data, "run": document.part("run"), "defaults": document.part("defaults")}
    pointer = {"top": "", "run": "/run", "defaults": "/defaults"}
    if index is not None:
        data["rule"] = document.data["tools"][index]
        pointer["rule"] = child("/tools", index)
    return Section(data, pointer, effect, where, digest, document.report, document.shape, document.condition, document.value, kind)


def _homes(guard: type[Guard], index: int | None) -> list[str]:
    """The pointers of what a guard reads, those of the rule left out if there is none."""
    homes = {"top": "", "run": "/run", "defaults": "/defaults", "rule": f"/tools/{index}"}
    return [child(homes[home], name) for home, names in guard.schema.items() if index is not None or home != "rule" for name in names]


# ---- rules --------------------------------------------------------------------------------------------------------------


def _rules(document: Document, kind: str) -> Iterable[ToolRule]:
    before: list[tuple[str, int]] = []
    named: dict[str, int] = {}
    for index, data in enumerate(document.data.get("tools", ())):
        if data is None:
            continue
        at = child("/tools", index)
        tool = data.get("tool", "")
        for pattern, line in before:
            if covers(pattern, tool):
                document.report(f"{at}/tool", f"no call ever comes here: {pattern!r} at line {line} matches first")
        yield _rule(document, kind, index, data)
        if data.get("mode") == "shadow":
            continue
        line = document.source.at(at).line
        before.append((tool, line))
        name = data.get("as", OWN)
        if name in named:
            document.report(f"{at}/as", f"the name {name!r} stands already at line {named[name]}")
        elif name != OWN:
            named[name] = line


def _rule(document: Document, kind: str, index: int, data: Mapping[str, Any]) -> ToolRule:
    at, is_ceiling = child("/tools", index), kind == CEILING
    where = f"{document.source.file}:{document.source.at(at).line}"
    digest = document.digest([document.data.get("name"), data, document.part("defaults")])
    known = Effect(data["effect"]) if "effect" in data else None if is_ceiling or not document.sound(f"{at}/effect") else Effect.NON_IDEMPOTENT
    for pointer, message in complaints(Rule(data, document.part("defaults"), known, is_ceiling)):
        document.report(at + pointer, message)
    effect = known or Effect.READ_ONLY
    return ToolRule(
        data.get("tool", ""), where, digest, effect, tuple(_rule_guards(document, _section(document, kind, effect, where, digest, index), index)),
        idempotency=_idempotency(document, data.get("idempotency", {}), f"{at}/idempotency"),
        usd_micros=document.converted(usd_micros, data.get("price", {}).get("cost_usd", 0), f"{at}/price/cost_usd", 0),
        probe=_probe(document, data.get("probe", {}), f"{at}/probe"), poll=data.get("poll", False), listed_as=data.get("as"),
        shadow=frozenset(data.get("shadow", ())), shadow_mode=data.get("mode") == "shadow",
        **_numbers(document, data, is_ceiling),
    )  # fmt: skip


def _rule_guards(document: Document, section: Section, index: int) -> Iterable[Placed]:
    shadow = section.data["rule"].get("shadow", ())
    for guard in GUARDS:
        if guard.per_rule and all(document.sound(at) for at in _homes(guard, None)):
            built = guard.build(section)
            if built is not None:
                yield Placed(built, section.where, guard.kind in shadow)


def _numbers(document: Document, data: Mapping[str, Any], is_ceiling: bool) -> dict[str, Any]:
    retry = data.get("retry", {})
    timeout = data.get("timeout") or document.part("defaults").get("timeout") or (_NO_CAP if is_ceiling else DEFAULT_TIMEOUT)
    return {
        "timeout_ms": duration_ms(timeout),
        "min_time_ms": duration_ms(data.get("min_time", "0s")),
        "retry": Retry(retry.get("attempts", MOST_ATTEMPTS if is_ceiling else 1), duration_ms(retry.get("backoff", "200ms"))),
        "upstream_key_ttl_ms": duration_ms(data.get("upstream_key_ttl", _NO_CAP if is_ceiling else "24h")),
    }


def _idempotency(document: Document, part: Mapping[str, Any], at: str) -> Idempotency:
    send_as = part.get("send_as", {})
    place = next((name for name in ("header", "argument", "meta") if name in send_as), None)
    named = f"{place}_quoted" if send_as.get("quoted") else place
    freed = part.get("not_applied_on", [])
    return Idempotency(
        tuple(part.get("key_from", ())), (str(named), send_as[place]) if place else None, part.get("on_error", "keep"),
        frozenset(status for status in freed if isinstance(status, int)), _any(document, freed, f"{at}/not_applied_on"),
    )  # fmt: skip


def _any(document: Document, items: list[Any], at: str) -> Condition | None:
    """One condition of the texts among the items."""
    texts = {index: item for index, item in enumerate(items) if isinstance(item, str)}
    compiled = [document.condition(text, RESULT_VARIABLES, f"{at}/{index}") for index, text in texts.items()]
    either = " || ".join(f"({text}\n)" for text in texts.values())
    return document.condition(either, RESULT_VARIABLES, at) if texts and all(compiled) else None


def _probe(document: Document, part: Mapping[str, Any], at: str) -> Probe | None:
    """None where there is none, or a mistake in it."""
    given = {name: document.value(text, _PROBE_VARIABLES, child(f"{at}/arguments", name)) for name, text in part.get("arguments", {}).items()}
    happened, absent = (
        document.condition(part[name], RESULT_VARIABLES, f"{at}/{name}") if name in part else None for name in ("happened_if", "absent_if")
    )
    arguments = tuple((name, value) for name, value in given.items() if value is not None)
    if happened is None or absent is None or "tool" not in part:
        return None
    return Probe(part["tool"], arguments, happened, absent, duration_ms(part.get("after", "60s")))


def _check_probes(document: Document) -> None:
    """What one rule asks to find out about a write must not be a write by another rule, or by the same."""
    rules = [(index, rule) for index, rule in enumerate(document.data.get("tools", ())) if rule is not None]
    for index, rule in rules:
        tool = rule.get("probe", {}).get("tool")
        first = next(((at, r) for at, r in rules if tool and r.get("mode") != "shadow" and covers(r.get("tool", ""), tool)), None)
        if first is not None and first[1].get("effect") != Effect.READ_ONLY:
            line = document.source.at(child("/tools", first[0])).line
            document.report(f"/tools/{index}/probe/tool", f"a probe only reads, and {tool} isn't read_only by the rule at line {line}")
