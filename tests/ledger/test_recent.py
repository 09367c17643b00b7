"""The latest values, up to a number of bytes."""

from __future__ import annotations

from gateway.ledger.recent import Recent


def test_the_least_recently_used_go_when_the_bytes_are_spent() -> None:
    recent: Recent[int, bytes] = Recent(80)
    for number in range(8):
        recent.put(number, bytes(10))
    assert recent.get(0) == bytes(10)
    recent.put(8, bytes(10))
    assert recent.get(1) is None
    assert recent.get(0) == bytes(10)
    assert recent.get(8) == bytes(10)


def test_a_value_that_would_push_out_many_is_not_kept() -> None:
    recent: Recent[str, str] = Recent(80)
    recent.put("big", "x" * 11)
    assert recent.get("big") is None


def test_putting_a_value_again_counts_it_once() -> None:
    recent: Recent[str, str] = Recent(16)
    for _ in range(20):
        recent.put("a", "xx")
    recent.put("b", "yy")
    assert (recent.get("a"), recent.get("b")) == ("xx", "yy")


def test_what_is_let_go_makes_room() -> None:
    recent: Recent[str, str] = Recent(80)
    for name in "abcdefgh":
        recent.put(name, "x" * 10)
    recent.forget(lambda key: key in "ab")
    recent.put("i", "x" * 10)
    recent.put("j", "x" * 10)
    assert [name for name in "abcdefghij" if recent.get(name) is None] == ["a", "b"]


def test_an_empty_value_is_a_value() -> None:
    recent: Recent[str, bytes] = Recent(16)
    recent.put("a", b"")
    assert recent.get("a") == b""
