"""Commands as their users run them: in this process where only text matters, as processes of their own where signals and sockets do."""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import main
from tests.waiting import START_S

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it said."""

    code: int | str | None
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def ran(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> Ran:
    """A command in this process."""
    capsys.readouterr()
    try:
        code: int | str | None = main([str(one) for one in argv])
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr()
    return Ran(code, said.out, said.err)


async def ran_beside(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> Ran:
    """The same while this loop goes on serving."""
    return await asyncio.to_thread(ran, capsys, *argv)


def started(folder: Path, *argv: str, env: Mapping[str, str] | None = None, **more: Any) -> subprocess.Popen[str]:
    """A command as a process, in a process group of its own, in `folder`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    return subprocess.Popen(
        [sys.executable, "-m", "gateway", *argv], cwd=folder, env=environment, text=True, start_new_session=True, stdin=subprocess.DEVNULL,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
    )  # fmt: skip


def said(process: subprocess.Popen[str], word: str) -> str:
    """Its stdout up to the end of a line, with `word` in it."""
    assert process.stdout is not None
    text = ""
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while word not in text or not text.endswith("\n"):
            assert waiting.select(START_S), text
            some = os.read(process.stdout.fileno(), 65536)  # not readline, which would take more than it gives
            assert some, text + ended(process).err
            text += some.decode()
    return text


def ended(process: subprocess.Popen[str]) -> Ran:
    out, err = process.communicate(timeout=START_S)
    return Ran(process.returncode, out, err)
