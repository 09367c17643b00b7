"""A client's two pipes: lines come whole and bounded, what is said is written in order, and neither end can stop the loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from gateway.stdio.pipes import Closed, Pipes
from gateway.upstreams.lines import Overlong

pytestmark = pytest.mark.anyio


@dataclass
class Ends:
    """File descriptors: the client writes to `say` and reads from `hear`."""

    into: int
    say: int
    hear: int
    out: int


@pytest.fixture
def ends() -> Iterator[Ends]:
    into, say = os.pipe()
    hear, out = os.pipe()
    ends = Ends(into, say, hear, out)
    yield ends
    for one in (say, hear, out):
        try:
            os.close(one)
        except OSError:
            pass


async def heard(pipes: Pipes) -> list[bytes | Overlong]:
    async with asyncio.timeout(5):
        return [line async for line in pipes.lines()]


async def test_lines_are_given_until_the_client_closes_its_end(ends: Ends) -> None:
    pipes = Pipes(ends.into, ends.out, 100)
    os.write(ends.say, b'{"a":1}\n\n{"b"')
    os.write(ends.say, b":2}\r\nunfinished")
    os.close(ends.say)
    assert await heard(pipes) == [b'{"a":1}', b"", b'{"b":2}']


async def test_a_line_beyond_the_bound_is_cut(ends: Ends) -> None:
    pipes = Pipes(ends.into, ends.out, 1000)
    os.write(ends.say, b"x" * 1001 + b"\n" + b"y" * 1000 + b"\n")
    os.close(ends.say)
    cut, whole = await heard(pipes)
    assert (isinstance(cut, Overlong), whole) == (True, b"y" * 1000)


async def test_no_more_is_read_than_is_taken(ends: Ends) -> None:
    """The client has to wait where nobody takes its lines; the loop goes on meanwhile."""
    pipes = Pipes(ends.into, ends.out, 1 << 20)
    os.set_blocking(ends.say, False)
    lines = pipes.lines()
    os.write(ends.say, b"first\n")
    async with asyncio.timeout(5):
        assert await anext(lines) == b"first"
    written = 0
    try:
        while written < 1 << 22:
            written += os.write(ends.say, b"x" * 65535 + b"\n")
    except BlockingIOError:
        pass
    assert 0 < written < 1 << 22
    os.set_blocking(ends.say, True)
    os.close(ends.say)
    await lines.aclose()


async def test_what_is_said_is_one_line_each_in_order(ends: Ends) -> None:
    pipes = Pipes(ends.into, ends.out, 100)
    async with asyncio.timeout(5):
        await asyncio.gather(*(pipes.say(b'{"n":\n%d}' % number) for number in range(3)))
    assert os.read(ends.hear, 1000) == b'{"n": 0}\n{"n": 1}\n{"n": 2}\n'


async def test_a_client_that_does_not_read_makes_only_its_own_answers_wait(ends: Ends) -> None:
    pipes = Pipes(ends.into, ends.out, 100)
    large = asyncio.ensure_future(pipes.say(b"x" * (1 << 20)))
    done, _ = await asyncio.wait({large}, timeout=0.05)
    assert not done
    read = b""
    while not read.endswith(b"\n"):
        read += await asyncio.to_thread(os.read, ends.hear, 1 << 20)
    async with asyncio.timeout(5):
        await large
    assert len(read) == (1 << 20) + 1


async def test_a_client_that_has_gone_is_told_to_whoever_speaks(ends: Ends) -> None:
    pipes = Pipes(ends.into, ends.out, 100)
    os.close(ends.hear)
    async with asyncio.timeout(5):
        with pytest.raises(Closed):
            await pipes.say(b"{}")


async def test_a_file_can_be_read_too(tmp_path, ends: Ends) -> None:
    (tmp_path / "said").write_bytes(b"one\ntwo\n")
    with (tmp_path / "said").open("rb") as file:
        pipes = Pipes(file.fileno(), ends.out, 100)
        assert await heard(pipes) == [b"one", b"two"]
