"""The machine's clocks and randomness behind the ports Clock and Ids; with settings, the only place that knows of either."""

from __future__ import annotations

import asyncio
import time
from hashlib import blake2b, sha256
from os import urandom

from gateway.core.model import Json, Payload
from gateway.ports import Clock
from gateway.wire import json

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # elsewhere than on Linux monotonic is the nearest there is
_ANY_DEPTH = 1000  # more than can be written, so that whatever was recorded can be read
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]


class SystemClock:
    """The port Clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(_BOOTTIME) // 1_000_000

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)


class SystemIds:
    """The port Ids. `secret` keys the salts, so that only who knows it can tell whether a guess at erased bytes was right."""

    def __init__(self, clock: Clock, secret: bytes) -> None:
        self._clock = clock
        self._salt = blake2b(key=blake2b(secret, person=b"gateway salts").digest(), digest_size=16)

    def new(self, prefix: str) -> str:
        """`prefix_` and 26 characters of Crockford's base32: 48 bits of ms, then 80 of randomness. Without `_` and `.` inside."""
        number = self._clock.now_ms() << 80 | int.from_bytes(urandom(10), "big")
        return f"{prefix}_" + "".join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])

    def seal(self, stream: str, value: Json) -> Payload:
        data = bytes(memoryview(json.dumps(value)))  # an exact copy: the encoder's own buffer is kilobytes long, and payloads are kept
        salting = self._salt.copy()
        salting.update(b"%b\0%b" % (stream.encode(), data))
        salt = salting.digest()
        return Payload(sha256(salt + data).hexdigest(), salt, data)

    def unseal(self, data: bytes) -> Json:
        return json.parse(data, max_depth=_ANY_DEPTH)
