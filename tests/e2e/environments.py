"""Virtual environments for programs that can't share this one, kept between test sessions; pip is the one that runs here, set up as it is."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

from tests.e2e.kept import kept

DOWNLOAD_S = 300
"""For a client with all that it needs, on the first run of a machine, beside five more."""


def python_with(*requirements: str) -> Path:
    """The interpreter of an environment that has these, and nothing of this one; raises CalledProcessError where pip can't get them."""

    def install(home: Path) -> None:
        venv.create(home, with_pip=False)
        pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "-qq", "--no-compile"]
        subprocess.run([*pip, *requirements], check=True, timeout=DOWNLOAD_S)

    key = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:16]
    return kept(f"venv-{key}", install) / "bin" / "python"
