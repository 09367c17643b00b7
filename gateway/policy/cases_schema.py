"""The JSON Schema of a policy's tests (`*_test.yaml`): facts, and cases of *given what happened, when a call, then the verdict*."""

from __future__ import annotations

from typing import Any

from gateway.core.units import SPAN

VERDICTS = ("allow", "hold", "deny", "replay", "busy", "doubt")
BUDGET = ("turns_left", "final_turn", "tool_calls_left", "tokens_left", "cost_usd_left", "seconds_left")

_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "uniqueItems": True, "items": _TEXT}
_COUNT = {"type": "integer", "minimum": 0}


def _mapping(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": list(required), **more}


_PRINCIPAL = _mapping(
    {
        "id": {"type": "string", "pattern": r"^(?!group:)[^:\s]+:\S+$", "description": "a principal's id, such as agent:refund-bot"},
        **dict.fromkeys(("groups", "task_types", "trust", "roles"), _TEXTS),
        "claims": {"type": "object"},
        "person": {"type": "boolean"},
    },
    "id",
)
_WHO = {"anyOf": [{"type": "string", "description": "a name from `principals`"}, _PRINCIPAL]}

_OUTCOME = _mapping(
    {
        "result": {"description": "what the tool answers"},
        "error": {**_TEXT, "description": "the text of an answer with isError"},
        "status": {"type": "integer", "minimum": 100, "maximum": 599},
        "fault": {**_TEXT, "description": "no answer: timeout, refused, reset, …"},
    }
)
_CALL = {
    "tool": _TEXT,
    "arguments": {"description": "a mapping (a text stands for arguments that are no JSON)"},
    **dict.fromkeys(("turn",), _COUNT),
    **dict.fromkeys(("operation_id", "call_id"), _TEXT),
}
_USAGE = _mapping(
    {
        **dict.fromkeys(("turn", "input", "output", "cache_creation", "cache_read"), _COUNT),
        "cost_usd": {"type": "number", "minimum": 0},
        "source": {"enum": ["self_reported", "reporter"]},
    }
)
_STEP = _mapping(
    {
        "call": _mapping(_CALL, "tool", description="a mapping: a call that was made, as in `when`"),
        "outcome": {"anyOf": [{"const": "running"}, _OUTCOME], "description": "what came of the call; `running`: nothing yet (an empty result)"},
        "times": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "how often the call is made (1)"},
        "turn": {**_COUNT, "minimum": 1, "description": "the turn to open"},
        "usage": {**_USAGE, "description": "a mapping: what a turn's model call used"},
        "vote": _mapping(
            {"by": _WHO, "say": {"enum": ["approve", "deny"]}, "note": _TEXT},
            "by", "say", description="a mapping: what a person said to the latest call that waits",
        ),
        "wait": {**SPAN, "description": "a duration that passed"},
    },
    minProperties=1,
)
_THEN = _mapping(
    {
        "verdict": {"enum": list(VERDICTS), "description": "what becomes of the call"},
        "reason": {**_TEXT, "description": "the first finding's reason"},
        "findings": {**_TEXTS, "description": "a list of the reasons of all findings"},
        "shadowed": {**_TEXTS, "description": "a list of the reasons that were only recorded"},
        "approvers": {**_TEXTS, "description": "a list of all that may decide"},
        "arguments": {"type": "object", "description": "the arguments as dispatched"},
        "result": {"description": "what may be seen of the outcome"},
        "budget": _mapping(
            {name: {"description": "as in an answer's budget"} for name in BUDGET}, description="a mapping: what is left after the call"
        ),
    },
    "verdict",
)
_CASE = _mapping(
    {
        "name": _TEXT,
        "run": _mapping({"goal": _TEXT, "labels": {"type": "object", "additionalProperties": {"type": "string"}}}),
        "given": {"type": "array", "items": _STEP},
        "when": _mapping({"principal": _WHO, "task_type": _TEXT, **_CALL, "outcome": _OUTCOME}, "principal", "tool"),
        "then": _THEN,
    },
    "name", "when", "then",
)  # fmt: skip

CASES_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Tests of a gateway policy",
    **_mapping(
        {
            "policy": {**_TEXT, "description": "the name of the policy under test, or of its file"},
            "now": {**_TEXT, "description": 'a time in quotes, such as "2026-01-01T12:00:00Z"'},
            "principals": {"type": "object", "additionalProperties": _PRINCIPAL},
            "tools": {
                "type": "object", "additionalProperties": {"type": "object"},
                "description": "a mapping of full name to definition, as MCP lists it",
            },
            "cases": {"type": "array", "minItems": 1, "items": _CASE},
        },
        "policy", "cases",
    ),
}  # fmt: skip
