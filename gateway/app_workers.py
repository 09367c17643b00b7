"""Several processes that serve one deployment on one address of one machine.

They share the socket that their parent opened, so whoever is free takes the next connection. One that dies is started again; all end with their
parent, however that ends.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

log = logging.getLogger("gateway")

AGAIN_S: Final = 1.0
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Serve = Callable[[Callable[[], None] | None], None]
"""Serve until a signal says otherwise. What is given is called once connections are taken, if it is there; it says so to people too."""


class Workers:
    """The parent's life is `run`. It has no threads, opens nothing but the socket, and forks: in each worker, too, `run` ends when serving does."""

    def __init__(self, count: int, serve: Serve) -> None:
        self._count = count
        self._serve = serve
        self._alive: set[int] = set()
        self._end: int | None = None
        self._lifeline, self._life = os.pipe()

    def run(self) -> int:
        """The first worker alone, for it may have to say why it can't; then the others. The exit status, unless a signal ended it."""
        for number in SIGNALS:
            signal.signal(number, self._pass_on)
        served, serving = os.pipe()
        if self._is_worker():
            return self._work(lambda: _say(serving))
        os.close(serving)
        wanted = self._count if os.read(served, 1) else 0
        while self._alive:
            if len(self._alive) < wanted and self._end is None:
                if self._is_worker():
                    return self._work(None)
            else:
                status = self._one_ended()
        if self._end is not None:
            signal.signal(self._end, signal.default_int_handler if self._end == signal.SIGINT else signal.SIG_DFL)
            signal.raise_signal(self._end)
        return status

    def _is_worker(self) -> bool:
        """Fork. A signal that comes meanwhile finds the new one."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            process = os.fork()
            if process:
                self._alive.add(process)
                return False
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            return True
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _work(self, serving: Callable[[], None] | None) -> int:
        os.close(self._life)
        threading.Thread(target=self._end_with_parent, daemon=True).start()
        self._serve(serving)
        return 0

    def _end_with_parent(self) -> None:
        os.read(self._lifeline, 1)  # nobody ever writes there: it returns when the last writer, the parent, is gone
        os.kill(os.getpid(), signal.SIGTERM)

    def _one_ended(self) -> int:
        process, status = os.wait()
        self._alive.discard(process)
        code = os.waitstatus_to_exitcode(status)
        if self._alive and self._end is None:
            log.warning("worker %d ended with %d; another takes its place", process, code)
            time.sleep(AGAIN_S)
        return code

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._end = number
        for process in self._alive:
            os.kill(process, signal.SIGTERM)


def _say(pipe: int) -> None:
    os.write(pipe, b"1")
    os.close(pipe)
