"""What tests download is kept in a cache folder of the user's, made once on a machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def kept(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder `name`; `fill` makes it elsewhere first, so that one that is there is whole. Whoever is first wins."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tool-call-gateway-tests"
    home = cache / name
    if not home.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=cache))
        fill(fresh)
        if not home.exists():
            fresh.rename(home)
    return home
