"""A CEL program over flat variables: each path that an expression reads is one variable of a context that is kept between evaluations.

The library converts every variable of every evaluation, a map with all its members at several times the cost of a text. So texts that are
the same object as last time (the principal's claims, the run's facts) aren't handed over again. Wherever the flat form could mean
something else than the expression (an absent path, an error) it has no answer, and the expression itself is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from gateway.core.guards.guard import ConditionFault
from gateway.core.model import Json
from gateway.policy.expression_checks import Path, path_of
from gateway.policy.expressions import Node

NO_ANSWER: Final = object()
"""The expression itself has to be asked."""


def flatten(tree: Node, variables: frozenset[str]) -> tuple[Node, tuple[Path, ...]] | None:
    """The tree with its paths as variables `fact_0`, `fact_1` …, and the paths; None where a path is more than its value (`has`, a loop)."""
    paths: dict[Path, str] = {}

    def flat(node: Node) -> Node:
        path = path_of(node)
        if path and path[0] in variables:
            return Node("name", paths.setdefault(path, f"fact_{len(paths)}"), node.offset)
        if node.kind in ("has", "loop"):
            raise LookupError
        return replace(node, parts=tuple(map(flat, node.parts)))

    try:
        return flat(tree), tuple(paths)
    except LookupError:
        return None


class Flat:
    """One expression's flat form, evaluated by one caller at a time. `execute` is right for any value, `ascii` where all texts are ASCII."""

    def __init__(
        self, paths: tuple[Path, ...], context: Any, execute: Callable[[Any], Any], ascii: Callable[[Any], Any], normal: Callable[[Json], Any]
    ) -> None:
        self._paths = tuple((f"fact_{number}", path) for number, path in enumerate(paths))
        self._context = context
        self._execute = execute
        self._ascii = ascii
        self._normal = normal
        self._given: dict[str, str] = {}

    def __call__(self, facts: Mapping[str, Json]) -> Any:
        """The value over these facts, or NO_ANSWER. Raises ConditionFault for what CEL would blur."""
        try:
            return (self._ascii if self._give(facts) else self._execute)(self._context)
        except (ConditionFault, KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001  whatever went wrong here, the expression itself says what it comes to
            return NO_ANSWER

    def _give(self, facts: Mapping[str, Json]) -> bool:
        """Hand over what has changed; True if no text in it has characters beyond ASCII. Raises LookupError for a path that isn't there."""
        ascii = True
        for name, path in self._paths:
            value: Any = facts
            for key in path:
                if type(value) is not dict:
                    raise LookupError(key)
                value = value[key]
            if type(value) is not str:
                self._given.pop(name, None)
                self._context.add_variable(name, self._normal(value))
                ascii = ascii and not isinstance(value, dict | list)
                continue
            if self._given.get(name) is not value:
                self._context.add_variable(name, value)
                self._given[name] = value
            ascii = ascii and value.isascii()
        return ascii
