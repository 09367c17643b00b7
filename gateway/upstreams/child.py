"""One child process in a process group of its own: lines in and out, and no orphans, however either side ends.

When the child ends, what is left of its group is killed; when the gateway ends, even by kill -9, a tiny leash (a shell that waits for
the end of a pipe which only the gateway holds) kills the group. It sees PATH, HOME and the like, never the gateway's other variables.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from gateway.ports import UpstreamFault
from gateway.upstreams.lines import Foreign, Lines, Overlong

_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM")
_LEASH: Final = ("/bin/sh", "-c", 'read -r _; kill -s KILL -- "-$0"')
_MAX_UNREAD: Final = 8 * 1024 * 1024
_CLOSING_S: Final = 1.0


class Child(asyncio.SubprocessProtocol):
    """Made by `start`. `ended` is done, with the exit code, when the process is gone and nothing more can come from it."""

    def __init__(self, on_line: Callable[[bytes | Overlong], None], foreign: Foreign, max_line: int) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._on_line = on_line
        self._foreign = foreign
        self._lines = {1: Lines(max_line), 2: Lines(max_line)}
        self._stopping = False
        self._leash: subprocess.Process | None = None

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
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(env or {})
        try:
            _, child = await asyncio.get_running_loop().subprocess_exec(
                lambda: cls(on_line, foreign, max_line), *argv, cwd=cwd, env=environment, start_new_session=True
            )
        except OSError as error:
            raise UpstreamFault("unavailable", f"{argv[0]} could not be started: {error.strerror}") from None
        try:
            await child._put_on_leash()
        except BaseException:
            await child.stop(0)
            raise
        return child

    def write(self, line: bytes) -> None:
        """Raises UpstreamFault `unavailable` if not one byte of it will leave."""
        if self.ended.done() or self._stdin.is_closing():
            raise UpstreamFault("unavailable", "the process has ended")
        if self._stdin.get_write_buffer_size() > _MAX_UNREAD:
            raise UpstreamFault("unavailable", "the process doesn't read what it is sent")
        self._stdin.write(line)

    async def stop(self, grace_s: float) -> None:
        """Close its stdin, then ask the group to end, then, after `grace_s`, kill it. Returns when it is gone; may be called again."""
        self._stopping = True
        self._stdin.close()
        for wait_s, signum in ((min(grace_s, _CLOSING_S), signal.SIGTERM), (grace_s, signal.SIGKILL)):
            await asyncio.wait([self.ended], timeout=wait_s)
            if not self.ended.done():
                self._signal(signum)
        await asyncio.wait([self.ended])
        if self._leash is not None:
            with suppress(ProcessLookupError):
                self._leash.kill()
            await self._leash.wait()

    # ---- asyncio calls these --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        for line in self._lines[fd].feed(data):
            if fd == 1:
                self._on_line(line)
            else:
                self._foreign.write(logging.INFO, "stderr", line)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Without stdin or stdout it can serve nobody; mostly it is just about to exit by itself."""
        if fd != 2 and not self._stopping:
            asyncio.get_running_loop().call_later(_CLOSING_S, self._kill_if_running)

    def process_exited(self) -> None:
        """What it started and left behind ends with it; what fled from its group at least can't keep its pipes open."""
        self._signal(signal.SIGKILL)
        asyncio.get_running_loop().call_later(_CLOSING_S, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport.close()
        self.ended.set_result(self._transport.get_returncode() or 0)

    # ---- the group ------------------------------------------------------------------------------------------------------

    def _kill_if_running(self) -> None:
        if self._transport.get_returncode() is None:
            self._signal(signal.SIGKILL)

    def _signal(self, signum: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._transport.get_pid(), signum)

    async def _put_on_leash(self) -> None:
        try:
            self._leash = await subprocess.create_subprocess_exec(
                *_LEASH, str(self._transport.get_pid()), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={}, cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError:
            self._foreign.note("without /bin/sh nothing ends this process if the gateway is killed")
