"""Which tools a run may see, and how: a rule (not in shadow) names it, it isn't held back, injected arguments are hidden.

Short names are worked out once for each policy set, again when the catalog changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core.guards.arguments import Arguments
from gateway.core.guards.guard import Stage
from gateway.core.model import Json, Tool
from gateway.core.naming import ShortNames, short_names
from gateway.core.policy import PolicySet, ToolRule
from gateway.engine.api import ListedTool


class Naming:
    """The short names of every policy set over the tools of now."""

    def __init__(self) -> None:
        self._tools: Sequence[Tool] = ()
        self._by_digest: dict[str, ShortNames] = {}

    def of(self, tools: Sequence[Tool], policies: PolicySet) -> ShortNames:
        """`tools`: what the catalog gives, which is the same sequence until something changes."""
        if tools is not self._tools:
            self._tools, self._by_digest = tools, {}
        found = self._by_digest.get(policies.digest)
        if found is None:
            found = self._by_digest[policies.digest] = short_names(policies, [tool.name for tool in tools if tool.usable])
        return found


def listed(tools: Sequence[Tool], policies: PolicySet, short: ShortNames) -> list[ListedTool]:
    """By name. Conditions aren't evaluated for listing."""
    found = []
    for tool in sorted(tools, key=lambda one: one.name):
        rule = policies.rule_for(tool.name)
        if rule is not policies.policy.deny and tool.usable:
            found.append(ListedTool(tool, _definition(tool, rule), rule.effect, short.names.get(tool.name)))
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
