"""The SQL of each store: numbered migrations, and a file of named statements with a line on what each is for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_NAME: Final = re.compile(r"^-- (\w+): .+\n", re.MULTILINE)


def migrations(store: str) -> list[str]:
    """The scripts that make a new database, in order; number n takes it from version n - 1 to n."""
    return [path.read_text() for path in sorted((_HERE / store).glob("[0-9]*.sql"))]


def statements(store: str) -> dict[str, str]:
    """Name -> statement."""
    _, *parts = _NAME.split((_HERE / store / "statements.sql").read_text())
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
