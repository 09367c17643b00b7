"""What one door's agent was told and what the ledger says of it, with everything taken out that may differ between two doors.

Ids and hashes become numbers in order of appearance, so that what was equal stays equal and what differed stays different; times become
`time`. The door's name, the run_key and which process it was are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_ID = re.compile(r"(?<=run_|all_|old_)[0-9a-hjkmnp-tv-z]{26}")
_PROCESS = re.compile(r"\bproc_[0-9a-z]{26}\b")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_LATE = re.compile(r"no answer within [0-9]+ ms|\S+ did not answer in time\.")
_DURATION = re.compile(r"\b[0-9]+(?:\.[0-9]+)? (?=ms\b|s\b)")
_TIMES = frozenset(
    {"expires_at", "execute_by", "execute_within_ms", "deadline_at", "lease_until", "deadline", "seconds_left", "at", "opened_at", "closed_at"}
)
_DROPPED = frozenset({"door", "run_key", "event_id", "hash"})


class Plain:
    """One agent's way; call it with any JSON value, in the order of what happened."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._member(name, item) for name, item in value.items() if name not in _DROPPED}
        if isinstance(value, list | tuple):
            return [self(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _member(self, name: str, item: Any) -> Any:
        return "time" if name in _TIMES and item is not None else self(item)

    def _text(self, text: str) -> str:
        text = _ID.sub(lambda found: self._named("id", found[0]), text)
        text = _PROCESS.sub("a process", text)
        text = _HASH.sub(lambda found: self._named("hash", found[0]), text)
        text = _LATE.sub("no answer in time", text)  # the upstream's own clock and the engine's say it in their own words
        return _DURATION.sub("some ", text)

    def _named(self, kind: str, known: str) -> str:
        return self._names.setdefault(known, f"<{kind} {len(self._names) + 1}>")
