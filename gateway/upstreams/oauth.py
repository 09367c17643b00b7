"""Bearer tokens by OAuth client credentials: fetched when first wanted, renewed before they expire, one fetch at a time.

A fetch is bounded in time and size, follows no redirect and is not made again at once after it failed; all callers share it. Neither the
secret nor a token is ever logged or put into a message. Source: RFC 6749 §2.3.1, §4.4, §5; RFC 9110 §15.5.2 (what a 401 means).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote_plus

import httpx

from gateway.core.model import Json
from gateway.ports import UpstreamFault
from gateway.upstreams.http_dial import tls_context
from gateway.wire.json import JsonError, parse

MAX_BYTES: Final = 65_536
LIFETIME_S: Final = 300
"""Of a token whose endpoint names none."""
EARLY_S: Final = 60
"""How long before its end a token is renewed, or a quarter of its life if that is shorter."""
PAUSE_S: Final = 2.0
"""After a fetch that failed, and the least age at which a token that was refused is given up."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,16384}")
_ERROR: Final = re.compile(r"[a-z_]{1,64}")


class _NoToken(Exception):
    """Why; the text may be shown."""


class Tokens:
    """The tokens of one client. `in_body`: it shows its secret in the form, not by HTTP Basic. `now`: a clock in seconds."""

    def __init__(
        self,
        token_url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str | None = None,
        audience: str | None = None,
        in_body: bool = False,
        patience_s: float = 10.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        wanted = {"grant_type": "client_credentials", "scope": scope, "audience": audience}
        self._form = {name: value for name, value in wanted.items() if value is not None}
        self._auth = None if in_body else httpx.BasicAuth(quote_plus(client_id), quote_plus(client_secret))
        self._form |= {"client_id": client_id, "client_secret": client_secret} if in_body else {}
        self._url, self._patience_s, self._now = token_url, patience_s, now
        self._tls = tls_context() if token_url.startswith("https:") else False
        self._token: str | None = None
        self._fetched_at = self._renew_at = self._expires_at = 0.0
        self._failure: tuple[float, str] | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def bearer(self, within_s: float) -> str:
        """A token that is good now. Raises UpstreamFault `unavailable`: then nothing was asked of the upstream itself."""
        if self._token is None or self._now() >= self._renew_at:
            await self._renewed(within_s)
        if self._token is not None and self._now() < self._expires_at:
            return self._token
        why = self._failure[1] if self._failure else f"no answer within {within_s:g} s"
        raise UpstreamFault("unavailable", f"no token for the upstream from its token endpoint: {why}")

    def refused(self, bearer: str) -> bool:
        """The upstream answered 401 to this token: would another help? One that is brand-new was not refused for its age."""
        if bearer == self._token and self._now() - self._fetched_at < PAUSE_S:
            return False
        if bearer == self._token:
            self._token = None
        return True

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    # ---- fetching -------------------------------------------------------------------------------------------------------

    async def _renewed(self, within_s: float) -> None:
        """Join the fetch that is under way, or begin one; whoever stops waiting doesn't stop it for the others."""
        if self._failure is not None and self._now() < self._failure[0]:
            return
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
        await asyncio.wait([self._fetching], timeout=within_s)

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                self._take(*await self._asked())
            self._failure = None
        except TimeoutError:
            self._failure = self._now() + PAUSE_S, f"no answer within {self._patience_s:g} s"
        except _NoToken as no_token:
            self._failure = self._now() + PAUSE_S, str(no_token)
        finally:
            self._fetching = None

    async def _asked(self) -> tuple[int, bytes]:
        body = b""
        try:
            async with (
                httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=self._patience_s) as client,
                client.stream(
                    "POST", self._url, data=self._form, auth=self._auth, headers={"accept": "application/json", "accept-encoding": "identity"}
                ) as response,
            ):
                async for piece in response.aiter_raw():
                    body += piece
                    if len(body) > MAX_BYTES:
                        raise _NoToken(f"its answer is longer than {MAX_BYTES} bytes")
                return response.status_code, body
        except httpx.HTTPError as error:  # its text may show the URL
            raise _NoToken(f"no answer ({type(error).__name__})") from None

    def _take(self, status: int, body: bytes) -> None:
        told = _told(body)
        if status != 200:
            error = told.get("error")
            raise _NoToken(f"status {status}" + (f", {error}" if isinstance(error, str) and _ERROR.fullmatch(error) else ""))
        token, kind = told.get("access_token"), told.get("token_type")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token) or str(kind).lower() != "bearer":
            raise _NoToken("its answer holds no bearer token")
        lifetime_s = _seconds(told.get("expires_in"))
        self._token, self._fetched_at = token, self._now()
        self._expires_at = self._fetched_at + lifetime_s
        self._renew_at = self._expires_at - min(EARLY_S, lifetime_s / 4)


def _told(body: bytes) -> Mapping[str, Json]:
    try:
        told: Any = parse(body)
    except JsonError:
        return {}
    return told if isinstance(told, dict) else {}


def _seconds(value: Json) -> float:
    """Some endpoints write the number as text."""
    text = str(value) if type(value) in (int, str) else ""
    return float(min(int(text), 86_400 * 365)) if re.fullmatch("[0-9]{1,9}", text) else LIFETIME_S
