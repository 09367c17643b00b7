"""Events survive any way of cutting their bytes, and one event can't hold more than it may."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.sse import Decoder, Event, SseError, comment, encode

CAPTURED = (
    b": ping\r\n\r\n"
    b'event: message\r\ndata: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\r\n\r\n'
    b'event: message\r\ndata: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}\r\n\r\n'
)


def decode(stream: bytes, size: int = 1 << 20, cap: int = 1 << 20) -> list[Event]:
    decoder, events = Decoder(cap), []
    for start in range(0, len(stream), size):
        events += decoder.feed(stream[start : start + size])
    return events


def test_a_captured_stream_is_read_without_its_comments() -> None:
    events = decode(CAPTURED)
    assert [event.event for event in events] == ["message", "message"]
    assert events[1].data == b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_any_cut_and_line_end_gives_the_same_events(line_end: bytes, size: int) -> None:
    assert decode(CAPTURED.replace(b"\r\n", line_end), size) == decode(CAPTURED)


def test_a_line_end_between_empty_chunks_is_one_line_end() -> None:
    decoder = Decoder(100)
    assert [decoder.feed(chunk) for chunk in (b"data: a\r", b"", b"\ndata: b\r", b"\r")] == [[], [], [], [Event(b"a\nb")]]


def test_data_of_many_lines_is_joined_and_one_blank_is_dropped() -> None:
    assert decode(b"data: a\ndata:b\ndata:  c\ndata\n\n") == [Event(b"a\nb\n c\n")]


def test_an_event_without_data_is_none_but_an_empty_one_is_read() -> None:
    assert decode(b"event: x\n\nid: 7\ndata:\n\n") == [Event(b"", "message", "7")]


def test_an_event_that_the_end_cuts_off_is_dropped() -> None:
    assert decode(b"data: a\n\ndata: b\n") == [Event(b"a")]


def test_ids_last_and_retry_is_kept_for_a_reconnect() -> None:
    decoder = Decoder(100)
    events = decoder.feed(b"\xef\xbb\xbfid: 1\nretry: 500\ndata: a\n\nid: x\0y\nretry: soon\nretry: 1000000000\nfoo: 12\ndata: b\n\n")
    assert events == [Event(b"a", "message", "1"), Event(b"b", "message", "1")]
    assert (decoder.last_id, decoder.retry_ms) == ("1", 500)


def test_an_event_may_hold_so_many_bytes_and_no_more() -> None:
    assert decode(b"data: " + b"x" * 94 + b"\n\n", cap=100)[0].data == b"x" * 94
    assert decode(b"data: xxx\n" * 10 + b"data: " + b"x" * 54 + b"\n\n", cap=100)[0].data.endswith(b"x" * 54)
    for stream in (b"data: " + b"x" * 95, b"data: xxx\n" * 10 + b"data: " + b"x" * 55, b"x" * 101, b"data: xxxxxxxxx\n" * 20, b"data\n" * 200):
        with pytest.raises(SseError):
            decode(stream, size=3, cap=100)


def test_many_events_together_may_hold_more_than_one() -> None:
    assert len(decode(b"data: " + b"x" * 50 + b"\n\n" + b"data: y\n\n" * 100, cap=60)) == 101


def test_a_long_line_in_single_bytes_is_read_soon() -> None:
    assert len(decode(b"data: " + b"x" * 300_000 + b"\n\n", size=1)) == 1  # quadratic work here would run for minutes


def test_an_event_is_encoded_with_its_name_and_id() -> None:
    assert encode(b"{}", event="message", id="7") == b"event: message\nid: 7\ndata: {}\n\n"
    assert encode(b"") == b"data: \n\n"
    assert comment("ping") == b": ping\n\n"


@pytest.mark.parametrize("field", ["a\nb", "a\rb", "a\0b"])
def test_a_field_that_would_break_its_line_is_refused(field: str) -> None:
    for broken in ({"event": field}, {"id": field}):
        with pytest.raises(ValueError, match="one line"):
            encode(b"{}", **broken)
    with pytest.raises(ValueError, match="one line"):
        comment(field)


@given(st.binary(), st.integers(1, 9), st.sampled_from([None, "message", "é"]))
def test_what_is_encoded_is_decoded(data: bytes, size: int, name: str | None) -> None:
    normal = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert decode(comment() + encode(data, event=name), size) == [Event(normal, name or "message")]


@given(st.lists(st.sampled_from([b"data: a", b"\n", b"\r", b"\r\n", b":", b"id: 1", b"event:x", b"\xff", b"data"])).map(b"".join), st.integers(1, 5))
def test_chunks_never_change_what_is_read(stream: bytes, size: int) -> None:
    assert decode(stream, size) == decode(stream)
