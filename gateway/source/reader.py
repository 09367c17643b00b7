"""Bytes of YAML to plain data plus the place of every value, with every mistake at once.

What is written is what is read: plain values are JSON's (`true false null`, numbers) or text. Whatever YAML 1.1 would read as
something else than text (`NO`, `1:30`, `010`, `0x1f`, `2026-11-29`, `~`, `1_000`) is a mistake that says to quote it. Refused
too: duplicate keys, anchors and aliases, tags, directives, further documents, keys that aren't text, NaN and infinity.
Parse events are read instead of nodes, because nodes no longer show anchors and directives.
A mistake shows a value only if it is one of YAML's own words, since reading can't know which values are secrets.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
_MAX_DIGITS = 400


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a file; line and column count characters from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One thing to put right. `pointer` names the value that can't be used; None where what stands there is usable all the same."""

    position: Position
    message: str
    pointer: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.position}: {self.message}"


class SourceError(ValueError):
    """A file can't be used: all its mistakes, in file order. `partial` is what could be read, None after a syntax error."""

    def __init__(self, mistakes: Iterable[Mistake], partial: Source | None = None) -> None:
        self.mistakes = tuple(sorted(set(mistakes)))
        self.partial = partial
        super().__init__("\n".join(map(str, self.mistakes)))


@dataclass(frozen=True, slots=True)
class Source:
    """A file's plain data. `positions` and `keys` map JSON pointers to the place of the value and of its key."""

    file: str
    data: Any
    positions: Mapping[str, Position]
    keys: Mapping[str, Position] = field(default_factory=dict)

    def at(self, pointer: str) -> Position:
        """Where the value stands; for what isn't there, its nearest parent."""
        while pointer and pointer not in self.positions:
            pointer = pointer.rpartition("/")[0]
        return self.positions.get(pointer, Position(self.file, 1, 1))

    def key_at(self, pointer: str) -> Position:
        """Where the value's key stands; for items of lists and what isn't there, as `at`."""
        return self.keys.get(pointer) or self.at(pointer)


def child(pointer: str, *steps: str | int) -> str:
    """The JSON pointer (RFC 6901) of something inside what `pointer` names."""
    return pointer + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def read(file: str, text: bytes, *, max_bytes: int = MAX_BYTES, plain_keys: bool = False) -> Source:
    """Read one file; `file` is the name that mistakes show. `plain_keys`: any plain key is text, as in `200:` (YAML's failsafe schema).

    Raises SourceError with every mistake that could be found."""
    reader = _Reader(file, _decoded(file, text, max_bytes), plain_keys)
    try:
        data = reader.document()
    except yaml.MarkedYAMLError as error:
        raise SourceError([*reader.mistakes, reader.syntax(error)]) from error
    source = Source(file, data, reader.positions, reader.keys)
    if reader.mistakes:
        raise SourceError(reader.mistakes, source)
    return source


# ---- characters ---------------------------------------------------------------------------------------------------------

_UNFIT = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""What YAML doesn't print, and the breaks beyond JSON's (U+0085, U+2028, U+2029), which YAML 1.1 would fold into a space."""


def _decoded(file: str, text: bytes, max_bytes: int) -> str:
    if len(text) > max_bytes:
        raise SourceError([Mistake(Position(file, 1, 1), f"the file has {len(text)} bytes; at most {max_bytes} are read")])
    try:
        decoded = text.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = text[: error.start].decode().removeprefix("\ufeff")
        raise SourceError([Mistake(_end_of(file, before), "not UTF-8 from here on")]) from error
    if unfit := _UNFIT.search(decoded):
        message = f"the character U+{ord(unfit[0]):04X} can't stand here; in double quotes write it as an escape"
        raise SourceError([Mistake(_end_of(file, decoded[: unfit.start()]), message)])
    return decoded


def _end_of(file: str, before: str) -> Position:
    lines = re.split("\r\n|\r|\n", before)
    return Position(file, len(lines), len(lines[-1]) + 1)


# ---- values -------------------------------------------------------------------------------------------------------------

_WORDS = {"true": True, "false": False, "null": None}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SURPRISES = [
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in [
        (r"y|n|yes|no|on|off|true|false", "a boolean"),
        (r"~|null", "null"),
        (r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)(e[-+]?[0-9]+)?", "a number"),
        (r"[-+]?0(b[01_]+|o[0-7]+|x[0-9a-f_]+)", "a number"),
        (r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?", "a number in base 60"),
        (r"[-+]?\.inf|\.nan", "no JSON number"),
        (r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}((t|[ \t]+)[0-9:.]+[ \t]*(z|[-+][0-9:]+)?)?", "a date"),
        (r"<<|=", "an instruction"),
    ]
]
_SURROGATE = re.compile("[\ud800-\udfff]")


def _plain(text: str) -> Any:
    """A plain scalar by JSON's rules. Raises ValueError for what YAML 1.1 or 1.2 reads as something else than text."""
    if text in _WORDS:
        return _WORDS[text]
    if not text:
        raise ValueError('no value; write one, or null, "", [] or {}')
    if number := _NUMBER.fullmatch(text):
        return _number(text, whole=number[1] is None and number[2] is None)
    for pattern, kind in _SURPRISES:
        if pattern.fullmatch(text):
            what = f"{text} without quotes" if text.isalpha() else "without quotes this"
            raise ValueError(f"{what} is {kind} to YAML; put text in quotes, write other values as in JSON")
    return text


