"""A process in a process group of its own, and no orphans, however either side ends.

When it ends, what is left of its group is killed; when the gateway ends, even by kill -9, a tiny leash (a shell that waits for the end of a
pipe which only the gateway holds) kills the group. It sees PATH, HOME and the like, never the gateway's other variables.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self, cast

from gateway.ports import UpstreamFault

CLOSING_S: Final = 1.0

_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM")
_LEASH: Final = ("/bin/sh", "-c", 'read -r _; kill -s KILL -- "-$0"')


class Process(asyncio.SubprocessProtocol):
    """Made by `started`. `ended` is done, with the exit code (below 0: the signal), when it is gone and nothing more can come from it."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._stopping = False
        self._leash: subprocess.Process | None = None

    async def started(
        self,
        argv: Sequence[str],
        note: Callable[[str], None],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int = subprocess.PIPE,
    ) -> Self:
        """Run it; `note` is told what is not as it should be. Raises UpstreamFault `unavailable` if it can't be run."""
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(env or {})
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self, *argv, cwd=cwd, env=environment, start_new_session=True, stdin=stdin
            )
        except OSError as error:
            raise UpstreamFault("unavailable", f"{argv[0]} could not be started: {error.strerror}") from None
        try:
            await self._put_on_leash(note)
        except BaseException:
            await self.stop(0)
            raise
        return self

    async def stop(self, grace_s: float, *, patience_s: float = CLOSING_S) -> None:
        """Close its stdin, after `patience_s` ask the group to end, after `grace_s` more kill it. Returns when it is gone; may be called again."""
        self._stopping = True
        if self._stdin is not None:
            self._stdin.close()
        for wait_s, signum in ((min(grace_s, patience_s), signal.SIGTERM), (grace_s, signal.SIGKILL)):
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
        self._stdin = cast(asyncio.WriteTransport | None, self._transport.get_pipe_transport(0))

    def process_exited(self) -> None:
        """What it started and left behind ends with it; what fled from its group at least can't keep its pipes open."""
        self._signal(signal.SIGKILL)
        asyncio.get_running_loop().call_later(CLOSING_S, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport.close()
        self.ended.set_result(self._transport.get_returncode() or 0)

    # ---- the group ------------------------------------------------------------------------------------------------------

    def kill_if_running(self) -> None:
        if self._transport.get_returncode() is None:
            self._signal(signal.SIGKILL)

    def _signal(self, signum: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._transport.get_pid(), signum)

    async def _put_on_leash(self, note: Callable[[str], None]) -> None:
        try:
            self._leash = await subprocess.create_subprocess_exec(
                *_LEASH, str(self._transport.get_pid()), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={}, cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError:
            note("without /bin/sh nothing ends this process if the gateway is killed")
