"""`requestState`s (2026-07-28): what a client brings back with its answers, signed, so that they can only go where they belong.

Of a call it binds run, tool, arguments and operation, and names the question; the call itself stands in the ledger and waits in this process.
Of any other request it binds who asked what, and carries the server's own state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.canonical import digest
from gateway.core.model import CallRequest, Json, Malformed
from gateway.doors.seals import Seal
from gateway.ports import Clock
from gateway.wire import json, jsonrpc
from gateway.wire.jsonrpc import Id, RpcError

LIFETIME_MS: Final = 3_600_000
_OF_THE_ROUND: Final = frozenset({"_meta", "inputResponses", "requestState"})


@dataclass(frozen=True, slots=True)
class Pending:
    """The question that a state names."""

    call: str
    number: int


class States:
    def __init__(self, secrets: Sequence[bytes], clock: Clock) -> None:
        self._seal = Seal(secrets, b"request state")
        self._clock = clock

    def of_call(self, run: str, request: CallRequest, pending: Pending) -> str:
        return self._sealed(self._call_claims(run, request), [pending.call, pending.number])

    def of_request(self, principal: str, method: str, params: Mapping[str, Json], theirs: str | None) -> str:
        return self._sealed(_request_claims(principal, method, params), theirs)

    def pending(self, state: str, run: str, request: CallRequest, id: Id) -> Pending:
        """Raises RpcError -32602 for a state that is not ours, too old, or another call's."""
        return Pending(*self._opened(state, self._call_claims(run, request), id))

    def theirs(self, state: str, principal: str, method: str, params: Mapping[str, Json], id: Id) -> str | None:
        """The server's own state in one of a request. Raises RpcError as `pending`."""
        found: str | None = self._opened(state, _request_claims(principal, method, params), id)
        return found

    @staticmethod
    def _call_claims(run: str, request: CallRequest) -> list[Json]:
        arguments = None if isinstance(request.arguments, Malformed) else digest(request.arguments)
        return ["call", run, request.tool, arguments, request.operation_id]

    def _sealed(self, claims: list[Json], carried: Json) -> str:
        return self._seal.sealed(json.dumps([self._clock.now_ms() + LIFETIME_MS, claims, carried]))

    def _opened(self, state: str, wanted: list[Json], id: Id) -> Any:
        opened = self._seal.opened(state)
        if opened is not None:
            expires_at, claims, carried = json.parse(opened)
            if claims == wanted and self._clock.now_ms() < expires_at:
                return carried
        raise RpcError(jsonrpc.INVALID_PARAMS, "params.requestState is not the one that was given with this question", id)


def _request_claims(principal: str, method: str, params: Mapping[str, Json]) -> list[Json]:
    return ["request", principal, method, digest({name: value for name, value in params.items() if name not in _OF_THE_ROUND})]
