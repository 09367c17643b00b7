"""The JSON Schemas of what the REST door takes and answers: checked against, and shown in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core.reasons import REASONS

_Schema = dict[str, Any]


def fields(properties: Mapping[str, Any], *required: str) -> _Schema:
    """An object that takes these fields and no others."""
    return {"type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False}


def shown(properties: Mapping[str, Any]) -> _Schema:
    """An answered object: all of these are there, and more may come in later versions."""
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def refer(name: str) -> _Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: _Schema) -> _Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _list(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


# ---- taken --------------------------------------------------------------------------------------------------------------

NAME: _Schema = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^\\x00-\\x1f\\x7f]*$"}
NAME_OR_NULL = _or_null(NAME)
NOTE: _Schema = {"type": "string", "maxLength": 4000}
COUNT: _Schema = {"type": "integer", "minimum": 0, "maximum": 10**12}
WAIT: _Schema = {"type": "number", "minimum": 0, "maximum": 3600, "description": "Seconds to wait for people, or for another's dispatch."}
LIMIT: _Schema = {"type": "integer", "minimum": 1, "maximum": 500}
FORM: _Schema = {"enum": ["openai", "anthropic"], "type": "string", "description": "Answer as this provider's tool-result message."}
NOTHING = fields({})

OPENAI_CALL: _Schema = {
    "type": "object", "description": "An entry of Chat Completions' `tool_calls`, as it is.",
    "properties": {"type": {"enum": ["function"]}, "id": NAME, "function": {"type": "object"}}, "required": ["type"],
}  # fmt: skip
RESPONSES_CALL: _Schema = {
    "type": "object", "description": "A `function_call` item of OpenAI's Responses, as it is.",
    "properties": {"type": {"enum": ["function_call"]}, "call_id": NAME, "name": NAME}, "required": ["type"],
}  # fmt: skip
ANTHROPIC_CALL: _Schema = {
    "type": "object", "description": "Anthropic's `tool_use` block, as it is.",
    "properties": {"type": {"enum": ["tool_use"]}, "id": NAME, "name": NAME}, "required": ["type"],
}  # fmt: skip
PROVIDER_CALLS = [OPENAI_CALL, RESPONSES_CALL, ANTHROPIC_CALL]
ARGUMENTS: _Schema = {"description": "An object; whatever else is refused as `arguments.malformed`."}

# ---- answered -----------------------------------------------------------------------------------------------------------

_TEXT: _Schema = {"type": "string"}
_TEXT_OR_NULL: _Schema = {"type": ["string", "null"]}
_NUMBER_OR_NULL: _Schema = {"type": ["number", "null"]}
_INTEGER_OR_NULL: _Schema = {"type": ["integer", "null"]}
_FLAG: _Schema = {"type": "boolean"}
_TIME: _Schema = {"type": "string", "format": "date-time"}
_TIME_OR_NULL = _or_null(_TIME)
_OBJECT: _Schema = {"type": "object"}
_OBJECT_OR_NULL: _Schema = {"type": ["object", "null"]}

_BUDGET = shown(
    {
        "turns_left": {"type": ["integer", "string", "null"], "description": 'null: unlimited; "unmetered": no turn was ever declared.'},
        "final_turn": _FLAG,
        "tool_calls_left": _INTEGER_OR_NULL,
        "tokens_left": _INTEGER_OR_NULL,
        "cost_usd_left": _NUMBER_OR_NULL,
        "deadline": _TIME_OR_NULL,
        "seconds_left": _NUMBER_OR_NULL,
        "warning": _TEXT_OR_NULL,
    }
)
_RUN = shown(
    {
        "run": _TEXT,
        "status": {"enum": ["open", "frozen", "closing", "completed", "blocked", "cancelled", "failed"]},
        "reason": _TEXT_OR_NULL,
        "policy": shown({"name": _TEXT, "digest": _TEXT}),
        "budget": refer("Budget"),
        "tools": _list(_TEXT),
        "calls": {"type": "object", "additionalProperties": {"type": "integer"}, "description": "State -> how many."},
        "awaiting_approval": _FLAG,
        "run_key": _TEXT_OR_NULL,
        "task_type": _TEXT,
        "goal": _TEXT_OR_NULL,
        "labels": _OBJECT,
        "parent_run": _TEXT_OR_NULL,
        "continues": _TEXT_OR_NULL,
        "principal": _TEXT,
        "turns": {"type": "integer"},
        "opened_at": _TIME,
        "closed_at": _TIME_OR_NULL,
        "handoff": _OBJECT_OR_NULL,
    }
)
_OPENED = {**_RUN, "properties": {**_RUN["properties"], "token": _TEXT}, "required": [*_RUN["required"], "token"]}
_ASKED = {
    **shown({"call_id": _TEXT, "tool": _TEXT, "call": _TEXT_OR_NULL, "status": _TEXT, "synthetic": _FLAG, "result": _OBJECT_OR_NULL}),
    "description": "With `?format=` also `message`, the result as that provider's message.",
}
_TURN = shown(
    {
        "turn": {"type": "integer"},
        "status": {"enum": ["open", "answered", "completed", "cancelled", "failed"]},
        "digest": _TEXT_OR_NULL,
        "opened_at": _TIME,
        "closed_at": _TIME_OR_NULL,
        "calls": _list(_ASKED),
        "budget": refer("Budget"),
    }
)
_COMPLETED = shown(
    {
        "call": _TEXT,
        "status": {"enum": ["succeeded", "failed"]},
        "reason": _TEXT_OR_NULL,
        "replayed": _FLAG,
        "message": _TEXT_OR_NULL,
        "differences": _OBJECT_OR_NULL,
        "result": _OBJECT,
        "budget": refer("Budget"),
    }
)
_HELD = shown(
    {
        "call": _TEXT,
        "status": {"enum": ["held", "ready"]},
        "reason": _TEXT,
        "hold": shown({"hold": _TEXT, "url": _TEXT, "expires_at": _TIME}),
        "message": _TEXT,
        "budget": refer("Budget"),
    }
)
_HOLD = shown(
    {
        "hold": _TEXT,
        "status": {"enum": ["held", "approved", "denied", "expired", "consumed", "void", "cancelled"]},
        "reason": _TEXT_OR_NULL,
        "digest": _TEXT,
        "run": _TEXT,
        "call": _TEXT,
        "tool": _TEXT,
        "effect": _TEXT,
        "arguments": _OBJECT_OR_NULL,
        "show": _TEXT,
        "rule": _TEXT_OR_NULL,
        "principal": _TEXT,
        "goal": _TEXT_OR_NULL,
        "requirements": _list(shown({"rule": _TEXT, "approvers": _list(_TEXT), "quorum": {"type": "integer"}, "met": _FLAG})),
        "votes": _list(shown({"by": _TEXT, "vote": _TEXT, "at": _TIME, "note": _TEXT})),
        "editable": _list(_TEXT),
        "held_at": _TIME,
        "expires_at": _TIME,
        "execute_by": _TIME_OR_NULL,
        "ended_by": _TEXT_OR_NULL,
        "note": _TEXT,
    }
)
_RECONCILED = shown(
    {
        "call": _TEXT,
        "run": _TEXT,
        "tool": _TEXT,
        "status": {"enum": ["succeeded", "failed", "admitted", "abandoned"]},
        "reason": _TEXT_OR_NULL,
        "attempt": {"type": "integer"},
        "message": _TEXT,
    }
)
_PROBLEM = shown(
    {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "reason": {"enum": sorted(REASONS)},
        "detail": _TEXT,
        "findings": _list(shown({"guard": _TEXT, "reason": _TEXT, "message": _TEXT, "rule": _TEXT})),
        "retryable": _FLAG,
        "hint": _TEXT,
        "call": _TEXT_OR_NULL,
        "budget": {"oneOf": [refer("Budget"), {"type": "null"}]},
    }
)
_DEFINITION = shown(
    {
        "tool": _TEXT,
        "state": {"enum": ["accepted", "changed", "new", "unsupported", "away"], "description": "All but the first are held back or away."},
        "note": {**_TEXT_OR_NULL, "description": "Why it is held back."},
        "digest": {**_TEXT_OR_NULL, "description": "Of the definition as its upstream gives it now; what accepting has to name."},
        "accepted": _or_null(shown({"digest": _TEXT, "by": _TEXT_OR_NULL, "at": _TIME})),
        "definition": {**_OBJECT_OR_NULL, "description": "Of a tool that is held back."},
        "accepted_definition": {**_OBJECT_OR_NULL, "description": "Of a changed tool: what is accepted so far."},
    }
)
_EVENT = shown({"seq": {"type": "integer"}, "event_id": _TEXT, "at": _TIME, "kind": _TEXT, "event": _OBJECT, "hash": _TEXT})
_LISTED_RUN = shown({"run": _TEXT, "principal": _TEXT, "policy": _TEXT, "state": _TEXT, "opened_at": _TIME})

COMPONENTS: dict[str, _Schema] = {
    "Budget": _BUDGET, "Run": _RUN, "OpenedRun": _OPENED, "Turn": _TURN, "CompletedCall": _COMPLETED, "HeldCall": _HELD, "Hold": _HOLD,
    "ReconciledCall": _RECONCILED,
    "Problem": _PROBLEM, "Event": _EVENT,
    "Runs": shown({"runs": _list(_LISTED_RUN), "next": _TEXT_OR_NULL}),
    "Holds": shown({"holds": _list(refer("Hold")), "next": _TEXT_OR_NULL}),
    "Events": shown({"events": _list(refer("Event")), "next": {"type": "integer"}, "budget": refer("Budget")}),
    "Definitions": shown({"tools": _list(_DEFINITION)}),
    "Tools": shown({"tools": _list(_OBJECT), "budget": refer("Budget")}),
    "ToolResultMessage": {"type": "object", "description": "The provider's own form; call, status and budget stand in the headers."},
}  # fmt: skip
