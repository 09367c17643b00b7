"""CEL text -> a tree with positions, and the tree -> text again.

The library compiles any name and shows no tree, so the text is read here first; what the library gets is this tree's own text (`render`),
so that what was checked is what runs. Grammar: the CEL language definition, without message construction, leading dots and quoted selectors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NoReturn

Kind = Literal["literal", "name", "field", "index", "call", "method", "has", "loop", "operator", "list", "map"]

LOOPS = {"all": (2,), "exists": (2,), "exists_one": (2,), "map": (2, 3), "filter": (2,)}
MAX_LENGTH = 4096
MAX_DEPTH = 40

_BINARY = {"||": 1, "&&": 2} | dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 3) | {"+": 4, "-": 4} | dict.fromkeys("*/%", 5)
_MEANT = {"=": "==", "and": "&&", "&": "&&", "or": "||", "|": "||", "not": "!", "is": "==", "True": "true", "False": "false", "None": "null"}
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+|//[^\n]*)
  | (?P<literal>
        [bB]?[rR](?:\"\"\"(?s:.*?)\"\"\"|'''(?s:.*?)'''|"[^"\r\n]*"|'[^'\r\n]*')
      | [bB]?(?:\"\"\"(?s:(?:[^\\]|\\.)*?)\"\"\"|'''(?s:(?:[^\\]|\\.)*?)'''|"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')
      | [0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|0x[0-9a-fA-F]+[uU]?|[0-9]+[uU]?
      | (?:true|false|null)(?![A-Za-z0-9_]))
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<mark>&&|\|\||[=!<>]=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE,
)


class ConditionError(Exception):
    """An expression that can't be used, by its writer's fault. `offset` counts characters from the start of its text."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Node:
    """One part of an expression.

    `text` is the literal as written, the name, field, function, loop or operator. `parts`: the operand first; of a loop its range, variable
    (a name) and bodies; of `has` the field; of a map its keys and values in turn; of the operator `?` all three; of `a + b + c` all terms.
    """

    kind: Kind
    text: str
    offset: int
    parts: tuple[Node, ...] = ()


def parse(text: str) -> Node:
    """The tree of a whole expression; raises ConditionError at the first part that isn't CEL."""
    if len(text) > MAX_LENGTH:
        raise ConditionError(f"an expression of {len(text)} characters; at most {MAX_LENGTH}", 0)
    parser = _Parser(text)
    try:
        tree = parser.expression()
    except RecursionError:
        raise ConditionError(f"nested deeper than {MAX_DEPTH}", 0) from None
    if parser.kind:
        parser.fail()
    if _is_deep(tree):
        raise ConditionError(f"nested deeper than {MAX_DEPTH}", 0)
    return tree


def _is_deep(tree: Node) -> bool:
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [part for node in level for part in node.parts]
    return bool(level)


def render(node: Node) -> str:
    """The tree as CEL text, each operation in parentheses where precedence could be read otherwise."""
    parts = [_wrapped(part) for part in node.parts]
    match node.kind:
        case "operator" if node.text == "?":
            return f"{parts[0]} ? {parts[1]} : {parts[2]}"
        case "operator" if len(parts) == 1:
            return node.text + parts[0]
        case "operator":
            left = render(node.parts[0]) if _continues(node.parts[0], node) else parts[0]
            return f" {node.text} ".join((left, *parts[1:]))
        case "field":
            return f"{parts[0]}.{node.text}"
        case "index":
            return f"{parts[0]}[{parts[1]}]"
        case "list":
            return f"[{', '.join(parts)}]"
        case "map":
            return "{" + ", ".join(f"{key}: {value}" for key, value in zip(parts[::2], parts[1::2], strict=True)) + "}"
        case "call" | "has":
            return f"{node.text}({', '.join(parts)})"
        case "method" | "loop":
            return f"{parts[0]}.{node.text}({', '.join(parts[1:])})"
    return node.text


def _wrapped(node: Node) -> str:
    return f"({render(node)})" if node.kind == "operator" else render(node)


def _continues(left: Node, node: Node) -> bool:
    """Operators of one level bind from the left: `a - b + c` needs no parentheses."""
    return left.kind == "operator" and len(left.parts) > 1 and _BINARY.get(left.text) == _BINARY[node.text]


