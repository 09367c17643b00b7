"""A client's two pipes: lines in, lines out, each through a thread of its own, so that neither a slow reader nor a file stops the loop.

The threads are daemons: one that hangs in a read or a write ends with the process. Lines in are bounded (`Lines`); what goes out is written in
order, and `say` returns once it is written, so that nothing piles up for a client that doesn't read.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from gateway.upstreams.lines import Lines, Overlong

_CHUNK: Final = 64 * 1024


class Closed(Exception):
    """The client no longer reads."""


class Pipes:
    """`into` and `out` are file descriptors. Made inside the loop that uses it."""

    def __init__(self, into: int, out: int, max_line: int) -> None:
        self._into, self._out, self._max_line = into, out, max_line
        self._loop = asyncio.get_running_loop()
        self._read: asyncio.Queue[bytes] = asyncio.Queue()
        self._taken = threading.Semaphore(0)
        self._to_write: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        for work in (self._reading, self._writing):
            threading.Thread(target=work, daemon=True).start()

    async def lines(self) -> AsyncIterator[bytes | Overlong]:
        """What the client says, until it closes its end."""
        lines = Lines(self._max_line)
        while data := await self._read.get():
            for line in lines.feed(data):
                yield line
            self._taken.release()

    async def say(self, message: bytes) -> None:
        """One message as one line. Raises Closed."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._to_write.put((message.replace(b"\n", b" ") + b"\n", written))
        try:
            await written
        finally:
            del written  # it holds its fault, which holds this frame

    def _reading(self) -> None:
        """One chunk at a time: the next is read when this one's lines were taken."""
        data = b"-"
        while data:
            try:
                data = os.read(self._into, _CHUNK)
            except OSError:
                data = b""
            if not self._later(self._read.put_nowait, data):
                return
            if data:
                self._taken.acquire()

    def _writing(self) -> None:
        going = True
        while going:
            message, written = self._to_write.get()
            fault = None
            try:
                while message:
                    message = message[os.write(self._out, message) :]
            except OSError as error:
                fault = Closed(str(error))
            going = self._later(_settle, written, fault)

    def _later(self, what: Callable[..., None], *given: Any) -> bool:
        """False once the loop is gone, and with it whoever waited."""
        try:
            self._loop.call_soon_threadsafe(what, *given)
        except RuntimeError:
            return False
        return True


def _settle(written: asyncio.Future[None], fault: Closed | None) -> None:
    if written.done():
        return
    if fault is None:
        written.set_result(None)
    else:
        written.set_exception(fault)
