"""Events as ledger text and back: compact JSON of the fields that differ from their defaults, and the chain of hashes over it.

The body is the event: no field is renamed, none is dropped, and a body that this code can't read whole is refused, never guessed.
Arrays come back as tuples where the field says so; inside a dict they come back as lists, as JSON has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, get_origin, get_type_hints

from gateway.core.events import KINDS, Event
from gateway.wire import json

_DEPTH: Final = 1000  # more than `dumps` can write, so that whatever was recorded can be read


class Unreadable(ValueError):
    """A recorded text that this code can't read: newer, foreign or damaged."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """How one kind is written: its fields with their defaults, in order, and which of them are tuples."""

    kind: type[Event]
    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    tuples: tuple[str, ...]
    values: Callable[[Event], tuple[Any, ...]]


def default_of(field: Field[Any]) -> Any:
    """A field's default; for a field without one a value that equals nothing."""
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING


def values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A getter of these attributes, always as a tuple (`attrgetter` gives a bare value for one name)."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda thing: tuple(getattr(thing, name) for name in names)


def _shape(kind: type[Event]) -> _Shape:
    own = fields(kind)
    hints = get_type_hints(kind)
    names = tuple(field.name for field in own)
    tuples = tuple(name for name in names if get_origin(hints[name]) is tuple)
    return _Shape(kind, names, tuple(map(default_of, own)), tuples, values_of(names))


_SHAPES: Final = {kind: _shape(kind) for kind in KINDS.values()}


def encode(event: Event) -> str:
    """The body of an event. Raises TypeError or ValueError for a field that holds no JSON value."""
    shape = _SHAPES[type(event)]
    written = zip(shape.names, shape.defaults, shape.values(event), strict=True)
    return json.dumps({name: value for name, default, value in written if value is not default and value != default}).decode()


def decode(kind: str, version: int, body: str) -> Event:
    """The event of a body. Raises Unreadable."""
    shape = _SHAPES.get(KINDS.get(kind, Event))
    if shape is None or version > shape.kind.VERSION:
        raise Unreadable(f"{kind} version {version} is not known here: written by a newer gateway")
    try:
        given = json.parse(body.encode(), max_depth=_DEPTH)
        for name in shape.tuples:
            if name in given:
                given[name] = tuple(given[name])
        return shape.kind(**given)
    except (TypeError, ValueError) as error:
        raise Unreadable(f"{kind} version {version}: {error}") from None


def genesis(stream: str) -> str:
    """What the first hash of a stream stands on."""
    return sha256(stream.encode()).hexdigest()


def link(previous: str, stream: str, seq: int, event_id: str, at: int, kind: str, version: int, body: str) -> str:
    """The hash of an event: over the one before it and every column of its row."""
    return sha256(f"{previous}\n{seq} {event_id} {at} {kind} {version} {len(stream)}\n{stream}{body}".encode()).hexdigest()
