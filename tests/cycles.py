"""A fault's traceback holds the frames it passed. Where one of them can reach the fault (by a future that it was set on), only a garbage
collection frees both, and all that those frames knew: a call's run with all its states, for one."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any


async def is_let_go(work: Callable[[], Awaitable[Any]], kind: type[Exception]) -> bool:
    """Is nothing left of the fault of `work` once it was caught? `kind`: a class of ours (builtin ones can't be watched)."""
    gc.collect()
    gc.disable()
    try:
        try:
            await work()
        except kind as fault:
            seen = weakref.ref(fault)
        await asyncio.sleep(0.05)  # whoever told it has gone on
        return seen() is None
    finally:
        gc.enable()
