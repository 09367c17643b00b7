"""What can be known of a CEL expression before it runs: its names, the facts it reads, how its work grows, where its numbers may part.

The library knows none of this. Fields can't be checked: arguments have no fixed shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from gateway.policy.expressions import LOOPS, ConditionError, Node, render

FUNCTIONS = dict.fromkeys(("size", "int", "uint", "double", "string", "bytes", "timestamp", "duration", "type", "dyn"), 1)
METHODS = dict.fromkeys(("contains", "startsWith", "endsWith", "matches"), 1) | dict.fromkeys(
    (
        "size", "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes", "getSeconds",
        "getMilliseconds",
    ),
    0,
)  # fmt: skip
TYPES = frozenset(("int", "uint", "double", "string", "bool", "bytes", "list", "map", "null_type", "type"))

_TEXT = re.compile(r"""(['"])([^\\'"]*)\1""")
_DOUBLE = re.compile(r"[0-9]*\.[0-9]|[0-9]+[eE]")
_NOT_NUMBERS = ("string", "bytes", "timestamp", "duration")


def check_names(tree: Node, variables: frozenset[str]) -> None:
    """Raise ConditionError at the first unknown variable or function, wrong number of arguments, or minus that could overflow unseen."""
    for node, bound in _scoped(tree, frozenset()):
        match node.kind:
            case "name" if node.text not in variables | bound | TYPES:
                known = sorted(variables | bound)
                raise ConditionError(f"unknown variable {node.text!r}{_nearest(node.text, known)} (a text stands in quotes)", node.offset)
            case "call":
                _check_function(node, "function", FUNCTIONS, len(node.parts))
            case "method":
                _check_function(node, "method", METHODS, len(node.parts) - 1)
            case "operator" if node.text == "-" and len(node.parts) == 1 and node.parts[0].kind != "literal":
                raise ConditionError("minus before a value overflows unseen at the lowest integer; write 0 - x, or 0.0 - double(x)", node.offset)


def _check_function(node: Node, word: str, known: dict[str, int], given: int) -> None:
    wanted = known.get(node.text)
    if wanted is None:
        raise ConditionError(f"unknown {word} {node.text!r}{_other_form(node) or _nearest(node.text, sorted({*known, *LOOPS}))}", node.offset)
    if given != wanted:
        raise ConditionError(f"{node.text} takes {wanted} argument{'s' * (wanted != 1)}, not {given}", node.offset)


def _other_form(node: Node) -> str:
    if node.kind == "call" and (node.text in METHODS or node.text in LOOPS):
        return f"; it is a method: write x.{node.text}(…)"
    return f"; it is a function: write {node.text}(x)" if node.kind == "method" and node.text in FUNCTIONS else ""


def _nearest(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"; do you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"


def parts_of(tree: Node) -> Iterator[Node]:
    """The node and all below it, from left to right."""
    return (node for node, _ in _scoped(tree, frozenset()))


def _scoped(node: Node, bound: frozenset[str]) -> Iterator[tuple[Node, frozenset[str]]]:
    yield node, bound
    for part, names in _inner(node, bound):
        yield from _scoped(part, names)


def _inner(node: Node, bound: frozenset[str]) -> Iterator[tuple[Node, frozenset[str]]]:
    """The parts with the names that loops around them bind; a loop's own variable is left out."""
    if node.kind != "loop":
        return ((part, bound) for part in node.parts)
    bodies = bound | {node.parts[1].text}
    return iter([(node.parts[0], bound), *((body, bodies) for body in node.parts[2:])])


Path = tuple[str, ...]
"""The names from a variable down to a value."""

Reads = dict[str, Any]
"""Which members of a map are read: name -> their Reads in turn, or None for the whole value."""


def reads(tree: Node) -> Reads:
    """The facts that the expression can touch: `args.a.b == args["c"]` reads {"args": {"a": {"b": None}, "c": None}}."""
    found: Reads = {}
    for path in _paths(tree, frozenset()):
        _add(found, path)
    return found


def _add(members: Reads, path: Path) -> None:
    name, *rest = path
    if not rest:
        members[name] = None
    elif (inner := members.setdefault(name, {})) is not None:
        _add(inner, tuple(rest))


def _paths(node: Node, bound: frozenset[str]) -> Iterator[Path]:
    path = path_of(node)
    if path:
        if path[0] not in bound | TYPES:
            yield path
    else:
        for part, names in _inner(node, bound):
            yield from _paths(part, names)


def path_of(node: Node) -> Path:
    """The path that this node is; () for anything else."""
    if node.kind == "name":
        return (node.text,)
    key = node.text if node.kind == "field" else _literal_text(node.parts[1]) if node.kind == "index" else None
    parent = path_of(node.parts[0]) if key is not None else ()
    return (*parent, str(key)) if parent else ()


def _literal_text(node: Node) -> str | None:
    found = _TEXT.fullmatch(node.text) if node.kind == "literal" else None
    return found[2] if found else None


def degree(node: Node) -> int:
    """The power of the facts' size that the work can grow with. The library copies the list at each step of `map` and `filter`."""
    match node.kind:
        case "loop":
            bodies = max(map(degree, node.parts[2:]))
            return max(degree(node.parts[0]), 1 + bodies, 2 if node.text in ("map", "filter") else 1)
        case "operator" if node.text == "in" and node.parts[1].kind != "list":
            own = 1
        case "call" | "method" if node.text in ("size", "matches"):
            own = 1
        case _:
            own = 0
    return max((own, *map(degree, node.parts)))


def arithmetic(tree: Node) -> list[tuple[int, str]]:
    """(offset, advice) for each sum whose kind of number depends on how the caller's value was written."""
    found = []
    for node in parts_of(tree):
        if node.kind == "operator" and node.text in "+-*/%" and len(node.parts) > 1 and not any(map(_no_number, node.parts)):
            cast = "int" if node.text == "%" else "double"
            found += [
                (_start(part), f"{render(part)} arrives as an integer whenever it is whole (1.0 as 1): write {cast}({render(part)})")
                for part in node.parts
                if part.kind in ("name", "field", "index")
            ]
            if any(map(_is_double, node.parts)):
                found += [
                    (part.offset, f"{part.text} is an integer and doesn't go with a double: write {part.text}.0")
                    for part in node.parts
                    if part.kind == "literal" and not _is_double(part)
                ]
    return sorted(found)


def _is_double(node: Node) -> bool:
    if node.kind == "literal":
        return _DOUBLE.match(node.text) is not None
    return node.kind == "call" and node.text == "double"


def _no_number(node: Node) -> bool:
    """Texts, lists and times add up by their own rules."""
    quoted = node.kind == "literal" and node.text[-1] in "'\""
    return quoted or node.kind == "list" or (node.kind == "call" and node.text in _NOT_NUMBERS)


def _start(node: Node) -> int:
    while node.kind in ("field", "index"):
        node = node.parts[0]
    return node.offset
