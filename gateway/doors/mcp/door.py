"""MCP over Streamable HTTP, both eras at one endpoint: the version header says which, and without it a request is of the session era.

What the protocol refuses (a bad envelope, an unknown method) is a JSON-RPC error; what the gateway refuses about a tool call is a result
(`results`). Origin and Host are checked before (`auth`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from gateway.doors.http import MAX_BODY, CallerLeft, Headers, send_json
from gateway.doors.mcp.post import SESSION_HEADER, Post, headers_of, refusal
from gateway.doors.mcp.servers import Servers
from gateway.doors.mcp.session import InSession
from gateway.doors.mcp.stateless import Stateless
from gateway.doors.mcp.subscriptions import Subscriptions
from gateway.doors.mcp.tools import Tools
from gateway.engine import Caller, Engine
from gateway.ports import Clock
from gateway.wire import mcp

_ALLOW: Final = [(b"allow", b"POST, DELETE"), (b"content-length", b"0")]


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and times of this door; tests shorten them."""

    body_bytes: int = MAX_BODY
    tools_a_page: int = 500
    list_ttl_ms: int = 60_000
    heartbeat_s: float = 15.0


class McpDoor:
    """The ASGI endpoint of `/mcp` and `/r/{run_key}/mcp`.

    `names` gives the listed names of now; `server_info` is the protocol's Implementation: name, version; `secrets` sign sessions and states.
    """

    def __init__(
        self,
        engine: Engine,
        authenticate: Callable[[Headers], Caller],
        names: Callable[[], mcp.ListedNames],
        secrets: Sequence[bytes],
        clock: Clock,
        *,
        server_info: Mapping[str, Any],
        limits: Limits = Limits(),
    ) -> None:
        self._authenticate = authenticate
        self._body_bytes = limits.body_bytes
        tools, servers = Tools(engine, names, limits.tools_a_page), Servers(engine)
        self._subscriptions = told = Subscriptions(engine.catalog, servers)
        self._stateless = Stateless(engine, tools, servers, told, secrets, clock, server_info, limits.list_ttl_ms, limits.heartbeat_s)
        self._in_session = InSession(engine, tools, servers, told, secrets, clock, server_info, limits.heartbeat_s)

    def stop(self) -> None:
        """The gateway stops: end what would go on for ever."""
        self._subscriptions.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] not in ("POST", "DELETE"):
                await _not_allowed(send)
                return
            headers = headers_of(scope["headers"])
            post = Post(scope, receive, send, headers, self._authenticate(scope["headers"]))
            if scope["method"] == "POST":
                body = await post.body(self._body_bytes)
                await (self._stateless if mcp.is_2026(headers) else self._in_session).serve(post, body)
            elif SESSION_HEADER in headers:
                await self._in_session.end(post)
            else:
                await _not_allowed(send)
        except CallerLeft:
            pass
        except Exception as fault:  # noqa: BLE001  whatever went wrong here, the client waits for an answer that it can read
            status, error, more = refusal(fault, None)
            await send_json(scope, send, status, error, more)


async def _not_allowed(send: Send) -> None:
    """GET, above all: nothing is said outside the answers to POSTs."""
    await send({"type": "http.response.start", "status": 405, "headers": _ALLOW})
    await send({"type": "http.response.body", "body": b""})
