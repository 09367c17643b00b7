"""Plain HTTP tools: one try a call, on a warm connection or a brand-new one, inside one overall deadline.

No redirect is followed, no cookie kept, no proxy or netrc read from the environment, nothing retried. An answer of any status is an
Answer; whatever else happens is an UpstreamFault whose kind says whether a byte may have left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.core.model import Json
from gateway.ports import Answer, Dispatch, UpstreamFault
from gateway.upstreams.http_answer import answer_of
from gateway.upstreams.http_dial import Origin, tls_context
from gateway.upstreams.http_faults import decoded
from gateway.upstreams.http_pool import Pool
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
        """Raises ValueError for what can't be put into a request; the message shows no secret."""
        self.name = name
        self._tools = {tool.name: (tool, Form(tool, base_url, auth_headers or {})) for tool in tools}
        self._origin = Origin.of(base_url)
        self._tls = tls_context() if self._origin.secure else None
        self._connect_s = connect_timeout_ms / 1000
        self._pool: Pool | None = None

    async def open(self) -> None:
        if self._pool is None:
            self._pool = Pool(self._origin, self._tls, self._connect_s)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def tools(self) -> list[dict[str, Json]]:
        return [tool.definition() for tool, _ in self._tools.values()]

    async def send(self, dispatch: Dispatch) -> Answer:
        """One request. `fresh_connection` pays for a connection of its own: no pool can know that a warm one is still alive."""
        if self._pool is None:
            raise UpstreamFault("unavailable", "the upstream is closed")
        tool, form = self._tools[dispatch.tool.local_name]
        remaining_ms = min(dispatch.remaining_ms, tool.timeout_ms or dispatch.remaining_ms)
        seconds = seconds_left(remaining_ms)
        request = form.filled(dispatch, remaining_ms)
        status, headers, body = await self._pool.request(
            request, seconds, dispatch.max_bytes, fresh=dispatch.fresh_connection, bodiless=tool.method == "HEAD"
        )
        return answer_of(status, headers, decoded(body, headers, status, dispatch.max_bytes), dispatch.tool.name)
