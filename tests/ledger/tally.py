"""A tiny fold for tests: who appended how often. A note "forbidden" is an event that the fold refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from immutables import Map
from msgspec import Struct, field
from msgspec.structs import replace

from gateway.core.events import Event, RunFrozen
from gateway.core.model import Payload
from gateway.ports import Decision, Step


class Tally(Struct, frozen=True):
    seq: int = 0
    at: int = 0
    by: Map[str, int] = field(default_factory=Map)


class SettableClock:
    """Sleeps a tenth of what is asked, or until `still` is set."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self.now = now
        self.still: asyncio.Event | None = None

    def now_ms(self) -> int:
        return self.now

    def boot_ms(self) -> int:
        return self.now

    async def sleep(self, ms: int) -> None:
        await (self.still.wait() if self.still else asyncio.sleep(ms / 10_000))


def empty(stream: str) -> Tally:
    return Tally()


def evolve(state: Tally, seq: int, at: int, event: Event) -> Tally:
    assert isinstance(event, RunFrozen)
    if event.note == "forbidden":
        raise ValueError("the fold refuses this event")
    return replace(state, seq=seq, at=at, by=state.by.set(event.by, state.by.get(event.by, 0) + 1))


def event(stream: str, by: str = "user:mia", note: str = "") -> Event:
    return RunFrozen(stream, by, note)


def append(*streams: str, by: str = "user:mia", note: str = "", payloads: tuple[Payload, ...] = ()) -> Step:
    """One event in each stream; answers the seqs that were there before."""

    def step(states: Mapping[str, Any], now: int) -> Decision:
        kept = tuple((streams[0], payload) for payload in payloads)
        return Decision(tuple((stream, event(stream, by, note)) for stream in streams), [states[stream].seq for stream in streams], kept)

    return step


def look(states: Mapping[str, Any], now: int) -> Decision:
    """Appends nothing; answers the seqs."""
    return Decision((), {stream: state.seq for stream, state in states.items()})


def sealed(data: bytes, salt: bytes = b"salt") -> Payload:
    return Payload(sha256(salt + data).hexdigest(), salt, data)
