"""authorize: `allow_if`, a CEL condition over the arguments and facts fixed when the run opened. False denies; it never falls through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gateway.core.guards.guard import Ask, Condition, Guard, Section, Stage
from gateway.core.model import Finding

CALL_VARIABLES = frozenset({"args", "tool", "run", "principal"})


@dataclass(frozen=True)
class Authorize(Guard):
    kind: ClassVar[str] = "authorize"
    stage: ClassVar[Stage] = Stage.AUTHORITY
    schema: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "rule": {"allow_if": {"type": "string", "minLength": 1, "description": "CEL over args, tool, run, principal; false denies"}}
    }

    text: str
    condition: Condition

    @classmethod
    def build(cls, section: Section) -> Self | None:
        text = section.data["rule"].get("allow_if")
        if text is None:
            return None
        condition = section.condition(text, CALL_VARIABLES, f"{section.pointer['rule']}/allow_if")
        return cls(text, condition) if condition is not None else None

    def check(self, ask: Ask) -> Sequence[Finding]:
        if self.condition(ask.facts):
            return ()
        return (Finding(self.kind, "authorization.denied", f"{ask.request.tool!r} is allowed only if {self.text}"),)
