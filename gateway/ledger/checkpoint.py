"""Folded states as text and back, without pickle: a ledger's file must not be able to run code.

Scalars and objects with text keys stand as in JSON. Every array begins with what it is: `l`ist, `t`uple, `s`et (frozen), `m`ap
(immutables; keys of any kind, alternating with values), `e`num member, `c`lass (a struct with its non-default fields).
Classes are named `module:Class` below one package, and only those that are already imported are made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from immutables import Map
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from gateway.ledger.codec import Unreadable
from gateway.wire import json

_PLAIN: Final = frozenset({str, int, bool, float, type(None)})
_SEQUENCES: Final[dict[type, str]] = {list: "l", tuple: "t", frozenset: "s"}
_DEPTH: Final = 1000


class Checkpoints:
    """Writes and reads states made of the structs and enums of one package."""

    def __init__(self, package: str) -> None:
        self._prefix = package + "."
        self._packers: dict[type, Callable[[Any], Any]] = {}
        self._classes: dict[str, type] = {}

    def dump(self, state: Any) -> str:
        """Raises TypeError for a value that has no text here."""
        return json.dumps(self._pack(state)).decode()

    def load(self, text: str) -> Any:
        """Raises Unreadable."""
        try:
            return self._unpack(json.parse(text.encode(), max_depth=_DEPTH))
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise Unreadable(f"checkpoint: {error!r}") from None

    def _pack(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind in _SEQUENCES:
            return [_SEQUENCES[kind], *map(self._pack, value)]
        if kind is Map:
            halves = [half for entry in value.items() for half in entry]
            return ["m", *[half if type(half) in _PLAIN else self._pack(half) for half in halves]]
        if kind is dict and all(type(key) is str for key in value):
            return {key: self._pack(each) for key, each in value.items()}
        packer = self._packers.get(kind)
        if packer is None:
            packer = self._packers[kind] = self._packer(kind)
        return packer(value)

    def _packer(self, kind: type) -> Callable[[Any], Any]:
        called = f"{kind.__module__}:{kind.__qualname__}".removeprefix(self._prefix)
        if self._class(called) is not kind:
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} can't stand in a checkpoint: it isn't what its name says")
        if issubclass(kind, Enum):
            return lambda member: ["e", called, member.value]
        defaults, pack = [(field.name, _default(field)) for field in fields(kind)], self._pack  # type: ignore[arg-type]  # `_class` let it through

        def packed(thing: Any) -> Any:
            held = [(name, getattr(thing, name), default) for name, default in defaults]
            changed = [(name, value) for name, value, default in held if value is not default and value != default]
            return ["c", called, {each: value if type(value) in _PLAIN else pack(value) for each, value in changed}]

        return packed

    def _class(self, name: str) -> type:
        """A struct or enum of the package, by its written name; nothing is imported for it."""
        found = self._classes.get(name)
        if found is None:
            module, _, qualname = name.partition(":")
            module = self._prefix + module
            found = getattr(sys.modules.get(module), qualname, None)
            if not isinstance(found, type) or found.__module__ != module or not issubclass(found, (Struct, Enum)):
                raise TypeError(f"{name} is no struct or enum of {self._prefix}*")
            self._classes[name] = found
        return found

    def _unpack(self, packed: Any) -> Any:
        if type(packed) in _PLAIN:
            return packed
        if type(packed) is dict:
            return {key: value if type(value) in _PLAIN else self._unpack(value) for key, value in packed.items()}
        tag, rest = packed[0], packed[1:]
        if tag == "c":
            return self._class(rest[0])(**self._unpack(rest[1]))
        if tag == "e":
            return self._class(rest[0])(rest[1])
        if tag == "m":
            halves = iter([self._unpack(each) for each in rest])
            return Map(zip(halves, halves, strict=True))
        make = {"l": list, "t": tuple, "s": frozenset}[tag]
        return make(self._unpack(each) for each in rest)


def _default(field: FieldInfo) -> Any:
    """For a field without a default a value that equals nothing."""
    return field.default if field.default_factory is NODEFAULT else field.default_factory()
