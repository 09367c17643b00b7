"""The SQL of each store: numbered migrations, and files of named statements with a line on what each is for.

What reads the same in every store stands once, in `statements.sql`; the rest in the store's own folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

_HERE: Final = Path(__file__).parent
_NAME: Final = re.compile(r"^-- (\w+): .+\n", re.MULTILINE)
_VALUE: Final = re.compile(r"\?|(?<!:):(\w+)")


class Numbered(NamedTuple):
    """A statement whose values are `$1`, `$2` …, and what they are called, in order."""

    text: str
    names: tuple[str, ...]


def migrations(store: str) -> list[str]:
    """The scripts that make a new database, in order; number n takes it from version n - 1 to n."""
    return [path.read_text() for path in sorted((_HERE / store).glob("[0-9]*.sql"))]


def statements(store: str) -> dict[str, str]:
    """Name -> statement."""
    found: dict[str, str] = {}
    for folder in (_HERE, _HERE / store):
        _, *parts = _NAME.split((folder / "statements.sql").read_text())
        found.update(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
    return found


def numbered(statement: str) -> Numbered:
    """For a driver that numbers values: each `?` is one, and so is each name, however often it stands there."""
    names: list[str] = []

    def place(value: re.Match[str]) -> str:
        name = value[1] or f"?{len(names)}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return Numbered(_VALUE.sub(place, statement), tuple(names))
