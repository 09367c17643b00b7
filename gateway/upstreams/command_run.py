"""One run of a program: what it is given on stdin, what it says, up to a bound, and how it ended."""

from __future__ import annotations

import logging
from asyncio import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gateway.upstreams.lines import Foreign, Lines
from gateway.upstreams.process import Process

MAX_LINE: Final = 8_192
MAX_STDERR: Final = 4_096
"""Bytes of its end that are kept."""


class Run(Process):
    """Made by `start`. `stdout` holds at most `max_bytes`; `is_cut`: there was more, which was read and dropped. `stderr`: its end."""

    def __init__(self, foreign: Foreign, max_bytes: int) -> None:
        super().__init__()
        self.stdout, self.stderr, self.is_cut = bytearray(), bytearray(), False
        self._foreign, self._max_bytes = foreign, max_bytes
        self._lines = Lines(MAX_LINE)

    @classmethod
    async def start(
        cls, argv: Sequence[str], given: bytes | None, foreign: Foreign, *, max_bytes: int, cwd: Path | None, env: Mapping[str, str]
    ) -> Run:
        """`given` is all of its stdin; None: it has none. Raises UpstreamFault `unavailable` if it can't be run."""
        stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
        run = await cls(foreign, max_bytes).started(argv, foreign.note, cwd=cwd, env=env, stdin=stdin)
        if given is not None and run._stdin is not None:
            run._stdin.write(given)
            run._stdin.close()  # after what was written
        return run

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr += data
            del self.stderr[:-MAX_STDERR]
            for line in self._lines.feed(data):
                self._foreign.write(logging.INFO, "stderr", line)
        else:
            self.stdout += data
            self.is_cut = len(self.stdout) > self._max_bytes
            del self.stdout[self._max_bytes :]
