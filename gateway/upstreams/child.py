"""A process that serves over lines: what it says comes line by line, what it is told goes in at once, its stderr is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from gateway.ports import UpstreamFault
from gateway.upstreams.lines import Foreign, Lines, Overlong
from gateway.upstreams.process import CLOSING_S, Process

_MAX_UNREAD: Final = 8 * 1024 * 1024


class Child(Process):
    """Made by `start`."""

    def __init__(self, on_line: Callable[[bytes | Overlong], None], foreign: Foreign, max_line: int) -> None:
        super().__init__()
        self._on_line = on_line
        self._foreign = foreign
        self._lines = {1: Lines(max_line), 2: Lines(max_line)}

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        on_line: Callable[[bytes | Overlong], None],
        foreign: Foreign,
        *,
        max_line: int,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """`on_line` gets each line of stdout; stderr goes to `foreign`. Raises UpstreamFault `unavailable` if it can't be run."""
        return await cls(on_line, foreign, max_line).started(argv, foreign.note, cwd=cwd, env=env)

    def write(self, line: bytes) -> None:
        """Raises UpstreamFault `unavailable` if not one byte of it will leave."""
        if self.ended.done() or self._stdin is None or self._stdin.is_closing():
            raise UpstreamFault("unavailable", "the process has ended")
        if self._stdin.get_write_buffer_size() > _MAX_UNREAD:
            raise UpstreamFault("unavailable", "the process doesn't read what it is sent")
        self._stdin.write(line)

    # ---- asyncio calls these --------------------------------------------------------------------------------------------

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        for line in self._lines[fd].feed(data):
            if fd == 1:
                self._on_line(line)
            else:
                self._foreign.write(logging.INFO, "stderr", line)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Without stdin or stdout it can serve nobody; mostly it is just about to exit by itself."""
        if fd != 2 and not self._stopping:
            asyncio.get_running_loop().call_later(CLOSING_S, self.kill_if_running)
