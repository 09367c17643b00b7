"""An HTTP upstream on a loopback socket that keeps account of what reached it: who asked what, under which key, and who hung up.

Each tool is a POST to `/<tool>` with the arguments as body. The argument `do` says how it behaves, `id` names the case:
ok, count (rises), error (422), taken (409), fail (500), busy (503), flaky (500 until the third), big (2 KiB), flood (17 MiB), secret (a card number),
cut (breaks off), gate (answers once `open_gate(id)` was called, with 500 if `size` is 500), hang (never answers).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.upstreams.origin import Connection, Seen, origin
from tests.waiting import until

KEY = "idempotency-key"
STATUSES = {"error": "422 Unprocessable", "taken": "409 Conflict", "fail": "500 Failed", "busy": "503 Busy"}


@dataclass(frozen=True)
class Took:
    """One request: what it asked for, and its `Idempotency-Key`."""

    tool: str
    arguments: dict[str, Any]
    key: str | None
    headers: Any


@dataclass
class Web:
    """`took`: all requests in order. `hung_up`: ids whose client closed the connection before the answer."""

    url: str = ""
    took: list[Took] = field(default_factory=list)
    hung_up: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    gates: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    running: int = 0

    def of(self, id: str) -> list[Took]:
        """The requests of one case."""
        return [one for one in self.took if one.arguments.get("id") == id]

    def start_over(self) -> None:
        for seen in (self.took, self.hung_up, self.counts, self.gates):
            seen.clear()

    def open_gate(self, id: str) -> None:
        self.gates[id].set()

    async def reached(self, id: str, times: int = 1) -> None:
        """Wait until a case's request is here."""
        await until(lambda: len(self.of(id)) >= times, f"request {times} of {id!r}")

    async def left(self, id: str) -> None:
        """Wait until the client of a case has hung up."""
        await until(lambda: id in self.hung_up, f"the end of {id!r}'s connection")

    async def serve(self, connection: Connection) -> None:
        while True:
            seen = await connection.request()
            took = _took(seen)
            self.took.append(took)
            self.running += 1
            try:
                await self._answer(connection, took)
            finally:
                self.running -= 1

    async def _answer(self, connection: Connection, took: Took) -> None:
        do, id = took.arguments.get("do", "ok"), str(took.arguments.get("id"))
        self.counts[id] += 1
        body: dict[str, Any] = {"did": took.tool, "id": id}
        match do:
            case "count":
                body["n"] = self.counts[id]
            case "big":
                body["filler"] = "x" * 2048
            case "flood":
                body["filler"] = "x" * (17 * 1024 * 1024)
            case "secret":
                body["card"] = {"number": "4111 1111 1111 1111", "brand": "visa"}
            case "cut":
                await connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
                connection.close()
                return
            case "gate" | "hang" if not await self._let_through(connection, do, id):
                return
            case "gate" if took.arguments.get("size") == 500:
                do = "fail"
            case "flaky" if self.counts[id] < 3:
                do = "fail"
        await connection.answer(json.dumps(body).encode(), STATUSES.get(do, "200 OK"))

    async def _let_through(self, connection: Connection, do: str, id: str) -> bool:
        """Wait for the gate, or for the client to hang up."""
        gate = asyncio.ensure_future(self.gates[id].wait() if do == "gate" else asyncio.Event().wait())
        closed = asyncio.ensure_future(connection.closed())
        try:
            await asyncio.wait({gate, closed}, return_when=asyncio.FIRST_COMPLETED)
            if gate.done():
                return True
            with suppress(ConnectionError):
                closed.result()
            self.hung_up.append(id)
            return False
        finally:
            gate.cancel()
            closed.cancel()
            await asyncio.wait({gate, closed})


def _took(seen: Seen) -> Took:
    return Took(seen.target.lstrip("/"), json.loads(seen.body), seen.headers.get(KEY), seen.headers)


@asynccontextmanager
async def web_upstream() -> AsyncIterator[Web]:
    """Serve until the end."""
    web = Web()
    async with origin(web.serve) as it:
        web.url = it.url
        yield web
