"""Who is asking: a bearer (API key or run token) to a Caller, and the check that a browser was not tricked into asking.

Every key and every secret is tried, whether or not an earlier one fits, and each comparison takes constant time. A run token says only
which run and which principal; what that principal is and may do stands in the settings of today, so removing its entry revokes its tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Iterable, Sequence
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.core.model import Principal
from gateway.doors.http import send_problem
from gateway.doors.problems import problem
from gateway.doors.seals import Seal
from gateway.engine import Caller
from gateway.ports import Clock, RequestFault

RUN_TOKEN = "gwr."
"""How run tokens begin; API keys never do."""
_MAX_BEARER = 1024
_HOST = re.compile(r"(?:([a-z0-9._-]+)|\[([0-9a-f:.]+)\])(?::[0-9]{0,5})?")


class Authenticator:
    """`principals`: lower-case hex SHA-256 of an API key, and whose it is, roles included. `secrets`: the first signs, all verify."""

    def __init__(self, principals: Iterable[tuple[str, Principal]], secrets: Sequence[bytes], clock: Clock) -> None:
        self._keys = [(bytes.fromhex(sha256), Caller(principal)) for sha256, principal in principals]
        self._principals = {caller.principal.id: caller.principal for _, caller in self._keys}
        self._run_tokens = Seal(secrets, b"run token")
        self._clock = clock

    def __call__(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """The caller behind a request's headers (ASGI form). Raises RequestFault `auth.required`, which never repeats what was sent."""
        bearer = _bearer(headers)
        caller = self._by_run_token(bearer) if bearer.startswith(RUN_TOKEN) else self._by_key(bearer)
        if caller is None:
            raise _unknown("This key or run token is unknown, expired or revoked.")
        return caller

    def run_token(self, run: str, principal: str, lifetime_ms: int) -> str:
        """A bearer that acts for `principal` in this run only."""
        expires_at = self._clock.now_ms() + lifetime_ms
        claims = f"{expires_at} {run} {principal}".encode()
        return RUN_TOKEN + self._run_tokens.sealed(claims)

    def _by_key(self, bearer: str) -> Caller | None:
        digest = hashlib.sha256(bearer.encode()).digest()
        found = None
        for known, caller in self._keys:
            if hmac.compare_digest(known, digest):
                found = caller
        return found

    def _by_run_token(self, bearer: str) -> Caller | None:
        claims = self._run_tokens.opened(bearer.removeprefix(RUN_TOKEN))
        if claims is None:
            return None
        expires_at, run, id = claims.decode().split(" ", 2)
        principal = self._principals.get(id)
        if principal is None or self._clock.now_ms() >= int(expires_at):
            return None
        return Caller(principal, run)


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> str:
    sent = [value for name, value in headers if name == b"authorization"]
    if not sent:
        raise _unknown("The request carries no Authorization header.")
    scheme, _, bearer = sent[0].partition(b" ")
    bearer = bearer.strip(b" ")
    if len(sent) > 1 or scheme.lower() != b"bearer" or not bearer or len(bearer) > _MAX_BEARER or not bearer.isascii():
        raise _unknown("The Authorization header is not one `Bearer` and a key or run token.")
    return bearer.decode()


def _unknown(message: str) -> RequestFault:
    return RequestFault("auth.required", message)


class OwnHostOnly:
    """ASGI middleware against DNS rebinding and foreign pages (DESIGN §12).

    `hosts`: the names that Host may give, in lower case, loopback's always among them; None where nobody said them (behind a proxy, or
    reachable from outside, where keys are required). An Origin, which only browsers send, must be the Host that was asked.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            told = tuple([header for header in scope["headers"] if header[0] in (b"host", b"origin")])
            if wrong := _wrong(told, self._hosts):
                return send_problem(scope, send, problem(RequestFault("origin.forbidden", wrong)))
        return self._app(scope, receive, send)


@lru_cache(256)
def _wrong(told: tuple[tuple[bytes, bytes], ...], own: frozenset[str] | None) -> str | None:
    """What is wrong with a request of these Host and Origin headers."""
    hosts = [value.decode("latin-1").lower() for name, value in told if name == b"host"]
    origins = [value.decode("latin-1").lower() for name, value in told if name == b"origin"]
    if len(hosts) != 1 or not _is_own(hosts[0], own):
        return "The Host header doesn't name this gateway."
    if any(origin.partition("://")[2] != hosts[0] for origin in origins):
        return "The Origin header names another site than the Host header."
    return None


def _is_own(host: str, own: frozenset[str] | None) -> bool:
    name = _name(host)
    return name is not None and (own is None or name in own or _is_loopback(name))


def _name(host: str) -> str | None:
    """A Host header's name without its port, an IPv6 address without its brackets; None for what is no host at all."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]) if found else None


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
