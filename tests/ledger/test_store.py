"""The rows that a store is given."""

from __future__ import annotations

import pytest

from gateway.ledger.store import CheckpointRow, EventRow, PayloadRow, Rows


def test_rows_are_nothing_until_something_is_in_them() -> None:
    assert not Rows()


@pytest.mark.parametrize(
    "rows",
    [
        Rows(events=[EventRow("s", 1, "i", 1, "k", 1, "{}", "h")]),
        Rows(payloads=[PayloadRow("s", "h", b"", b"")]),
        Rows(policies={"d": "t"}),
        Rows(checkpoints=[CheckpointRow("s", 1, 1, "null")]),
        Rows(views={"runs": {"r": ("r",)}}),
    ],
)
def test_anything_in_them_is_something(rows: Rows) -> None:
    assert rows
