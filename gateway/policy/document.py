"""One policy file while it is being compiled: the part of its data that can be used, and every mistake so far.

What has a mistake is left out and the rest is judged all the same, so that one run shows all there is to put right. A complaint about a place
that holds, or stands in, something left out is no news: it may only follow from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from gateway.core.canonical import digest
from gateway.policy.conditions import CompiledCondition, CompiledValue, compile_condition, compile_value
from gateway.policy.expressions import ConditionError
from gateway.policy.schema_index import ShapeError
from gateway.policy.shapes import CompiledShape, compile_shape
from gateway.source import Mistake, Source, child

T = TypeVar("T")
RESULT_VARIABLES = frozenset({"result"})


class Document:
    """`data` is the file's mapping without what can't be used; mistakes are added by `report`."""

    def __init__(self, source: Source, mistakes: Iterable[Mistake]) -> None:
        self.source = source
        self.mistakes = list(mistakes)
        self._broken = frozenset(mistake.pointer for mistake in self.mistakes if mistake.pointer)
        self.data: Mapping[str, Any] = _without(source.data, "", self._broken) if isinstance(source.data, dict) else {}

    def part(self, name: str) -> Mapping[str, Any]:
        """A mapping at the top; empty where there is none."""
        found: Mapping[str, Any] = self.data.get(name, {})
        return found

    def sound(self, pointer: str) -> bool:
        """Was nothing left out here, inside or around?"""
        return not any(f"{one}/".startswith(f"{other}/") for broken in self._broken for one, other in ((broken, pointer), (pointer, broken)))

    def report(self, pointer: str, message: str) -> None:
        if self.sound(pointer):
            self.mistakes.append(Mistake(self.source.at(pointer), message, pointer))

    def where(self, pointer: str) -> str:
        """`file:line` of what stands there."""
        return f"{self.source.file}:{self.source.key_at(pointer).line}"

    def digest(self, value: Any) -> str:
        """The digest of some of the data; "" once there are mistakes, since nothing comes of the file then."""
        return "" if self.mistakes else digest(value)

    def shape(self, schema: Mapping[str, Any], pointer: str) -> CompiledShape | None:
        try:
            return compile_shape(schema, where="result" if pointer.endswith("/result/schema") else "arguments")
        except ShapeError as error:
            self.report(pointer + error.pointer, error.message)
            return None

    def condition(self, text: str, variables: frozenset[str], pointer: str) -> CompiledCondition | None:
        return self._expression(compile_condition, text, variables, pointer)

    def value(self, text: str, variables: frozenset[str], pointer: str) -> CompiledValue | None:
        return self._expression(compile_value, text, variables, pointer)

    def _expression(self, compile: Callable[[str, frozenset[str]], T], text: str, variables: frozenset[str], pointer: str) -> T | None:
        try:
            return compile(text, variables)
        except ConditionError as error:
            self.report(pointer, f"{error.message} (at character {error.offset + 1} of the expression)")
            return None

    def converted(self, convert: Callable[[Any], T], value: Any, pointer: str, default: T) -> T:
        """The converted value; a ValueError becomes a mistake."""
        try:
            return convert(value)
        except ValueError as error:
            self.report(pointer, str(error))
            return default


def _without(value: Any, pointer: str, broken: frozenset[str]) -> Any:
    """A copy without what can't be used: a rule becomes null, so that the others keep their places; of any other list nothing is left."""
    if isinstance(value, dict):
        return {key: _without(item, at, broken) for key, item in value.items() if (at := child(pointer, key)) not in broken}
    if isinstance(value, list):
        items = [None if (at := child(pointer, index)) in broken else _without(item, at, broken) for index, item in enumerate(value)]
        return items if pointer == "/tools" or not any(child(pointer, index) in broken for index in range(len(items))) else []
    return value
