"""Plain HTTP tools over aiohttp: one try a call, on a warm connection or a brand-new one, inside one overall deadline.

No redirect is followed, no cookie kept, no proxy or netrc read from the environment, nothing retried. An answer of any status is an
Answer; whatever else happens is an UpstreamFault whose kind says whether a byte may have left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import aiohttp

from gateway.core.model import Json
from gateway.ports import Answer, Dispatch, UpstreamFault
from gateway.upstreams.http_answer import answer_of
from gateway.upstreams.http_faults import once, read_body
from gateway.upstreams.http_request import Form, HttpTool
from gateway.upstreams.sending import seconds_left


class HttpUpstream:
    """The tools of one base URL. `auth_headers` are the upstream's credentials; they go with every call and into no message."""

    def __init__(
        self,
        name: str,
        base_url: str,
        tools: Sequence[HttpTool],
        auth_headers: Mapping[str, str] | None = None,
        *,
        connect_timeout_ms: int = 10_000,
    ) -> None:
        self.name = name
        self._tools = {tool.name: (tool, Form(tool, base_url, auth_headers or {})) for tool in tools}
        self._connect_s = connect_timeout_ms / 1000
        self._patient = self._timeout(self._connect_s)
        self._pooled: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        if self._pooled is None:
            self._pooled, self._fresh = _session(force_close=False), _session(force_close=True)

    async def close(self) -> None:
        sessions, self._pooled, self._fresh = (self._pooled, self._fresh), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    async def tools(self) -> list[dict[str, Json]]:
        return [tool.definition() for tool, _ in self._tools.values()]

    async def send(self, dispatch: Dispatch) -> Answer:
        """One request. `fresh_connection` pays for a connection of its own: no pool can know that a warm one is still alive."""
        session = self._fresh if dispatch.fresh_connection else self._pooled
        if session is None or session.closed:
            raise UpstreamFault("unavailable", "the upstream is closed")
        tool, form = self._tools[dispatch.tool.local_name]
        remaining_ms = min(dispatch.remaining_ms, tool.timeout_ms or dispatch.remaining_ms)
        seconds = seconds_left(remaining_ms)
        url, headers, data = form.filled(dispatch, remaining_ms)
        status = None
        try:
            async with asyncio.timeout(seconds):
                response = await session.request(
                    tool.method, url, headers=headers, data=data, allow_redirects=False, timeout=self._connect_timeout(seconds)
                )
                status = response.status
                body = await read_body(response, dispatch.max_bytes)
        except TimeoutError:
            raise UpstreamFault("timeout", f"no whole answer within {remaining_ms} ms", status=status) from None
        return answer_of(response.status, response.headers, body, dispatch.tool.name)

    def _connect_timeout(self, seconds: float) -> aiohttp.ClientTimeout:
        """Ends well before the overall deadline, so that a connection that never came isn't taken for an answer that never came."""
        return self._patient if seconds * 0.9 >= self._connect_s else self._timeout(seconds * 0.9)

    @staticmethod
    def _timeout(connect_s: float) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=None, ceil_threshold=float("inf"))


def _session(*, force_close: bool) -> aiohttp.ClientSession:
    """`limit=0`: waiting for a free connection would only hide load; calls in flight are bounded before they come here."""
    connector = aiohttp.TCPConnector(limit=0, force_close=force_close)
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, middlewares=(once,), trust_env=False
    )
