"""Many deadlines of one loop with one timer: setting one and taking it back is a dict's work, where a timer each costs ten times that."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import count
from weakref import WeakKeyDictionary


class Alarms:
    """`of_loop()` gives those of the running loop. An alarm that is taken back leaves its timer; it wakes once for nothing."""

    _all: WeakKeyDictionary[asyncio.AbstractEventLoop, Alarms] = WeakKeyDictionary()
    _latest: Alarms | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._numbers = count()
        self._set: dict[int, tuple[float, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf

    @classmethod
    def of_loop(cls) -> Alarms:
        loop, alarms = asyncio.get_running_loop(), cls._latest
        if alarms is None or alarms._loop is not loop:
            alarms = cls._latest = cls._all.get(loop) or cls(loop)
            cls._all[loop] = alarms
        return alarms

    def after(self, seconds: float, ring: Callable[[], None]) -> int:
        """Call `ring` then, unless the number that this returns is taken back before."""
        number, at = next(self._numbers), self._loop.time() + seconds
        self._set[number] = (at, ring)
        if at < self._wakes_at:
            self._wake_at(at)
        return number

    def take_back(self, number: int) -> None:
        self._set.pop(number, None)

    def _wake_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at, self._timer = at, self._loop.call_at(at, self._wake)

    def _wake(self) -> None:
        now, self._wakes_at, self._timer = self._loop.time(), math.inf, None
        later = [at for at, _ in self._set.values() if at > now]
        if later:
            self._wake_at(min(later))
        for number, (at, ring) in list(self._set.items()):
            if at <= now and self._set.pop(number, None) is not None:
                ring()
