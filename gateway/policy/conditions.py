"""CEL text -> callables over facts, by the library `common-expression-language` (loaded at the first use: it takes 0.15 s).

Calls with equal fingerprints get equal verdicts: numbers arrive as canonical JSON writes them, so 1.0 and 1 are one integer.
Comparisons cross kinds of number (150 > 100.0), arithmetic doesn't: `needs_double` says where it matters.
Only the facts that an expression reads are handed over, as flat variables where that means the same (`flat`). An error, a result of the
wrong kind, an integer outside 64 bits, arguments over 64 KiB or too many values for the expression's loops raise ConditionFault, and the
call is denied. As CEL has it, `||` and `&&` pass over an error on one side when the other side decides.
Two things the library gets wrong are mended: `size` of a text counts its characters, not its bytes, and no map can be added to a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.core.canonical import canonical, number_text
from gateway.core.guards.guard import ConditionFault
from gateway.core.model import Json
from gateway.policy.expression_checks import Reads, arithmetic, check_names, degree, parts_of, reads
from gateway.policy.expressions import ConditionError, Node, parse, render
from gateway.policy.flat import NO_ANSWER, Flat, flatten

MAX_ARGS_BYTES = 65_536
MAX_STEPS = 250_000

_FAULTS: dict[type[BaseException], str] = {
    KeyError: "a field is missing",
    IndexError: "an index is out of range",
    TypeError: "two values are of kinds that don't go together",
    ZeroDivisionError: "a division by zero",
    OverflowError: "a number is out of range",
}


@dataclass(frozen=True, slots=True)
class CompiledValue:
    """A compiled expression; calling it gives its value as JSON. Raises ConditionFault, whose message names no value."""

    text: str
    program: Callable[[dict[str, Any]], Any] = field(repr=False, compare=False)
    reads: Reads = field(repr=False, compare=False)
    degree: int = field(repr=False, compare=False)
    flat: Flat | None = field(repr=False, compare=False)

    def __call__(self, facts: Mapping[str, Json], /) -> Json:
        return self._guarded(facts, _normal)

    def judge(self, facts: Mapping[str, Json]) -> bool:
        """The value, if it is true or false; raises like a call."""
        result = self._guarded(facts)
        if result is True or result is False:
            return bool(result)
        raise self._fault(f"it gives {type(result).__name__}, not true or false")

    def _evaluated(self, facts: Mapping[str, Json]) -> Any:
        if "args" in self.reads and _is_large(facts["args"]):
            raise ConditionFault(f"the arguments are over {MAX_ARGS_BYTES} bytes")
        if self.flat is not None and (value := self.flat(facts)) is not NO_ANSWER:
            return value
        return self.program(self._given(facts))

    def _given(self, facts: Mapping[str, Json]) -> dict[str, Any]:
        """The facts as the library gets them: those it reads, numbers normalised."""
        given = {name: _picked(facts[name], members) for name, members in self.reads.items()}
        if self.degree > 1 and _count(given) ** self.degree > MAX_STEPS:
            raise ConditionFault("there are too many values for its loops")
        return given

    def _guarded(self, facts: Mapping[str, Json], finish: Callable[[Any], Any] | None = None) -> Any:
        try:
            value = self._evaluated(facts)
            return value if finish is None else finish(value)
        except ConditionFault as fault:
            raise self._fault(str(fault)) from None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  whatever it is, it denies; a panic in the library's Rust is no Exception
            missing = _missing(facts, self.reads) if isinstance(error, KeyError) else ()
            named = next((f"{path} is missing" for path in missing if path.rpartition(".")[2] == error.args[0]), None)
            raise self._fault(named or _FAULTS.get(type(error), "a function can't take its argument")) from None

    def _fault(self, why: str) -> ConditionFault:
        return ConditionFault(f"{self.text[:80]!r} can't be judged: {why}")


@dataclass(frozen=True, slots=True)
class CompiledCondition:
    """A compiled condition; calling it gives true or false. Raises ConditionFault, whose message names no value."""

    value: CompiledValue

    def __call__(self, facts: Mapping[str, Json], /) -> bool:
        return self.value.judge(facts)


def compile_condition(text: str, variables: frozenset[str]) -> CompiledCondition:
    """A condition over `variables` (args, tool, run, principal, result). Raises ConditionError with the offset of the mistake."""
    tree = parse(text)
    if tree.kind in ("list", "map") or (tree.kind == "operator" and tree.text in "+-*/%"):
        raise ConditionError("a condition gives true or false; this never does", tree.offset)
    return CompiledCondition(_compiled(text, tree, variables))


def compile_value(text: str, variables: frozenset[str]) -> CompiledValue:
    """An expression that yields a JSON value; otherwise as `compile_condition`."""
    return _compiled(text, parse(text), variables)


def needs_double(text: str) -> list[tuple[int, str]]:
    """(offset, advice) wherever arithmetic meets a field outside double(); raises ConditionError for what isn't CEL."""
    return arithmetic(parse(text))


