"""Packages from npm for the tests, in a cache folder, installed once; Node.js comes as a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

DOWNLOAD_S = 180
"""For a package, on the first run of a machine."""
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def node() -> str:
    return _program("node")


def installed(package: str) -> Path:
    """The folder that holds its `node_modules`; `package` with its version."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tool-call-gateway-tests"
    home = cache / package.rpartition("/")[2]
    if not home.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = tempfile.mkdtemp(dir=cache)
        install = [_program("npm"), "install", "--no-audit", "--no-fund", "--prefix", fresh, package]
        subprocess.run(install, check=True, timeout=DOWNLOAD_S, env={**os.environ, "PATH": PATH})
        if not home.exists():
            Path(fresh).rename(home)
    return home / "node_modules"


def _program(name: str) -> str:
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.fail("Node.js is missing: install the test extra of this project")
    return found
