"""Workers: the first alone, then the others; one that dies is replaced, all end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.waiting import START_S

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import os, signal, sys, time
from gateway import app_workers
app_workers.AGAIN_S = 0.05

def serve(serving):
    if sys.argv[1] == "fails":
        sys.exit(7)
    kind = "worker" if serving is None else "first"
    os.write(1, f"{kind} {os.getpid()}\\n".encode())  # at once: two may say it at the same time
    if serving is not None:
        serving()
    signal.pause()

code = app_workers.Workers(int(sys.argv[2]), serve).run()
print("parent" if code else "over", flush=True)
sys.exit(code)
"""


@contextmanager
def workers(*argv: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *argv], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def next_one(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stdout is not None
    kind, number = process.stdout.readline().split()
    return kind, int(number)


def test_all_serve_once_the_first_does_and_a_dead_one_is_replaced() -> None:
    with workers("serves", "3") as process:
        found = [next_one(process) for _ in range(3)]
        assert [kind for kind, _ in found] == ["first", "worker", "worker"]
        assert len({number for _, number in found}) == 3
        os.kill(found[0][1], signal.SIGKILL)
        kind, number = next_one(process)
        assert (kind, number in dict(map(reversed, found))) == ("worker", False)  # type: ignore[call-overload]


@pytest.mark.parametrize(("by", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 1)])
def test_a_signal_to_the_parent_ends_all_and_then_itself(by: signal.Signals, code: int) -> None:
    with workers("serves", "2") as process:
        for _ in range(2):
            next_one(process)
        process.send_signal(by)
        assert process.wait(START_S) == code or by == signal.SIGINT
        assert process.stdout is not None
        assert process.stdout.read() == ""  # whoever had it open has ended


def test_workers_end_with_a_parent_that_is_killed() -> None:
    with workers("serves", "2") as process:
        for _ in range(2):
            next_one(process)
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == ""


def test_a_first_worker_that_cannot_start_is_the_end_and_nobody_tries_again() -> None:
    with workers("fails", "3") as process:
        out, _ = process.communicate(timeout=START_S)
        assert (process.returncode, out) == (7, "parent\n")
