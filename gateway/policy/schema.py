"""The JSON Schema of a policy file: the guards' own sections, and the keys that belong to no guard. For editors and for the first check.

A `description` follows "wanted" or "is not" in a mistake. What a schema can't say, `compile` checks.
"""

from __future__ import annotations

from typing import Any

from gateway.core.guards import GUARDS
from gateway.core.guards.approval import NAMES
from gateway.core.model import Effect
from gateway.core.naming import SHORT
from gateway.core.units import DURATION, SPAN, USD

SHADOWABLE = tuple(guard.kind for guard in GUARDS if guard.shadowable)
"""Guards that a rule's `shadow` may name: those with a reason that needn't bind."""

MOST_ATTEMPTS = 10
_CEL = {"type": "string", "minLength": 1}
_NAME = {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$", "description": "a name: lower-case letters, digits, - and _, at most 64"}
_HEADER = {"type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", "description": "the name of a header"}
_PATTERN = {
    "type": "string",
    "pattern": r"^(?=.*[.*])[A-Za-z0-9_./*-]{1,200}$",
    "description": "a tool's full name, such as crm.get_order; * stands for any characters, as in crm.get_*",
}


def document_schema() -> dict[str, Any]:
    """The schema of one policy or ceiling file."""
    top = {
        "version": {"const": 1, "description": "1, the version of this language"},
        "name": _NAME,
        "description": _text("a text: what the policy is for"),
        "kind": {"enum": ["policy", "ceiling"], "description": "policy (default), or ceiling: caps on top of whatever policy governs a run"},
        "priority": {"type": "integer", "description": "a whole number; of the policies that match, the highest governs (0)"},
        "apply": {"enum": ["new_runs", "at_once"], "description": "when a change counts: new_runs (policies), at_once (ceilings)"},
        "match": _mapping(
            "a mapping: which runs the file is for; absent: any",
            {
                "principals": {**NAMES, "description": "a list of principals and groups"},
                "task_types": _list({"type": "string", "minLength": 1}, "a list of task types"),
            },
        ),
        "listing": _mapping(
            "a mapping: what listed tools say beside their definitions",
            {
                "effect": {"type": "boolean", "description": "true: readOnlyHint and idempotentHint are as the rules' effects say (true)"},
                "budget": {"type": "boolean", "description": "true: descriptions end with the tool calls that are left (false)"},
            },
        ),
        "run": _mapping("a mapping: what bounds a run", _home("run")),
        "defaults": _mapping("a mapping: what rules don't say", {"timeout": _timeout(), **_home("defaults")}),
        "tools": {"type": "array", "items": _rule(), "description": "a list of rules; the first that matches a tool wins, no rule denies"},
        **_home("top"),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Policy of a tool-call gateway",
        "type": "object",
        "properties": top,
        "required": ["version", "name"],
        "additionalProperties": False,
    }


def _home(home: str) -> dict[str, Any]:
    """What the guards say about one place in the document."""
    return {name: schema for guard in GUARDS for name, schema in guard.schema.get(home, {}).items()}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _list(items: dict[str, Any], description: str) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "uniqueItems": True, "items": items, "description": description}


def _mapping(description: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "description": description, "properties": properties, "required": list(required), "additionalProperties": False}


def _timeout() -> dict[str, Any]:
    return {**SPAN, "description": "a duration: the most that one attempt may take (30s)"}


def _rule() -> dict[str, Any]:
    own = {
        "tool": _PATTERN,
        "as": {
            "type": "string",
            "pattern": rf"^(\*|{SHORT})$",
            "description": 'a short name to list it under: letters, digits, - and _, without __, at most 64; or "*", its own name',
        },
        "description": _text("a text: why the rule is there"),
        "effect": {"enum": [str(effect) for effect in Effect], "description": "what a repeat does to the world (non_idempotent)"},
        "timeout": _timeout(),
        "min_time": {**DURATION, "description": "a duration: a write with less time left isn't started, such as 2s (0s)"},
        "retry": _mapping(
            "a mapping: tries of one call where they are safe",
            {
                "attempts": {"type": "integer", "minimum": 1, "maximum": MOST_ATTEMPTS, "description": "how often it is tried in all (1)"},
                "backoff": {**DURATION, "description": "a duration: the first wait, doubled each time, such as 200ms (200ms)"},
            },
        ),
        "idempotency": _idempotency(),
        "upstream_key_ttl": {**SPAN, "description": "a duration: how long the upstream remembers keys (24h)"},
        "price": _mapping("a mapping: what one attempt costs", {"cost_usd": USD}, "cost_usd"),
        "poll": {"type": "boolean", "description": "true: a read that is made again and again until its result changes is no loop"},
        "mode": {"enum": ["enforce", "shadow"], "description": "enforce (default), or shadow: recorded and skipped, matching goes on"},
        "shadow": _list({"enum": list(SHADOWABLE)}, "a list of guards that only record the calls of this rule"),
        "probe": _probe(),
    }
    return _mapping("a mapping: one rule", {**own, **_home("rule")}, "tool")


def _idempotency() -> dict[str, Any]:
    name = {"type": "string", "minLength": 1}
    send_as = _mapping(
        "a mapping of one place: header, argument or meta",
        {
            "header": _HEADER,
            "argument": {**name, "description": "the name of an argument, then hidden from the listed schema"},
            "meta": {**name, "description": "the name of a member of MCP's _meta"},
            "quoted": {"type": "boolean", "description": "true: the header's value stands in double quotes (false)"},
        },
    )
    status = {"type": "integer", "minimum": 400, "maximum": 599}
    return _mapping(
        "a mapping: how a write's key is made, sent, and freed",
        {
            "key_from": _list(name, "a list of the arguments that identify the call; absent: all"),
            "send_as": send_as,
            "on_error": {"enum": ["keep", "retry"], "description": "what a repeat of a failed write gets: its record (keep), or a new try"},
            "not_applied_on": _list({"anyOf": [status, _CEL]}, "a list of statuses and CEL over result that mean: nothing was done"),
        },
    )


def _probe() -> dict[str, Any]:
    arguments = {"type": "object", "additionalProperties": _CEL, "description": "a mapping of argument to CEL over args"}
    return _mapping(
        "a mapping: a read that finds out what became of a call in doubt",
        {
            "tool": {**_PATTERN, "pattern": r"^[A-Za-z0-9_./-]+\.[A-Za-z0-9_./-]+$", "description": "a tool's full name"},
            "arguments": arguments,
            "happened_if": {**_CEL, "description": "CEL over result: the call did happen"},
            "absent_if": {**_CEL, "description": "CEL over result: the call did not happen"},
            "after": {**SPAN, "description": "a duration to wait before asking (60s)"},
        },
        "tool", "happened_if", "absent_if",
    )  # fmt: skip
