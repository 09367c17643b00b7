"""Server-sent events: encode one, decode a stream as its bytes come.

Lines end in LF, CR or CRLF, also across chunks; comments and unknown fields are skipped; an event that the stream's
end cuts off is dropped, as the standard says. Source: WHATWG HTML, "Server-sent events".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


class SseError(ValueError):
    """A stream that holds more in one event than its reader allows."""


@dataclass(frozen=True, slots=True)
class Event:
    """`data` without the last line end; `id` is the last one the stream has named, this event's or an earlier's."""

    data: bytes
    event: str = "message"
    id: str | None = None


def encode(data: bytes, *, event: str | None = None, id: str | None = None) -> bytes:
    """One whole event. Raises ValueError for an event name or id that would break its line."""
    fields = [(b"event", event), (b"id", id)]
    lines = [name + b": " + _one_line(value) for name, value in fields if value is not None]
    lines += [b"data: " + line for line in _LINE_END.split(data)]
    return b"\n".join(lines) + b"\n\n"


def comment(text: str = "") -> bytes:
    """Keeps a connection open; no client takes it for progress."""
    return b": " + _one_line(text) + b"\n\n"


class Decoder:
    """Feed it chunks as they come. `last_id` and `retry_ms` are what a reconnect needs.

    `max_bytes` bounds what one event may hold, half-read or not; beyond it `feed` raises SseError.
    """

    def __init__(self, max_bytes: int) -> None:
        self.last_id: str | None = None
        self.retry_ms: int | None = None
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._held = 0  # bytes in _data
        self._event = ""
        self._after_cr = False
        self._first_line = True

    def feed(self, chunk: bytes) -> list[Event]:
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        *whole, rest = _LINE_END.split(chunk)
        events = []
        for end in whole:
            self._extend(end)
            line, self._line = bytes(self._line), bytearray()
            event = self._take(line)
            if event is not None:
                events.append(event)
        self._extend(rest)
        return events

    def _extend(self, part: bytes) -> None:
        self._line += part
        if self._held + len(self._line) > self._max_bytes:
            raise SseError(f"an event of more than {self._max_bytes} bytes")

    def _take(self, line: bytes) -> Event | None:
        if self._first_line:
            self._first_line, line = False, line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._held += len(value) + 1
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            self.last_id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry_ms = int(value)
        return None

    def _dispatch(self) -> Event | None:
        data, kind = self._data, self._event
        self._data, self._held, self._event = [], 0, ""
        return Event(b"\n".join(data), kind or "message", self.last_id) if data else None


def _one_line(value: str) -> bytes:
    if any(char in value for char in "\r\n\0"):
        raise ValueError(f"an SSE field must be one line: {value[:64]!r}")
    return value.encode()
