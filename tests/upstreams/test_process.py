"""A process and its group: how it is asked to end, and what its end says. The rest is seen through `Child` and `Run`."""

from __future__ import annotations

import asyncio
import signal
import sys
import time

import pytest

from gateway.ports import UpstreamFault
from gateway.upstreams.process import Process

pytestmark = pytest.mark.anyio


class Heard(Process):
    """A process whose first output can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.said = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.said.set()


async def running(script: str, **more) -> Heard:
    process = await Heard().started([sys.executable, "-c", f"print(1, flush=True)\n{script}"], print, **more)
    await asyncio.wait_for(process.said.wait(), 5)
    return process


async def test_it_is_asked_at_once_where_nobody_waits_for_its_input_to_close():
    process = await running("import time; time.sleep(60)")
    before = time.monotonic()
    await asyncio.wait_for(process.stop(5, patience_s=0), 5)
    assert process.ended.result() == -signal.SIGTERM
    assert time.monotonic() - before < 1


async def test_it_may_end_in_its_own_way_within_the_grace():
    process = await running("import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nprint(2)\ntime.sleep(60)")
    await asyncio.wait_for(process.stop(5, patience_s=0.2), 5)
    assert process.ended.result() == 9


async def test_it_may_have_no_input_at_all():
    process = await running("import sys; sys.exit(len(sys.stdin.read()))", stdin=asyncio.subprocess.DEVNULL)
    assert await asyncio.wait_for(asyncio.shield(process.ended), 5) == 0
    await process.stop(0)


@pytest.mark.parametrize("more", [{}, {"cwd": "/no/such/folder"}])
async def test_what_cannot_be_run_is_unavailable(more):
    with pytest.raises(UpstreamFault) as caught:
        await Process().started(["/no/such/program"], print, **more)
    assert caught.value.kind == "unavailable"
