"""arguments: they must be one JSON object that satisfies the tool's own schema and the policy's; `bind` injects what the model may not choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gateway.core.guards.guard import Ask, Guard, Section, Shape, Stage, Value
from gateway.core.model import Finding, Json, Malformed

_ANY_KEY = "0" * 64
BIND_VARIABLES = frozenset({"principal", "run", "tool"})


@dataclass(frozen=True)
class Arguments(Guard):
    """`own`: also judge by the tool's own schema. `key_argument`: the gateway's key goes in there at dispatch (`send_as`)."""

    kind: ClassVar[str] = "arguments"
    stage: ClassVar[Stage] = Stage.SHAPE
    schema: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "rule": {
            "arguments": {
                "type": "object",
                "description": "a mapping: what arguments must be beyond the tool's own schema, and which are injected",
                "additionalProperties": False,
                "properties": {
                    "schema": {"type": "object", "description": "a JSON Schema that narrows the tool's own"},
                    "bind": {
                        "type": "object",
                        "description": "a mapping of argument to CEL over principal, run, tool: injected, and hidden from the listed schema",
                        "minProperties": 1,
                        "additionalProperties": {"type": "string", "minLength": 1},
                    },
                },
            }
        }
    }

    own: bool
    shape: Shape | None
    binds: tuple[tuple[str, Value], ...]
    key_argument: str | None

    @classmethod
    def build(cls, section: Section) -> Self | None:
        rule, at = section.data["rule"], section.pointer["rule"]
        part: Mapping[str, Any] = rule.get("arguments") or {}
        if section.kind == "ceiling" and not part:
            return None
        shape = section.shape(part["schema"], f"{at}/arguments/schema") if "schema" in part else None
        binds = []
        for name, text in part.get("bind", {}).items():
            value = section.value(text, BIND_VARIABLES, f"{at}/arguments/bind/{name}")
            if value is not None:
                binds.append((name, value))
        key_argument = rule.get("idempotency", {}).get("send_as", {}).get("argument")
        return cls(section.kind == "policy", shape, tuple(binds), key_argument)

    @property
    def hidden(self) -> frozenset[str]:
        """Arguments that are injected, so neither listed nor taken from the caller."""
        names = frozenset(name for name, _ in self.binds)
        return names | {self.key_argument} if self.key_argument else names

    @property
    def binding(self) -> bool:
        return bool(self.binds)

    def bind(self, ask: Ask) -> Mapping[str, Json]:
        return {name: value(ask.facts) for name, value in self.binds}

    def check(self, ask: Ask) -> Sequence[Finding]:
        given = ask.given
        if not isinstance(given, dict):
            why = given if isinstance(given, Malformed) else "they are not a JSON object"
            return (Finding(self.kind, "arguments.malformed", f"The arguments of {ask.request.tool!r} can't be read: {why}."),)
        wrong: list[Finding] = []
        if self.binds or self.key_argument:
            for name in sorted(self.hidden & given.keys()):
                wrong.append(Finding(self.kind, "arguments.bound", f"Argument {name!r} is filled in by the gateway; leave it out."))
        judged = ask.arguments if self.key_argument is None else {**ask.arguments, self.key_argument: _ANY_KEY}
        for shape in (ask.tool.shape if self.own and ask.tool is not None else None, self.shape):
            if shape is not None:
                wrong += [Finding(self.kind, "arguments.invalid", message) for message in shape(judged)]
        return wrong
