"""Tools' definitions as operators see them: which is accepted, which is offered now, and accepting what is held back (DESIGN §11)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gateway.core.deployment import Pin
from gateway.core.model import Json, Tool
from gateway.engine.api import Caller, ToolView
from gateway.engine.runs import Runs, forbidden
from gateway.ports import RequestFault


class Definitions(Runs):
    async def definitions(self, who: Caller) -> list[ToolView]:
        """All tools of all upstreams by name, those that are away too. Raises RequestFault: auth.forbidden."""
        _permit(who, frozenset({"operator", "viewer"}))
        pins, offered = self.catalog.pins(), {tool.name: tool for tool in self.catalog.all()}
        return [await self._definition(name, offered.get(name), pins.get(name)) for name in sorted({*pins, *offered})]

    async def accept_definitions(self, who: Caller, digests: Mapping[str, str]) -> list[ToolView]:
        """Accept what these tools are now, all or none; `digests`: full name -> what the operator saw. In effect at once, in every process.

        Raises RequestFault: auth.forbidden, tool.digest; LedgerFault."""
        _permit(who, frozenset({"operator"}))
        chosen = [self._seen_as(name, digest) for name, digest in digests.items()]
        await self.catalog.accept(chosen, who.principal.id)
        pins = self.catalog.pins()
        return [await self._definition(tool.name, self.catalog.tool(tool.name), pins.get(tool.name)) for tool in chosen]

    def _seen_as(self, name: str, digest: str) -> Tool:
        tool = self.catalog.tool(name)
        if tool is None or tool.digest != digest:
            raise RequestFault("tool.digest", f"{name!r} is {'offered by no upstream' if tool is None else tool.digest} now, not {digest}.")
        return tool

    async def _definition(self, name: str, tool: Tool | None, pin: Pin | None) -> ToolView:
        """The accepted definition's text is read only where it differs from what is offered."""
        differs = tool is not None and tool.unaccepted is not None and pin is not None
        text = await self.ledger.policy_text(pin.digest) if differs and pin is not None else None
        accepted: Mapping[str, Json] | None = json.loads(text) if text is not None else None
        return ToolView(name, _state(tool, pin), tool, pin, accepted)


def _state(tool: Tool | None, pin: Pin | None) -> str:
    if tool is None:
        return "away"
    if tool.unaccepted is not None:
        return "new" if pin is None else "changed"
    return "accepted" if tool.unsupported is None else "unsupported"


def _permit(who: Caller, roles: frozenset[str]) -> None:
    if who.run is not None or not who.principal.roles & roles:
        raise forbidden(f"This takes a key whose principal has the role {' or '.join(sorted(roles))}.")
