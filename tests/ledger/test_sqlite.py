"""The SQLite store: the conformance suite, and what only a file and a process can show."""

from __future__ import annotations

from tests.ledger.conformance import *  # noqa: F403
