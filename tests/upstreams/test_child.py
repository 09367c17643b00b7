"""Real child processes: lines, environment, and that nothing outlives anything."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.ports import UpstreamFault
from gateway.upstreams.child import Child
from gateway.upstreams.lines import Foreign, Overlong

pytestmark = pytest.mark.anyio

GRANDCHILD = "import subprocess,sys; p = subprocess.Popen([sys.executable,'-c','import time; time.sleep(60)']{}); print(p.pid, flush=True)"


class Heard:
    """The lines so far, and a way to wait for the next."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | Overlong] = asyncio.Queue()

    async def line(self) -> bytes | Overlong:
        async with asyncio.timeout(5):
            return await self.queue.get()


@asynccontextmanager
async def running(script: str, *, grace_s: float = 0.2, max_line: int = 100_000, **more):
    heard = Heard()
    foreign = Foreign(logging.getLogger("test.child"), asyncio.get_running_loop().time)
    child = await Child.start([sys.executable, "-c", script], heard.queue.put_nowait, foreign, max_line=max_line, **more)
    try:
        yield child, heard
    finally:
        async with asyncio.timeout(5):
            await child.stop(grace_s)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def gone(pid: int) -> bool:
    for _ in range(500):
        if not alive(pid):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_lines_go_in_and_come_out():
    async with running("import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)") as (child, heard):
        child.write(b"hello\n")
        assert await heard.line() == b"HELLO"
        child.write(b"x" * 90_000 + b"\n")
        assert await heard.line() == b"X" * 90_000


async def test_a_line_past_the_cap_keeps_its_ends():
    async with running("print('a' * 200_000 + 'b', flush=True); input()") as (_, heard):
        line = await heard.line()
        assert isinstance(line, Overlong)
        assert line.tail.endswith(b"ab")


async def test_stderr_goes_to_the_log(caplog):
    with caplog.at_level(logging.INFO, "test.child"):
        async with running("import sys; print('oh\\x1b[0m', file=sys.stderr, flush=True); print('done', flush=True); input()") as (_, heard):
            await heard.line()
    assert "stderr: oh\\u001b[0m" in caplog.messages


async def test_it_sees_a_minimal_environment_and_what_is_configured(monkeypatch):
    monkeypatch.setenv("GATEWAY_SECRET", "s3cret")
    async with running("import os; print(sorted(os.environ), os.environ['X'], flush=True); input()", env={"X": "1"}) as (_, heard):
        line = await heard.line()
    assert b"GATEWAY_SECRET" not in line
    assert b"'PATH'" in line
    assert line.endswith(b"1")


async def test_it_runs_in_the_given_folder(tmp_path):
    async with running("import os; print(os.getcwd(), flush=True); input()", cwd=tmp_path) as (_, heard):
        assert (await heard.line()).decode() == str(tmp_path.resolve())


async def test_a_program_that_does_not_exist_is_unavailable():
    foreign = Foreign(logging.getLogger("test.child"), asyncio.get_running_loop().time)
    with pytest.raises(UpstreamFault) as caught:
        await Child.start(["/no/such/program", "--token=s3cret"], print, foreign, max_line=100)
    assert caught.value.kind == "unavailable"
    assert "s3cret" not in caught.value.message


async def test_its_exit_code_is_known_and_later_writes_are_refused():
    async with running("import sys; sys.exit(3)") as (child, _):
        async with asyncio.timeout(5):
            assert await asyncio.shield(child.ended) == 3
        with pytest.raises(UpstreamFault) as caught:
            child.write(b"x\n")
        assert caught.value.kind == "unavailable"


async def test_a_child_that_never_reads_does_not_fill_our_memory():
    async with running("import time; time.sleep(60)") as (child, _):
        child.write(b"x" * 9_000_000)
        with pytest.raises(UpstreamFault) as caught:
            child.write(b"x")
        assert caught.value.kind == "unavailable"


async def test_stop_lets_it_end_by_itself_when_its_input_closes():
    script = "import sys; sys.stdin.read(); print('bye', flush=True); sys.exit(7)"
    async with running(script, grace_s=5) as (child, heard):
        pass
    assert await heard.line() == b"bye"
    assert child.ended.result() == 7


async def test_stop_kills_what_ignores_everything():
    script = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    async with running(script) as (child, heard):
        await heard.line()
    assert child.ended.result() == -signal.SIGKILL


async def test_stop_reaches_grandchildren():
    async with running(GRANDCHILD.format("") + "; input()") as (_, heard):
        pid = int(await heard.line())
        assert alive(pid)
    assert await gone(pid)


@pytest.mark.parametrize("more", ["", ", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL"])
async def test_a_child_that_dies_takes_its_grandchildren_along(more):
    async with running(GRANDCHILD.format(more) + "; sys.exit(1)") as (child, heard):
        pid = int(await heard.line())
        async with asyncio.timeout(5):
            await asyncio.shield(child.ended)
        assert await gone(pid)


async def test_a_grandchild_that_fled_from_the_group_does_not_keep_the_end_from_being_seen():
    async with running(GRANDCHILD.format(", start_new_session=True") + "; sys.exit(1)") as (child, heard):
        pid = int(await heard.line())
        async with asyncio.timeout(5):
            await asyncio.shield(child.ended)
    os.kill(pid, signal.SIGKILL)


async def test_a_child_that_closes_its_output_is_ended():
    async with running("import os,time; os.close(1); time.sleep(60)") as (child, _):
        async with asyncio.timeout(5):
            assert await asyncio.shield(child.ended) == -signal.SIGKILL


async def test_killing_the_gateway_leaves_neither_child_nor_grandchild():
    gateway = f"""
import asyncio, logging, sys
from gateway.upstreams.child import Child
from gateway.upstreams.lines import Foreign
async def main():
    script = "import os; print(os.getpid(), flush=True); " + {(GRANDCHILD.format("") + "; import time; time.sleep(60)")!r}
    await Child.start([sys.executable, "-c", script], lambda line: print(line.decode(), flush=True),
                      Foreign(logging.getLogger(), lambda: 0.0), max_line=100)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    async with running(gateway, env={"PYTHONPATH": str(Path(__file__).parents[2])}) as (child, heard):
        pids = [int(await heard.line()), int(await heard.line())]
        assert all(alive(pid) for pid in pids)
        os.kill(child._transport.get_pid(), signal.SIGKILL)
        for pid in pids:
            assert await gone(pid)


async def test_no_leash_is_left_behind():
    async with running("input()") as (child, _):
        leash = child._leash.pid
        assert alive(leash)
    assert await gone(leash)
