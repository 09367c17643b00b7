"""The SQL files: found, named, numbered, and the same names wherever two stores need them."""

from __future__ import annotations

import pytest

from gateway.ledger.sql import migrations, numbered, statements


def test_question_marks_and_names_become_numbers() -> None:
    assert numbered("SELECT a FROM b WHERE c = ? AND d = ?") == ("SELECT a FROM b WHERE c = $1 AND d = $2", ("?0", "?1"))
    assert numbered("(a = :a OR :a IS NULL) AND b < :before LIMIT :a") == ("(a = $1 OR $1 IS NULL) AND b < $2 LIMIT $1", ("a", "before"))


def test_a_cast_is_no_value() -> None:
    assert numbered("SELECT unnest(?::text[]), x::bigint") == ("SELECT unnest($1::text[]), x::bigint", ("?0",))


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_store_has_its_own_statements_and_those_of_all(store: str) -> None:
    found = statements(store)
    assert {"events_from", "newest_runs", "clear_calls"} < found.keys()
    assert not [name for name, text in found.items() if not text or text.startswith("--")]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_migrations_come_in_order(store: str) -> None:
    assert len(migrations(store)) >= 1
    assert "CREATE TABLE events" in migrations(store)[0]
