"""Which tools a run may see, and how: a rule (not in shadow) names it, its schema can be enforced, injected arguments are hidden."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.core.guards.arguments import Arguments
from gateway.core.guards.guard import Stage
from gateway.core.model import Json, Tool
from gateway.core.policy import PolicySet, ToolRule
from gateway.engine.api import ListedTool


def listed(tools: Iterable[Tool], policies: PolicySet) -> list[ListedTool]:
    """By name. Conditions aren't evaluated for listing."""
    found = []
    for tool in sorted(tools, key=lambda one: one.name):
        rule = policies.rule_for(tool.name)
        if rule is not policies.policy.deny and tool.unsupported is None:
            found.append(ListedTool(tool, _definition(tool, rule), rule.effect))
    return found


def _definition(tool: Tool, rule: ToolRule) -> Mapping[str, Json]:
    hidden = {name for place in rule.stages[Stage.SHAPE] if isinstance(place.guard, Arguments) for name in place.guard.hidden}
    schema = tool.definition.get("inputSchema")
    if not hidden or not isinstance(schema, dict):
        return tool.definition
    return {**tool.definition, "inputSchema": _without(schema, hidden)}


def _without(schema: dict[str, Any], hidden: set[str]) -> dict[str, Any]:
    clean = dict(schema)
    if isinstance(schema.get("properties"), dict):
        clean["properties"] = {name: part for name, part in schema["properties"].items() if name not in hidden}
    if isinstance(schema.get("required"), list):
        clean["required"] = [name for name in schema["required"] if name not in hidden]
    return clean
