"""`python watched_gateway.py CONFIG COUNTS`: `gateway serve`, which on SIGUSR1 writes what it holds: tasks, descriptors, children, memory.

What it keeps on purpose is kept small, so that the rest shows: few folded states, payloads and database pages, nothing that was worked out
once, and idle connections to upstreams for a moment only.
"""

import asyncio
import ctypes
import functools
import gc
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from gateway.app import serve
from gateway.ledger import ledger, sqlite
from gateway.settings import load_settings
from gateway.upstreams.http_pool import Pool

CONFIG, COUNTS = map(Path, sys.argv[1:])
sqlite.SqliteLedger.__init__.__kwdefaults__["capacity"] = 4
ledger._PAYLOAD_BYTES = 100_000
Pool.__init__.__kwdefaults__["idle_s"] = 0.1
make_durable, read_only = sqlite._make_durable, sqlite._read_only


def frugal(raw: Any, path: str) -> None:
    make_durable(raw, path)
    raw.execute("PRAGMA cache_size = -100")


def frugal_reader(path: str) -> Any:
    raw = read_only(path)
    raw.execute("PRAGMA cache_size = -100")
    return raw


sqlite._make_durable, sqlite._read_only = frugal, frugal_reader


gc.disable()  # what only a collection would find is found when somebody counts
libc, found = ctypes.CDLL(None), 0


def counts(port: int) -> dict:
    global found
    for one in gc.get_objects():
        if isinstance(one, functools._lru_cache_wrapper):
            one.cache_clear()
    found += gc.collect()
    libc.malloc_trim(0)
    tasks = Counter(task.get_coro().__qualname__ for task in asyncio.all_tasks())
    children = Path("/proc/self/task", str(os.getpid()), "children").read_text().split()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    held = {"tasks": tasks, "descriptors": len(os.listdir("/proc/self/fd")), "children": len(children)}
    return {"port": port, **held, "rss": pages * 4096, "cycles": found}


def watched(app: object, port: int) -> None:
    def write() -> None:
        COUNTS.with_suffix(".new").write_text(json.dumps(counts(port)))
        COUNTS.with_suffix(".new").rename(COUNTS)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, write)
    write()


serve(load_settings(CONFIG, os.environ), watched)
