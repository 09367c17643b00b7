"""Looking again and again, within bounds, for what tells nobody that it has happened: another process, a sweep, a file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_S = 5
"""The longest that anything is waited for."""
START_S = 15
"""But for a process that starts: `gateway --help` takes 0.6 to 1.5 s on two idle cores, and took 10 s with six busy processes beside it."""


async def until(done: Callable[[], T], what: str, patience_s: float = WAIT_S) -> T:
    """Wait until `done` gives something true, and give that."""

    async def look() -> T:
        return done()

    return await eventually(look, what, patience_s)


async def eventually(look: Callable[[], Awaitable[T]], what: str, patience_s: float = WAIT_S) -> T:
    """The same for a look that has to be waited for."""
    end = asyncio.get_running_loop().time() + patience_s
    while True:
        if found := await look():
            return found
        assert asyncio.get_running_loop().time() < end, f"waited in vain for {what}"
        await asyncio.sleep(0.005)
