"""approval: calls that wait for people. A non_idempotent tool is gated by `defaults.approvers` unless its rule decides otherwise.

Each rule that demands people is its own requirement and all must be met (a ceiling's beside the policy's).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gateway.core.guards.authorize import CALL_VARIABLES
from gateway.core.guards.guard import Ask, Condition, Guard, Section, Stage
from gateway.core.model import Effect, Finding, Requirement
from gateway.core.units import DURATION, SPAN, duration_ms

NEVER = "never"
NAMES = {
    "type": "array",
    "minItems": 1,
    "uniqueItems": True,
    "items": {"type": "string", "pattern": r"^[^:\s]+:\S+$", "description": "a principal or a group, such as user:mia or group:finance"},
}
_TIMES = {"expires_in": "expires_in_ms", "execute_within": "execute_within_ms", "hold_open": "hold_open_ms"}


@dataclass(frozen=True)
class Approval(Guard):
    """`always`: what a deliberate repeat needs even where the rule itself asks for nobody (None: the document names nobody)."""

    kind: ClassVar[str] = "approval"
    stage: ClassVar[Stage] = Stage.CONSENT
    shadowable: ClassVar[bool] = False
    schema: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "defaults": {"approvers": {**NAMES, "description": "a list of who decides on held calls where a rule names nobody"}},
        "rule": {
            "approval": {
                "description": "whom a call waits for: a mapping, or `never`; absent: `defaults.approvers` for non_idempotent tools, else nobody",
                "oneOf": [
                    {"const": NEVER},
                    {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "when": {"type": "string", "minLength": 1, "description": "CEL over args, tool, run, principal; absent: always held"},
                            "approvers": {**NAMES, "description": "a list of who decides; absent: defaults.approvers"},
                            "quorum": {"type": "integer", "minimum": 1, "maximum": 20, "description": "how many of them have to approve (1)"},
                            "expires_in": {**SPAN, "description": "a duration to decide in, such as 24h (24h)"},
                            "execute_within": {**SPAN, "description": "a duration to execute in once approved, such as 15m (15m)"},
                            "hold_open": {**DURATION, "description": "a duration that the caller is kept waiting, such as 20s (20s)"},
                            "editable": {
                                "type": "array", "uniqueItems": True, "items": {"type": "string"},
                                "description": "a list of arguments that an approver may change",
                            },
                            "show": {"type": "string", "maxLength": 500, "description": "what approvers read; {args.name} is filled in"},
                            "execute": {
                                "enum": ["on_repeat", "at_once"],
                                "description": "when an approved call runs: on the agent's repeat (default), or at once",
                            },
                            "grants": {
                                "type": "object", "additionalProperties": False, "required": ["max_count"],
                                "properties": {"max_count": {"type": "integer", "minimum": 1, "description": "how many at most"}},
                                "description": "a mapping: how many further calls like it one vote may allow",
                            },
                        },
                    },
                ]
            }
        },
    }

    requirement: Requirement | None
    when: Condition | None
    always: Requirement | None

    @classmethod
    def build(cls, section: Section) -> Self | None:
        part = section.data["rule"].get("approval")
        gated = section.effect is Effect.NON_IDEMPOTENT and not (part is None and section.kind == "ceiling")
        if not gated and part in (None, NEVER):
            return None
        asked = part if isinstance(part, dict) else {}
        at = f"{section.pointer['rule']}/approval"
        approvers = asked.get("approvers") or section.data["defaults"].get("approvers")
        requirement = _requirement(asked, approvers, section) if approvers else None
        if requirement is None:
            which = "a deliberate repeat of this call" if part == NEVER else "this call"
            section.report(at, f"{which} would wait for people, but neither its `approval` nor `defaults` names `approvers`")
        when = section.condition(asked["when"], CALL_VARIABLES, f"{at}/when") if "when" in asked else None
        return cls(None if part == NEVER else requirement, when, requirement)

    def require(self, ask: Ask) -> Requirement | None:
        if self.requirement is None or (self.when is not None and not self.when(ask.facts)):
            return None
        return self.requirement


def asks(message: str, rule: str = "") -> Finding:
    """People have to agree first."""
    return Finding(Approval.kind, "approval.required", message, rule)


def _requirement(asked: Mapping[str, Any], approvers: list[str], section: Section) -> Requirement:
    times = {field: duration_ms(asked[name]) for name, field in _TIMES.items() if name in asked}
    return Requirement(
        section.where, section.digest, tuple(approvers), asked.get("quorum", 1), editable=tuple(asked.get("editable", ())),
        show=asked.get("show"), execute=asked.get("execute", "on_repeat"), **times,
    )  # fmt: skip
