"""Lines of a stream that nobody vouches for, and what of them is logged."""

from __future__ import annotations

import logging

from hypothesis import given
from hypothesis import strategies as st

from gateway.upstreams.lines import Foreign, Lines, Overlong, readable


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line and b"\r" not in line), max_size=6), st.data())
def test_lines_are_the_same_however_the_bytes_arrive(lines, data):
    stream = b"".join(line + data.draw(st.sampled_from([b"\n", b"\r\n"])) for line in lines)
    it, found = Lines(100), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        found += it.feed(stream[:cut])
        stream = stream[cut:]
    assert found == lines


def test_a_line_without_end_waits():
    it = Lines(100)
    assert list(it.feed(b"a")) == []
    assert list(it.feed(b"b\nc")) == [b"ab"]


def test_a_line_as_long_as_the_cap_is_whole_and_a_longer_one_keeps_its_ends():
    it = Lines(2000)
    assert list(it.feed(b"x" * 2000 + b"\n")) == [b"x" * 2000]
    (long,) = it.feed(b"a" * 1000 + b"x" * 1000 + b"b" * 1000 + b"\n")
    assert long == Overlong(b"a" * 512, b"b" * 512)
    assert list(it.feed(b"next\n")) == [b"next"]


def test_an_endless_line_is_not_held_in_memory():
    it = Lines(2000)
    for _ in range(1000):
        assert list(it.feed(b"x" * 65536)) == []
    assert len(it._rest) <= 512
    assert list(it.feed(b"end\n")) == [Overlong(b"x" * 512, b"x" * 509 + b"end")]


def test_foreign_text_is_logged_without_codes_and_cut():
    assert readable("ü\x1b[31m\r\nx\u202e".encode() + b"\xff") == "ü\\u001b[31m\\u000d\\u000ax\\u202e\\xff"
    assert len(readable(b"x" * 10_000)) == 2000


def test_a_flood_is_logged_in_part_and_counted(caplog):
    clock = [0.0]
    log = Foreign(logging.getLogger("test.lines"), lambda: clock[0], per_second=3)
    with caplog.at_level(logging.INFO):
        for _ in range(10):
            log.write(logging.INFO, "stderr", b"x")
        clock[0] = 1.5
        log.write(logging.INFO, "stderr", Overlong(b"long", b""))
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["stderr: x"] * 3 + ["7 more lines were dropped", "stderr: long..."]
