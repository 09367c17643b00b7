"""A process that has imported the gateway already and forks one whenever it is asked: a real process to be killed, up in a fraction of the time.

It reads one line of JSON a wish: `{"argv": […], "env": {…}, "log": path}` starts a gateway and answers its pid, `{"reap": pid}` answers how one
that is dead ended (as `waitpid` says it). It ends with its input, and whatever it started ends with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1


class Zygote:
    """The other end of the pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def fork(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> int:
        """The pid of a new gateway."""
        return int(self._ask(argv=list(argv), env=dict(env), log=str(log)))

    def reap(self, pid: int) -> int:
        """The exit code of one that is dead, negative for a signal's number."""
        return int(self._ask(reap=pid))

    def close(self) -> None:
        self._process.communicate(timeout=5)

    def _ask(self, **wish: Any) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(wish) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


def main() -> None:
    from tests.faults import crashing

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for line in sys.stdin:
        wish = json.loads(line)
        if "reap" in wish:
            told = os.waitstatus_to_exitcode(os.waitpid(wish["reap"], 0)[1])
        elif (told := os.fork()) == 0:
            _become(wish, crashing)
        print(told, flush=True)


def _become(wish: Mapping[str, Any], crashing: Any) -> None:
    """The child's whole life."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.update(wish["env"])
    nothing, log = os.open(os.devnull, os.O_RDWR), os.open(wish["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, file in enumerate((nothing, nothing, log)):
        os.dup2(file, number)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 for as long as the process lives; what was read ahead is the zygote's
    status = 70
    try:
        status = crashing.main(wish["argv"])
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
