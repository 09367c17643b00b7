"""Packages from npm for the tests, in a cache folder, installed once; Node.js comes as a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.kept import kept

DOWNLOAD_S = 180
"""For a package, on the first run of a machine."""
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def node() -> str:
    return _program("node")


def installed(package: str) -> Path:
    """The folder that holds its `node_modules`; `package` with its version."""

    def install(home: Path) -> None:
        command = [_program("npm"), "install", "--no-audit", "--no-fund", "--prefix", str(home), package]
        subprocess.run(command, check=True, timeout=DOWNLOAD_S, env={**os.environ, "PATH": PATH})

    return kept(package.rpartition("/")[2], install) / "node_modules"


def _program(name: str) -> str:
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.fail("Node.js is missing: install the test extra of this project")
    return found
