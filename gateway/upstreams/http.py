"""Plain HTTP tools: one try a call, on a warm connection or a brand-new one, inside one overall deadline.

No redirect is followed, no cookie kept, no proxy or netrc read from the environment, nothing retried. An answer of any status is an
Answer; whatever else happens is an UpstreamFault whose kind says whether a byte may have left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.core.model import Json
from gateway.ports import Answer, Dispatch, UpstreamFault
from gateway.upstreams.credentials import NONE, Credentials
from gateway.upstreams.http_answer import answer_of
from gateway.upstreams.http_dial import Origin, tls_context
from gateway.upstreams.http_faults import decoded
from gateway.upstreams.http_pool import Pool
from gateway.upstreams.http_request import Form, HttpTool
from gateway.upstreams.oauth import Tokens
from gateway.upstreams.sending import seconds_left


class HttpUpstream:
    """The tools of one base URL. `credentials` go with every call and into no message."""

    def __init__(
        self,
        name: str,
        base_url: str,
        tools: Sequence[HttpTool],
        credentials: Credentials = NONE,
        *,
        connect_timeout_ms: int = 10_000,
    ) -> None:
        """Raises ValueError for what can't be put into a request; the message shows no secret."""
        self.name = name
        self._tools = {tool.name: (tool, tool.form(base_url, credentials)) for tool in tools}
        self._definitions = [tool.definition() for tool in tools]
        self._origin = Origin.of(base_url)
        self._tls = tls_context() if self._origin.secure else None
        self._tokens = credentials.tokens
        self._connect_s = connect_timeout_ms / 1000
        self._pool: Pool | None = None

    async def open(self) -> None:
        if self._pool is None:
            self._pool = Pool(self._origin, self._tls, self._connect_s)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        if self._tokens is not None:
            await self._tokens.close()

    async def tools(self) -> list[dict[str, Json]]:
        return self._definitions

    async def send(self, dispatch: Dispatch) -> Answer:
        """One request. `fresh_connection` pays for a connection of its own: no pool can know that a warm one is still alive."""
        if self._pool is None:
            raise UpstreamFault("unavailable", "the upstream is closed")
        tool, form = self._tools[dispatch.tool.local_name]
        remaining_ms = min(dispatch.remaining_ms, tool.timeout_ms or dispatch.remaining_ms)
        if self._tokens is not None:
            return await self._with_token(self._tokens, self._pool, tool, form, dispatch, remaining_ms)
        return await _exchanged(self._pool, tool, form, dispatch, remaining_ms)

    async def _with_token(self, tokens: Tokens, pool: Pool, tool: HttpTool, form: Form, dispatch: Dispatch, remaining_ms: int) -> Answer:
        """The time that a token takes counts. A token that is refused is given up, and where the call may go out again, it does, once.

        A 401 says that the request was not applied (RFC 9110 §15.5.2); still only reads and idempotent writes, these under the same
        key, go out again. Of others the 401 is the answer: the next call has a fresh token."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds_left(remaining_ms)
        bearer = await tokens.bearer(until - loop.time())
        answer = await _exchanged(pool, tool, form, dispatch, int((until - loop.time()) * 1000), bearer)
        if answer.status != 401 or not tokens.refused(bearer) or dispatch.fresh_connection:
            return answer
        try:
            bearer = await tokens.bearer(until - loop.time())
        except UpstreamFault:
            return answer
        return await _exchanged(pool, tool, form, dispatch, int((until - loop.time()) * 1000), bearer)


async def _exchanged(pool: Pool, tool: HttpTool, form: Form, dispatch: Dispatch, remaining_ms: int, bearer: str | None = None) -> Answer:
    seconds = seconds_left(remaining_ms)
    request = form.filled(dispatch, remaining_ms, bearer)
    status, headers, body = await pool.request(
        request, seconds, dispatch.max_bytes, fresh=dispatch.fresh_connection, bodiless=tool.method == "HEAD"
    )
    return answer_of(status, headers, decoded(body, headers, status, dispatch.max_bytes), dispatch.tool.name)