def _compiled(text: str, tree: Node, variables: frozenset[str]) -> CompiledValue:
    check_names(tree, variables)
    mended = _mended(tree)
    execute = _program(mended).execute
    for node in parts_of(tree):
        if node.kind == "method" and node.text == "matches" and node.parts[1].kind == "literal":
            _check_pattern(node.parts[1])
    run = execute if mended == tree else lambda given: execute({**given, **_HELPERS})
    work = degree(tree)
    return CompiledValue(text, run, reads(tree), work, _flat(text, tree, variables) if work <= 1 else None)


def _flat(text: str, tree: Node, variables: frozenset[str]) -> Flat | None:
    """Texts that are all ASCII need no mended `size`; an expression that could write others itself always gets it."""
    import cel

    found = flatten(tree, variables)
    if found is None:
        return None
    flat, paths = found
    context = cel.Context()
    for name, helper in _HELPERS.items():
        context.add_function(name, helper)
    execute = _program(_mended(flat)).execute
    plain = text.isascii() and "\\" not in text
    return Flat(paths, context, execute, _program(_mended(flat, sizes=False)).execute if plain else execute, _normal)


def _program(tree: Node) -> Any:
    try:
        return _library_compile(render(tree))
    except ValueError as error:
        for node in parts_of(tree):
            if node.kind == "literal":
                _check_literal(node)
        raise ConditionError(f"the library can't read it: {str(error).partition(chr(10))[0]}", 0) from None


def _library_compile(text: str) -> Any:
    import cel

    return cel.compile(text)


def _check_literal(node: Node) -> None:
    try:
        _library_compile(node.text)
    except ValueError:
        raise ConditionError(f"{node.text[:80]} is no valid number or text", node.offset) from None


def _check_pattern(node: Node) -> None:
    try:
        _library_compile(f"''.matches({node.text})").execute({})
    except (RuntimeError, TypeError):
        raise ConditionError(f"{node.text[:80]} is no pattern (RE2's syntax, no look-around, no back references)", node.offset) from None


def _mended(node: Node, *, sizes: bool = True) -> Node:
    """size(x) as size(chars_(x)), x.size() as x.chars_().size(), and x + y as x + summand_(y) where y could be a map."""
    parts = tuple(_mended(part, sizes=sizes) for part in node.parts)
    if sizes and node.text == "size" and node.kind in ("call", "method"):
        parts = (Node(node.kind, "chars_", node.offset, parts),)
    if node.text == "+" and node.kind == "operator":
        parts = (parts[0], *map(_summand, parts[1:]))
    return replace(node, parts=parts)


def _summand(node: Node) -> Node:
    plain = node.kind in ("literal", "list") or (node.kind == "call" and node.text != "dyn")
    return node if plain else Node("call", "summand_", node.offset, (node,))


_HELPERS: dict[str, Callable[[Any], Any]] = {
    "chars_": lambda value: bytes(len(value)) if isinstance(value, str) else value,
    "summand_": lambda value: None if isinstance(value, dict) else value,  # list + map would give the map's keys; nothing adds to null
}


def _is_large(args: Json) -> bool:
    """No character takes more than 6 times the bytes of its repr, which is written far quicker."""
    return len(repr(args)) * 6 > MAX_ARGS_BYTES and len(canonical(args)) > MAX_ARGS_BYTES


def _picked(value: Json, members: Reads | None) -> Any:
    if members is None or not isinstance(value, Mapping):
        return _normal(value)
    return {name: _picked(value[name], inner) for name, inner in members.items() if name in value}


def _normal(value: Json) -> Any:
    """The value with each number as its canonical JSON reads: whole ones as integers. Raises ConditionFault for what CEL would blur."""
    if isinstance(value, str | bool | None):
        return value
    if isinstance(value, float):
        text = number_text(value)
        if "." in text or "e" in text:
            return value
        value = int(text)
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return value
        raise ConditionFault("an integer is outside 64 bits")
    if isinstance(value, Mapping):
        return {name: _normal(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(item) for item in value]
    raise ConditionFault(f"a value of type {type(value).__name__} is no JSON")


def _count(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count, inner))


def _missing(facts: Mapping[str, Json], members: Reads) -> Iterator[str]:
    """The paths that are read but absent."""
    for name, inner in members.items():
        if name not in facts:
            yield name
        elif inner and isinstance(facts[name], Mapping):
            yield from (f"{name}.{path}" for path in _missing(facts[name], inner))