class _Parser:
    """Recursive descent over the tokens; `kind` and `text` are the current token's ("" at the end)."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.end = 0
        self.advance()

    def advance(self) -> str:
        """Go to the next token; the text of the one left behind."""
        passed = getattr(self, "text", "")
        while True:
            self.offset = self.end
            found = _TOKEN.match(self.source, self.end)
            if found is None:
                self.kind, self.text = ("bad" if self.offset < len(self.source) else ""), self.source[self.offset : self.offset + 1]
                return passed
            self.end = found.end()
            if found.lastgroup != "space":
                self.kind, self.text = str(found.lastgroup), found[0]
                return passed

    def fail(self, wanted: str = "") -> NoReturn:
        if self.text in ("'", '"'):
            raise ConditionError("a text without its closing quote", self.offset)
        found = repr(self.text) if self.text else "the end"
        hint = f"; write {_MEANT[self.text]!r}" if self.text in _MEANT else ""
        raise ConditionError(f"unexpected {found}{f', wanted {wanted}' if wanted else ''}{hint}", self.offset)

    def takes(self, *marks: str) -> bool:
        return self.kind in ("mark", "name") and self.text in marks

    def skip(self, mark: str) -> None:
        if not self.takes(mark):
            self.fail(repr(mark))
        self.advance()

    def expression(self) -> Node:
        condition = self.binary(1)
        if not self.takes("?"):
            return condition
        offset = self.offset
        self.advance()
        yes = self.binary(1)
        self.skip(":")
        return Node("operator", "?", offset, (condition, yes, self.expression()))

    def binary(self, level: int) -> Node:
        left = self.unary()
        while self.kind in ("mark", "name") and _BINARY.get(self.text, 0) >= level:
            offset, operator = self.offset, self.advance()
            terms = left.parts if left.kind == "operator" and left.text == operator and len(left.parts) > 1 else (left,)
            left = Node("operator", operator, offset, (*terms, self.binary(_BINARY[operator] + 1)))
        return left

    def unary(self) -> Node:
        if not self.takes("!", "-"):
            return self.member()
        offset, operator = self.offset, self.advance()
        part = self.unary() if self.takes(operator) else self.member()
        return Node("operator", operator, offset, (part,))

    def member(self) -> Node:
        node = self.primary()
        while self.takes(".", "["):
            offset = self.offset
            if self.advance() == "[":
                node = Node("index", "", offset, (node, self.expression()))
                self.skip("]")
            else:
                node = self.selected(node)
        return node

    def selected(self, node: Node) -> Node:
        if self.kind != "name" or self.text == "in":
            self.fail("a field's name")
        offset, name = self.offset, self.advance()
        if not self.takes("("):
            return Node("field", name, offset, (node,))
        arguments = self.arguments()
        if name in LOOPS:
            return self.loop(Node("loop", name, offset, (node, *arguments)))
        return Node("method", name, offset, (node, *arguments))

    def loop(self, node: Node) -> Node:
        if len(node.parts) - 1 not in LOOPS[node.text] or node.parts[1].kind != "name":
            raise ConditionError(f"{node.text} is written list.{node.text}(name, expression)", node.offset)
        return node

    def primary(self) -> Node:
        offset = self.offset
        if self.kind == "literal":
            return Node("literal", self.advance(), offset)
        if self.takes("("):
            self.advance()
            inner = self.expression()
            self.skip(")")
            return inner
        if self.takes("["):
            return Node("list", "", offset, self.sequence("]"))
        if self.takes("{"):
            return Node("map", "", offset, self.sequence("}"))
        if self.kind != "name" or self.text in _MEANT or self.text == "in":
            self.fail("a value")
        name = self.advance()
        if not self.takes("("):
            return Node("name", name, offset)
        arguments = self.arguments()
        if name != "has":
            return Node("call", name, offset, arguments)
        if len(arguments) != 1 or arguments[0].kind != "field":
            raise ConditionError("has is written has(a.field)", offset)
        return Node("has", name, offset, arguments)

    def arguments(self) -> tuple[Node, ...]:
        return self.sequence(")", trailing=False)

    def sequence(self, close: str, trailing: bool = True) -> tuple[Node, ...]:
        """What stands up to the closing bracket, between commas; of a map each key and value."""
        self.advance()
        parts: list[Node] = []
        while not (self.takes(close) and (trailing or not parts)):
            parts.append(self.expression())
            if close == "}":
                self.skip(":")
                parts.append(self.expression())
            if not self.takes(","):
                break
            self.advance()
        self.skip(close)
        return tuple(parts)
