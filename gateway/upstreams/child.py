"""One child process in a process group of its own: lines in and out, and no orphans, however either side ends.

When the child ends, what is left of its group is killed; when the gateway ends, even by kill -9, a tiny leash (a shell that waits for
the end of a pipe which only the gateway holds) kills the group. It sees PATH, HOME and the like, never the gateway's other variables.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from gateway.ports import UpstreamFault
from gateway.upstreams.lines import Foreign, Lines, Overlong

_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM")
_LEASH: Final = 'read -r _; kill -9 -- "-$0"'
_MAX_UNREAD: Final = 8 * 1024 * 1024
_PIPES_S: Final = 1.0


class Child(asyncio.SubprocessProtocol):
    """Made by `start`. `on_line` gets each line of stdout; `ended` is done, with the exit code, when nothing more can come."""

    def __init__(self, foreign: Foreign, on_line: Callable[[bytes | Overlong], None], max_line: int) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._on_line = on_line
        self._foreign = foreign
        self._lines = {1: Lines(max_line), 2: Lines(max_line)}
        self._transport: asyncio.SubprocessTransport
        self._stdin: asyncio.WriteTransport
        self._leash: asyncio.subprocess.Process | None = None

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        foreign: Foreign,
        on_line: Callable[[bytes | Overlong], None],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        max_line: int,
    ) -> Child:
        """Raises UpstreamFault `unavailable` if there is no such program; its message names the program and no argument."""
        loop = asyncio.get_running_loop()
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(env or {})
        try:
            _, child = await loop.subprocess_exec(
                lambda: cls(foreign, on_line, max_line), *argv, cwd=cwd, env=environment, start_new_session=True
            )
        except OSError as error:
            raise UpstreamFault("unavailable", f"{argv[0]} could not be started: {error.strerror}") from None
        await child._put_on_leash()
        return child

    def write(self, line: bytes) -> None:
        """Raises UpstreamFault `unavailable` if not one byte of it can leave."""
        if self.ended.done() or self._stdin.is_closing():
            raise UpstreamFault("unavailable", "the process has ended")
        if self._stdin.get_write_buffer_size() > _MAX_UNREAD:
            raise UpstreamFault("unavailable", "the process doesn't read what it is sent")
        self._stdin.write(line)

    async def stop(self, grace_s: float) -> None:
        """Close its stdin and ask its group to end; after `grace_s`, kill. Returns when it has ended."""
        self._stdin.close()
        for signum in (signal.SIGTERM, signal.SIGKILL):
            if await self._ends_within(grace_s / 2 if signum is signal.SIGTERM else grace_s):
                break
            self._signal(signum)
        await asyncio.shield(self.ended)
        await self._off_leash()
