"""A real HTTP origin on a loopback socket that does what each test scripts, byte for byte; and the Dispatch that is sent to it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.core.model import Tool
from gateway.ports import Dispatch


@dataclass(frozen=True)
class Seen:
    """One request as it came in; header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One accepted connection; `number` counts from 1."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, origin: Origin) -> None:
        self.number, self._reader, self._writer, self._origin = number, reader, writer, origin

    async def request(self) -> Seen:
        """The next whole request; raises IncompleteReadError when the client has closed."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        seen = Seen(method, target, headers, body)
        self._origin.seen.append(seen)
        return seen

    async def hello(self) -> bytes:
        """The first bytes, whatever they are."""
        return await self._reader.read(4096)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, body: bytes = b"{}", status: str = "200 OK", **headers: str) -> None:
        head = {"content-type": "application/json", "content-length": str(len(body))}
        head |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        await self.write(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body)

    async def closed(self) -> None:
        """Return when the client has closed its end."""
        await self._reader.read()

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """RST instead of FIN."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


@dataclass
class Origin:
    """`url` ends without a slash; `seen` are all requests; `connections` how many were accepted."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0


Script = Callable[[Connection], Awaitable[None]]


@contextmanager
def never_accepting(host: str) -> Iterator[int]:
    """A port whose queue is full, so that no further connection is ever established."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind((host, 0))
        full.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        yield full.getsockname()[1]


@asynccontextmanager
async def origin(script: Script) -> AsyncIterator[Origin]:
    """Run `script` on each connection; it is closed when the script ends."""
    it = Origin()
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        it.connections += 1
        serving.add(asyncio.current_task())
        connection = Connection(it.connections, reader, writer, it)
        try:
            await script(connection)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            connection.close()
            serving.discard(asyncio.current_task())

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield it
    finally:
        server.close()
        for task in serving:
            if task is not None:
                task.cancel()


def tool(name: str = "shop.pay", **definition: Any) -> Tool:
    upstream, _, local = name.partition(".")
    return Tool(name, upstream, local, {"name": local, "inputSchema": {"type": "object"}, **definition}, "digest")


def dispatch(arguments: Mapping[str, Any] | None = None, **more: Any) -> Dispatch:
    """Five seconds from the epoch's 2026-11-29T18:00:00Z; anything else as given."""
    given: dict[str, Any] = {"tool": tool(), "key": "k" * 64, "send_as": None, "deadline_at": 1795975205000, "remaining_ms": 5000}
    return Dispatch(arguments=arguments or {}, **(given | more))
