"""`python everything_server.py stdio | PORT_FILE [session]`: the server of `everything` on stdio, or on a port that it writes into a file.

With `session` it refuses 2026-07-28, as servers of before do.
"""

from __future__ import annotations

import socket
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.stdio import stdio_server
from starlette.responses import JSONResponse

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.e2e import everything

App = Callable[[Any, Any, Any], Awaitable[None]]


def of_before(app: App) -> App:
    """Refuses requests of 2026-07-28."""

    async def older(scope: Any, receive: Any, send: Any) -> None:
        if (b"mcp-protocol-version", b"2026-07-28") in scope.get("headers", ()):
            error = {"code": -32600, "message": "Bad Request: unsupported protocol version"}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return older


def over_http(port_file: Path, older: bool) -> None:
    app: App = everything.server().streamable_http_app()
    listening = socket.create_server(("127.0.0.1", 0))
    port_file.with_suffix(".new").write_text(str(listening.getsockname()[1]))
    port_file.with_suffix(".new").rename(port_file)
    config = uvicorn.Config(of_before(app) if older else app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run([listening])


async def over_stdio() -> None:
    server = everything.server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # logging is deprecated in 2026-07-28, and tested all the same
    if sys.argv[1] == "stdio":
        anyio.run(over_stdio)
    else:
        over_http(Path(sys.argv[1]), "session" in sys.argv)
