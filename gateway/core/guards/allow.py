"""allow: only tools that a rule names, that an upstream offers now as accepted, whose schema can be enforced. No rule = denied, not listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from gateway.core.guards.guard import Ask, Guard, Section, Stage
from gateway.core.model import Finding


@dataclass(frozen=True)
class Allow(Guard):
    """`permitted` is False only in the rule that stands for "no rule"."""

    kind: ClassVar[str] = "allow"
    stage: ClassVar[Stage] = Stage.SCOPE
    shadowable: ClassVar[bool] = False

    permitted: bool = True

    @classmethod
    def build(cls, section: Section) -> Self | None:
        """A ceiling allows nothing by itself, so it has nothing to say here."""
        return cls() if section.kind == "policy" else None

    def check(self, ask: Ask) -> Sequence[Finding]:
        name = ask.request.tool
        if not self.permitted:
            return (Finding(self.kind, "tool.not_allowed", f"{name!r} is not among this run's tools."),)
        if ask.tool is None:
            why = f": {ask.away}" if ask.away else ""
            return (Finding(self.kind, "tool.unknown", f"A rule allows {name!r}, but no upstream offers it now{why}."),)
        if ask.tool.unaccepted is not None:
            return (Finding(self.kind, "tool.changed", f"{name!r} is held back: {ask.tool.unaccepted}."),)
        if ask.tool.unsupported is not None:
            return (Finding(self.kind, "tool.schema_unsupported", f"{name!r} is held back: {ask.tool.unsupported}"),)
        return ()
