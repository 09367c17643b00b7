"""Where a value stands in a JSON text: line and column of a JSON pointer, found when somebody asks.

Documents are large and have few mistakes, so nothing is noted while they are read; a search steps over what it doesn't enter.
"""

from __future__ import annotations

import json
import re
from typing import Any

from gateway.source import Position

_SPACE = re.compile(r"[ \t\r\n]*")
_scan = json.JSONDecoder().raw_decode


class Places:
    """`text` must be a JSON document; `file` is the name that positions show."""

    def __init__(self, file: str, text: str) -> None:
        self._file, self._text = file, text
        self._inside: dict[int, dict[str, int]] = {}

    def at(self, pointer: str) -> Position:
        """Where the value stands; for what isn't there, its nearest parent."""
        start = self._after(0)
        for step in pointer.split("/")[1:]:
            inside = self._members(start)
            name = step.replace("~1", "/").replace("~0", "~")
            if name not in inside:
                break
            start = inside[name]
        return self.position(start)

    def position(self, offset: int) -> Position:
        """Of the character at `offset`."""
        before = self._text.rfind("\n", 0, offset)
        return Position(self._file, self._text.count("\n", 0, offset) + 1, offset - before)

    def _members(self, start: int) -> dict[str, int]:
        """Where each member of an object, or item of a list, begins."""
        if start not in self._inside:
            self._inside[start] = dict(self._scanned(start)) if self._text[start] in "{[" else {}
        return self._inside[start]

    def _scanned(self, start: int) -> Any:
        is_object, index = self._text[start] == "{", 0
        here = self._after(start + 1)
        while self._text[here] not in "}]":
            name: Any = str(index)
            if is_object:
                name, here = _scan(self._text, here)
                here = self._after(self._after(here) + 1)
            yield name, here
            here = self._after(_scan(self._text, here)[1])
            here = self._after(here + 1) if self._text[here] == "," else here
            index += 1

    def _after(self, offset: int) -> int:
        found = _SPACE.match(self._text, offset)
        return found.end() if found else offset
