"""Events as ledger text and back: compact JSON of the fields that differ from their defaults, and the chain of hashes over it.

The body is the event: no field is renamed, none is dropped, and a body that this code can't read whole is refused, never guessed.
Arrays come back as tuples where the field says so; inside a dict they come back as lists, as JSON has them.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from gateway.core.events import KINDS, Event
from gateway.wire import json

_DEPTH: Final = 1000  # more than can be written, so that whatever was recorded can be read


class Unreadable(ValueError):
    """A recorded text that this code can't read: newer, foreign or damaged."""


_READERS: Final = {name: msgspec.json.Decoder(kind).decode for name, kind in KINDS.items()}
_written: Final = msgspec.json.Encoder().encode


def encode(event: Event) -> str:
    """The body of an event. Raises TypeError or ValueError for a field that holds no JSON value."""
    return _written(event).decode()


def decode(kind: str, version: int, body: str) -> Event:
    """The event of a body. Raises Unreadable."""
    read = _READERS.get(kind)
    if read is None or version > KINDS[kind].VERSION:
        raise Unreadable(f"{kind} version {version} is not known here: written by a newer gateway")
    try:
        event = read(body)
        if _written(event) != body.encode():  # of two equal keys msgspec keeps the last
            json.parse(body.encode(), max_depth=_DEPTH)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(f"{kind} version {version}: {error}") from None
    return event


def genesis(stream: str) -> str:
    """What the first hash of a stream stands on."""
    return sha256(stream.encode()).hexdigest()


def link(previous: str, stream: str, seq: int, event_id: str, at: int, kind: str, version: int, body: str) -> str:
    """The hash of an event: over the one before it and every column of its row."""
    return sha256(f"{previous}\n{seq} {event_id} {at} {kind} {version} {len(stream)}\n{stream}{body}".encode()).hexdigest()
