"""One run of a real program: stdin, stdout up to a bound, the end of stderr."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from gateway.upstreams.command_run import MAX_STDERR, Run
from gateway.upstreams.lines import Foreign

pytestmark = pytest.mark.anyio


async def ran(script: str, given: bytes | None = None, max_bytes: int = 100_000, **more) -> Run:
    foreign = Foreign(logging.getLogger("test.run"), asyncio.get_running_loop().time)
    run = await Run.start([sys.executable, "-c", script], given, foreign, max_bytes=max_bytes, cwd=None, env=more)
    await asyncio.wait_for(asyncio.shield(run.ended), 5)
    await run.stop(0)
    return run


async def test_it_gets_all_of_its_stdin_and_then_its_end():
    run = await ran("import sys; print(len(sys.stdin.read()), end='')", b"x" * 300_000)
    assert (bytes(run.stdout), run.is_cut) == (b"300000", False)


async def test_without_a_stdin_it_reads_nothing():
    assert (await ran("import sys; print(repr(sys.stdin.read()), end='')")).stdout == b"''"


async def test_input_that_nobody_reads_hurts_nobody():
    assert (await ran("pass", b"x" * 1_000_000)).ended.result() == 0


async def test_output_past_the_bound_is_read_and_dropped():
    run = await ran("print('x' * 1_000_000, end='')", max_bytes=1000)
    assert (bytes(run.stdout), run.is_cut, run.ended.result()) == (b"x" * 1000, True, 0)
    run = await ran("print('x' * 1000, end='')", max_bytes=1000)
    assert not run.is_cut


async def test_only_the_end_of_stderr_is_kept_and_lines_of_it_are_logged(caplog):
    caplog.set_level(logging.INFO, "test.run")
    run = await ran("import sys; print('first', file=sys.stderr); sys.stderr.write('y' * 10_000 + 'end')")
    assert len(run.stderr) == MAX_STDERR
    assert run.stderr.endswith(b"yend")
    assert "stderr: first" in caplog.messages
