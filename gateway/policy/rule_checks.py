"""What is wrong with a rule though each of its keys is well-formed: keys that contradict each other, its effect, or its kind of file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from gateway.core.guards.approval import NEVER
from gateway.core.model import Effect
from gateway.core.naming import OWN
from gateway.core.units import duration_ms

Complaint = tuple[str, str]
"""(JSON pointer from the rule on, message)"""

DEFAULT_TIMEOUT = "30s"


@dataclass(frozen=True)
class Rule:
    """One rule as written. `effect` is None where it isn't known: a mistake, or a ceiling that says nothing of it."""

    data: Mapping[str, Any]
    defaults: Mapping[str, Any]
    effect: Effect | None
    is_ceiling: bool

    def part(self, *names: str) -> Any:
        """A mapping inside, empty where there is none."""
        found: Any = self.data
        for name in names:
            found = found.get(name, {}) if isinstance(found, dict) else {}
        return found if isinstance(found, dict) else {}


def complaints(rule: Rule) -> Iterator[Complaint]:
    """All of them, in no order."""
    for check in (_kind, _short_name, _effect, _times, _errors, _send_as, _injected, _quorum, _show, _probe):
        yield from check(rule)


def _kind(rule: Rule) -> Iterator[Complaint]:
    if not rule.is_ceiling:
        return
    for name in ("as", "idempotency", "probe", "poll"):
        if name in rule.data:
            yield f"/{name}", f"a ceiling only narrows; `{name}` belongs to the policy's own rule"
    if rule.effect is Effect.NON_IDEMPOTENT and "approval" not in rule.data:
        yield "/effect", "a ceiling that says non_idempotent also says whom the calls wait for: add `approval` (or `never`)"
    elif rule.data.get("approval") == NEVER and rule.effect is not Effect.NON_IDEMPOTENT:
        yield "/approval", "a ceiling can't lift a gate"


def _short_name(rule: Rule) -> Iterator[Complaint]:
    if rule.data.get("as", OWN) != OWN and "*" in rule.data.get("tool", ""):
        yield "/as", f"one name is for one tool, but {rule.data['tool']!r} may be several; write as: \"*\" for the own name of each"


def _effect(rule: Rule) -> Iterator[Complaint]:
    effect = rule.effect
    if effect is None:
        return
    if effect is not Effect.IDEMPOTENT_WRITE and "upstream_key_ttl" in rule.data:
        yield "/upstream_key_ttl", f"only an idempotent_write is sent again under its key; this rule is {effect}"
    if effect.writes and rule.data.get("poll"):
        yield "/poll", f"only a read_only tool can be polled; this rule is {effect}"
    for name in () if effect.writes else ("idempotency", "min_time", "probe"):
        if name in rule.data:
            yield f"/{name}", f"`{name}` is for writes; this rule is {effect}"


def _times(rule: Rule) -> Iterator[Complaint]:
    timeout = rule.data.get("timeout") or rule.defaults.get("timeout") or DEFAULT_TIMEOUT
    least = rule.data.get("min_time")
    if least and duration_ms(least) >= duration_ms(timeout):
        yield "/min_time", f"{least} is not below the timeout of {timeout}"


def _errors(rule: Rule) -> Iterator[Complaint]:
    part = rule.part("idempotency")
    if part.get("on_error") == "retry" and not part.get("not_applied_on"):
        yield "/idempotency/on_error", "`retry` needs `not_applied_on`: the statuses or conditions that mean that nothing was done"


def _send_as(rule: Rule) -> Iterator[Complaint]:
    part = rule.part("idempotency", "send_as")
    places = [name for name in ("header", "argument", "meta") if name in part]
    if "send_as" in rule.part("idempotency") and len(places) != 1:
        yield "/idempotency/send_as", f"the key goes to one place; found {' and '.join(places) or 'none'} of header, argument and meta"
    elif "quoted" in part and places != ["header"]:
        yield "/idempotency/send_as/quoted", "only a header's value can be quoted"


def _injected(rule: Rule) -> Iterator[Complaint]:
    bound = rule.part("arguments", "bind").keys()
    key = rule.part("idempotency", "send_as").get("argument")
    significant = rule.part("idempotency").get("key_from", [])
    if key in bound:
        yield f"/arguments/bind/{key}", "the key goes into this argument (`send_as`)"
    if key in significant:
        yield "/idempotency/key_from", f"{key!r} is filled with the key itself (`send_as`), so the key can't be made from it"
    if significant and bound >= set(significant):
        yield "/idempotency/key_from", "all of these are injected (`bind`), so every call of a run would share one key"
    for name in rule.part("approval").get("editable", []):
        if name in bound or name == key:
            yield "/approval/editable", f"{name!r} is injected by the gateway; nobody can edit it"


def _quorum(rule: Rule) -> Iterator[Complaint]:
    part = rule.part("approval")
    approvers: Sequence[str] = part.get("approvers") or rule.defaults.get("approvers") or ()
    quorum = part.get("quorum", 1)
    if approvers and quorum > len(approvers) and not any(name.startswith("group:") for name in approvers):
        yield "/approval/quorum", f"{quorum} approvals are wanted, but only {len(approvers)} can be given: {', '.join(approvers)}"


def _show(rule: Rule) -> Iterator[Complaint]:
    for field in re.findall(r"\{[^{}]*\}?", rule.part("approval").get("show", "")):
        if not re.fullmatch(r"\{args(\.[A-Za-z_][A-Za-z0-9_]*)+\}", field):
            yield "/approval/show", f"{field!r} is not filled in; write {{args.name}}"


def _probe(rule: Rule) -> Iterator[Complaint]:
    probe = rule.part("probe")
    if "happened_if" in probe and probe["happened_if"].strip() == probe.get("absent_if", "").strip():
        yield "/probe/absent_if", "the same as `happened_if`: no answer could ever show one and not the other"


def covers(earlier: str, later: str) -> bool:
    """Does the pattern `earlier` match every tool that `later` matches? Exact: `*` is the only wildcard, and nothing else matches a `*`."""
    return fnmatchcase(later, earlier)
