"""The latest values in memory, up to a number of bytes; the oldest go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V", bytes, str)


class Recent(Generic[K, V]):
    """`most`: bytes (or characters) of all values; one larger than an eighth of that is not kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def forget(self, gone: Callable[[K], bool]) -> None:
        """Let go of every value whose key is gone."""
        for key in [key for key in self._values if gone(key)]:
            self._held -= len(self._values.pop(key))

    def put(self, key: K, value: V) -> None:
        if key in self._values or len(value) > self._most // 8:
            return
        self._values[key] = value
        self._held += len(value)
        while self._held > self._most:
            self._held -= len(self._values.popitem(last=False)[1])
