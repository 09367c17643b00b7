"""ruff and mypy --strict, as tests, so that `pytest` is the one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_ruff_finds_nothing() -> None:
    assert run("ruff", "check", "--no-cache", ".") == ""


def test_mypy_in_strict_mode_finds_nothing() -> None:
    assert run("mypy") == ""
