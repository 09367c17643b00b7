"""Sessions of the era before 2026-07-28: all that a session is stands in its id, signed, so that it survives a restart and any replica.

A session belongs to the principal that began it, and is no run. What is kept here is only which sessions were ended, and what their clients
want to hear of logs; both are bounded, the oldest goes first.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.core.model import Json
from gateway.doors.seals import Seal
from gateway.ports import Clock
from gateway.wire import json, mcp, mcp_input

LIFETIME_MS: Final = 7 * 24 * 3_600_000
KEPT: Final = 10_000
_MAX_CAPABILITIES: Final = 500
_MAX_NAME: Final = 64
DEFAULT_LEVEL: Final = "info"


@dataclass(frozen=True, slots=True)
class Session:
    """`capabilities`: what the client can be asked; `client`: how it names itself."""

    id: str
    principal: str
    version: str
    capabilities: Mapping[str, Json] = field(default_factory=dict)
    client: str = ""

    @property
    def has_batches(self) -> bool:
        return self.version < "2025-06-18"


class Sessions:
    def __init__(self, keys: Sequence[bytes], clock: Clock) -> None:
        self._seal = Seal(keys, b"mcp session")
        self._clock = clock
        self._ended: dict[str, None] = {}
        self._levels: dict[str, str] = {}

    def begin(self, principal: str, params: Mapping[str, Any]) -> Session:
        """A session from the params of `initialize`."""
        requested, info = params.get("protocolVersion"), params.get("clientInfo")
        version = requested if requested in mcp.SESSION_VERSIONS else mcp.SESSION_VERSIONS[0]
        name = info.get("name") if isinstance(info, dict) else None
        client = name[:_MAX_NAME] if isinstance(name, str) else ""
        can = mcp_input.askable(params.get("capabilities"))
        if len(json.dumps(can)) > _MAX_CAPABILITIES:  # the id travels with each request, in a header
            can = {name: {} for name in can}
        claims = [self._clock.now_ms() + LIFETIME_MS, secrets.token_hex(8), principal, version, can, client]
        return Session(self._seal.sealed(json.dumps(claims)), principal, version, can, client)

    def find(self, id: str, principal: str) -> Session | None:
        """None for a session that is not ours, not this principal's, too old, or ended."""
        opened = self._seal.opened(id)
        if opened is None or id in self._ended:
            return None
        expires_at, _, owner, version, can, client = json.parse(opened)
        if owner != principal or self._clock.now_ms() >= expires_at:
            return None
        return Session(id, owner, version, can, client)

    def end(self, session: Session) -> None:
        _keep(self._ended, session.id, None)

    def level(self, session: Session) -> str:
        """The least severe log message that the client wants."""
        return self._levels.get(session.id, DEFAULT_LEVEL)

    def set_level(self, session: Session, level: str) -> None:
        _keep(self._levels, session.id, level)


def _keep(known: dict[str, Any], key: str, value: Any) -> None:
    known[key] = value
    if len(known) > KEPT:
        del known[next(iter(known))]
