"""Which tools a run may see, and how: a rule (not in shadow) names it, it isn't held back, injected arguments are hidden,
the policy's own word on its effect stands in its annotations.

Short names are worked out once for each policy set, again when the catalog changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.core.guards.arguments import Arguments
from gateway.core.guards.guard import Stage
from gateway.core.model import BudgetLeft, Effect, Json, Tool
from gateway.core.naming import ShortNames, short_names
from gateway.core.policy import PolicySet, ToolRule
from gateway.engine.api import ListedTool
from gateway.ports import Catalog


class Naming:
    """The short names of every policy set over the tools of now, and over those of upstreams that were not there yet: their names are theirs."""

    def __init__(self) -> None:
        self._tools: Sequence[Tool] = ()
        self._by_digest: dict[str, ShortNames] = {}

    def of(self, catalog: Catalog, policies: PolicySet) -> ShortNames:
        tools = catalog.all()
        if tools is not self._tools:
            self._tools, self._by_digest = tools, {}
        found = self._by_digest.get(policies.digest)
        if found is None:
            away = (name for name in catalog.pins() if catalog.away(name) is not None)
            names = {*(tool.name for tool in tools if tool.usable), *away}
            found = self._by_digest[policies.digest] = short_names(policies, names)
        return found


def listed(tools: Sequence[Tool], policies: PolicySet, short: ShortNames, left: BudgetLeft | None = None) -> list[ListedTool]:
    """By name. Conditions aren't evaluated for listing. `left`: the run's, for a policy that wants it in descriptions."""
    listing = policies.policy.listing
    said = _budget(left) if listing.budget and left is not None else ""
    found = []
    for tool in sorted(tools, key=lambda one: one.name):
        rule = policies.rule_for(tool.name)
        if rule is not policies.policy.deny and tool.usable:
            definition = {**tool.definition, **_schema(tool, rule), **(_hints(tool, rule.effect) if listing.effect else {})}
            if said:
                definition["description"] = f"{tool.definition.get('description', '')} {said}".strip()
            found.append(ListedTool(tool, definition, rule.effect, short.names.get(tool.name)))
    return found


def _budget(left: BudgetLeft) -> str:
    calls = "any number of" if left.tool_calls_left is None else str(left.tool_calls_left)
    return f"(When this was listed, {calls} tool calls were left for all tools together.)"


def _hints(tool: Tool, effect: Effect) -> dict[str, Json]:
    """What the policy says of repeats, in place of the upstream's own word. Whether a write destroys anything only the upstream can say."""
    hints: dict[str, Json] = {**tool.definition.get("annotations", {}), "readOnlyHint": not effect.writes}
    if effect.writes:
        hints["idempotentHint"] = effect is Effect.IDEMPOTENT_WRITE
    return {"annotations": hints}


def _schema(tool: Tool, rule: ToolRule) -> dict[str, Json]:
    guards = [place.guard for place in rule.stages[Stage.SHAPE] if not place.skipped]
    hidden = {name for guard in guards if isinstance(guard, Arguments) for name in guard.hidden}
    schema = tool.definition.get("inputSchema")
    return {"inputSchema": _without(schema, hidden)} if hidden and isinstance(schema, dict) else {}


def _without(schema: dict[str, Any], hidden: set[str]) -> dict[str, Any]:
    """The schema, and those that judge the same object with it, without these members."""
    clean = dict(schema)
    if isinstance(schema.get("properties"), dict):
        clean["properties"] = {name: part for name, part in schema["properties"].items() if name not in hidden}
    if isinstance(schema.get("required"), list):
        clean["required"] = [name for name in schema["required"] if name not in hidden]
    for together in ("allOf", "anyOf", "oneOf"):
        if isinstance(schema.get(together), list):
            clean[together] = [_without(part, hidden) if isinstance(part, dict) else part for part in schema[together]]
    return clean
