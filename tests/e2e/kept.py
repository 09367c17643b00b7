"""What tests download is kept in a cache folder of the user's, made once on a machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def kept(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder `name`, as `fill` made it once: elsewhere first, so that one that is there is whole. Others who want it meanwhile wait."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tool-call-gateway-tests"
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / name
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=cache) as fresh:
                made = Path(fresh) / name
                made.mkdir()
                fill(made)
                made.rename(home)
    return home