def _number(text: str, whole: bool) -> int | float:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of more than {_MAX_DIGITS} characters; put text in quotes")
    if whole:
        return int(text)
    number = float(text)
    vanished = number == 0 and re.search("[1-9]", re.split("[eE]", text)[0])
    if vanished or math.isinf(number):
        raise ValueError("a number that a 64-bit float can't hold; put text in quotes")
    return number


# ---- events -------------------------------------------------------------------------------------------------------------

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Reader:
    """Builds plain data from parse events; goes on after each mistake with something in the wrong value's place."""

    def __init__(self, file: str, text: str, plain_keys: bool) -> None:
        self.file, self.text, self.plain_keys = file, text, plain_keys
        self.events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        self.mistakes: list[Mistake] = []
        self.positions: dict[str, Position] = {}
        self.keys: dict[str, Position] = {}

    def document(self) -> Any:
        next(self.events)
        start = next(self.events)
        if isinstance(start, yaml.StreamEndEvent):
            raise SourceError([Mistake(Position(self.file, 1, 1), "the file is empty")])
        if self.text.startswith("%", start.start_mark.index):
            self.report(start, "directives are not read; remove the line")
        data = self.value(next(self.events), "", 1)
        next(self.events)
        after = next(self.events)
        if isinstance(after, yaml.DocumentStartEvent):
            self.report(after, "a second document; one file holds one")
        return data

    def syntax(self, error: yaml.MarkedYAMLError) -> Mistake:
        mark = error.problem_mark or error.context_mark
        if mark is None:
            return Mistake(Position(self.file, 1, 1), "not YAML")
        what = "a tab can't indent, use spaces" if self.text.startswith("\t", mark.index) else error.problem
        return Mistake(self.place(mark), ": ".join(filter(None, ["not YAML", error.context, what])))

    def place(self, mark: Any) -> Position:
        return Position(self.file, mark.line + 1, mark.column + 1)

    def report(self, event: Any, message: str, pointer: str | None = None) -> None:
        self.mistakes.append(Mistake(self.place(event.start_mark), message, pointer))

    def value(self, event: Any, pointer: str, depth: int) -> Any:
        self.positions.setdefault(pointer, self.place(event.start_mark))
        self.refuse_marks(event, pointer)
        if isinstance(event, yaml.AliasEvent):
            return None
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, pointer)
        if depth > MAX_DEPTH:
            self.report(event, f"nested more than {MAX_DEPTH} levels deep", pointer)
            self.skip(event)
            return None
        return self.sequence(pointer, depth) if isinstance(event, yaml.SequenceStartEvent) else self.mapping(pointer, depth)

    def refuse_marks(self, event: Any, pointer: str | None) -> None:
        if event.anchor is not None:
            self.report(event, "anchors and aliases are not read; write the value out", pointer)
        elif getattr(event, "tag", None) is not None:
            self.report(event, "tags are not read; put text in quotes", pointer)

    def skip(self, event: Any) -> None:
        """Read past a value that can't be used."""
        level = 0
        while level := level + isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent):
            event = next(self.events)

    def sequence(self, pointer: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.value(event, child(pointer, len(items)), depth + 1))
        return items

    def mapping(self, pointer: str, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.key(event)
            inside = child(pointer, key)
            first = self.keys.setdefault(inside, self.place(event.start_mark))
            if key in members:
                shown = json.dumps(key, ensure_ascii=False)
                self.report(event, f"the key {shown} is written twice, first at line {first.line}, column {first.column}")
            members.setdefault(key, self.value(next(self.events), inside, depth + 1))
        return members

    def key(self, event: Any) -> str:
        self.refuse_marks(event, None)
        if not isinstance(event, yaml.ScalarEvent):
            self.report(event, "a key must be text")
            self.skip(event)
            return "?"
        if not (self.plain_keys and event.implicit[0]) and not isinstance(self.scalar(event, None), str):
            self.report(event, "a key must be text; put it in quotes")
        return str(event.value)

    def scalar(self, event: Any, pointer: str | None) -> Any:
        if _SURROGATE.search(event.value):
            self.report(event, "half of a surrogate pair is no character", pointer)
        if not event.implicit[0]:
            return event.value
        try:
            return _plain(event.value)
        except ValueError as error:
            self.report(event, str(error), pointer)
            return event.value
