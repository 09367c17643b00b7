"""Many deadlines with one timer ring as they would with a timer each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from gateway.engine.alarms import Alarms
from tests.waiting import until

pytestmark = pytest.mark.anyio


async def rung(*alarms: tuple[float, str]) -> tuple[list[str], dict[str, int]]:
    """Set these, in order; what has rung, as it comes, and their numbers."""
    heard: list[str] = []
    return heard, {name: Alarms.of_loop().after(seconds, partial(heard.append, name)) for seconds, name in alarms}


async def test_they_ring_in_the_order_of_their_times_whatever_the_order_of_their_setting() -> None:
    heard, _ = await rung((0.03, "last"), (0.01, "first"), (0.02, "second"))
    await until(lambda: len(heard) == 3, "3 of them")
    assert heard == ["first", "second", "last"]


async def test_one_that_is_taken_back_does_not_ring_and_those_after_it_do() -> None:
    heard, numbers = await rung((0.01, "taken"), (0.02, "kept"))
    Alarms.of_loop().take_back(numbers["taken"])
    Alarms.of_loop().take_back(numbers["taken"])
    await until(lambda: len(heard) == 1, "1 of them")
    assert heard == ["kept"]


async def test_one_that_rings_may_take_back_another_that_is_due_and_set_a_new_one() -> None:
    alarms, heard, other = Alarms.of_loop(), [], [0]

    def first() -> None:
        heard.append("first")
        alarms.take_back(other[0])
        alarms.after(0, partial(heard.append, "new"))

    alarms.after(0, first)
    other[0] = alarms.after(0, partial(heard.append, "second"))
    await until(lambda: len(heard) == 2, "2 of them")
    await asyncio.sleep(0.01)
    assert heard == ["first", "new"]


async def test_one_that_raises_keeps_no_later_one_from_ringing() -> None:
    loop, raised = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda loop, context: raised.append(context["exception"]))

    def broken() -> None:
        raise ValueError("broken")

    Alarms.of_loop().after(0.005, broken)
    heard, _ = await rung((0.01, "later"))
    await until(lambda: len(heard) == 1, "1 of them")
    assert [type(each) for each in raised] == [ValueError]


async def test_each_loop_has_its_own() -> None:
    make: Callable[[], Alarms] = Alarms.of_loop

    async def other() -> Alarms:
        return make()

    assert make() is make()
    assert await asyncio.to_thread(asyncio.run, other()) is not make()
