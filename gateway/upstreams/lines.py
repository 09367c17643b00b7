"""Lines out of a byte stream that nobody vouches for: cut at a cap, never held in memory beyond it, safe to log."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_EDGE: Final = 512
_LOGGED: Final = 2_000


@dataclass(frozen=True, slots=True)
class Overlong:
    """What is kept of a line past the cap: its first and last bytes."""

    head: bytes
    tail: bytes


class Lines:
    """Feed bytes, get lines without their ends. The rest waits for the next bytes; an unfinished last line is never given."""

    def __init__(self, max_line: int) -> None:
        self._max = max_line
        self._rest = bytearray()
        self._head: bytes | None = None

    def feed(self, data: bytes) -> Iterator[bytes | Overlong]:
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._add(part)
            yield self._taken()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._rest += part
        if self._head is None and len(self._rest) > self._max:
            self._head = bytes(self._rest[:_EDGE])
        if self._head is not None:
            del self._rest[:-_EDGE]

    def _taken(self) -> bytes | Overlong:
        rest, head = bytes(self._rest).removesuffix(b"\r"), self._head
        self._rest.clear()
        self._head = None
        return rest if head is None else Overlong(head, rest)


class Foreign:
    """Logs text from outside, at most `per_second` lines of it; those above are counted and dropped."""

    def __init__(self, logger: logging.Logger, now: Callable[[], float], per_second: int = 50) -> None:
        self._logger, self._now, self._per_second = logger, now, per_second
        self._since, self._logged, self._dropped = now(), 0, 0

    def write(self, level: int, what: str, line: bytes | Overlong) -> None:
        if self._now() - self._since >= 1:
            self._next_second()
        if self._logged >= self._per_second:
            self._dropped += 1
            return
        self._logged += 1
        self._logger.log(level, "%s: %s", what, readable(line.head + b"..." if isinstance(line, Overlong) else line))

    def unread(self, level: int, what: str, line: bytes | Overlong) -> None:
        """The same for what may be somebody's data: its length, if it is known, and its hash."""
        head, length = (line.head, "more than can be read") if isinstance(line, Overlong) else (line, f"{len(line)} bytes")
        self.write(level, what, f"{length}, sha256 {hashlib.sha256(head).hexdigest()}".encode())

    def note(self, text: str) -> None:
        """A warning of our own in the same log."""
        self._logger.warning(text)

    def _next_second(self) -> None:
        if self._dropped:
            self._logger.warning("%d more lines were dropped", self._dropped)
        self._since, self._logged, self._dropped = self._now(), 0, 0


def readable(line: bytes) -> str:
    """One printable line, cut: no terminal codes, no line breaks."""
    text = line[:_LOGGED].decode("utf-8", "backslashreplace").expandtabs()
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)
