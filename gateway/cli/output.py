"""How commands speak: aligned tables or JSON on stdout, everything else on stderr. Foreign text is always made visible first."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gateway.doors.render import time_text, visible


class Failure(Exception):
    """A command's own end: the message goes to stderr, `code` becomes the exit status."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


def say(text: str = "") -> None:
    print(text, flush=True)


def note(text: str) -> None:
    """For people who watch, never part of the output."""
    print(text, file=sys.stderr, flush=True)


def progress(text: str) -> None:
    """A line that the next one overwrites; only on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def say_json(value: Any) -> None:
    say(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def cell(name: str, value: Any) -> str:
    """One value for a person: times in RFC 3339, money in dollars, absent as a dash."""
    if value is None or value == "":
        return "-"
    return visible(str(_timed(name, value)))


def _timed(name: str, value: Any) -> Any:
    return time_text(value) if isinstance(value, int) and (name.endswith("_at") or name == "execute_by") else value


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A view's row for JSON: times as text, and without what only the ledger itself needs."""
    return {name: _timed(name, value) for name, value in row.items() if name not in ("stream", "due_at")}


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, nothing: str) -> None:
    """Rows under headings; `nothing` says what it means that there are none."""
    lines = [[cell(name, row.get(name)) for name in columns] for row in rows]
    if not lines:
        say(nothing)
        return
    heads = [name.removesuffix("_at").replace("_", " ").upper() for name in columns]
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(columns))]
    for line in [heads, *lines]:
        say("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def listed(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, nothing: str, shown: Callable[[Mapping[str, Any]], Any] = plain
) -> None:
    """Rows of a view, for programs with every field."""
    if as_json:
        say_json([shown(row) for row in rows])
    else:
        table(rows, columns, nothing=nothing)


def fields(pairs: Iterable[tuple[str, Any]]) -> None:
    """One thing, a line a field."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", (), [], {})]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{name.ljust(width)}  {cell(name, value)}")
