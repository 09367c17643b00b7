"""The event stream of one answer, piece by piece: what is heard before it, which message it is, and where a broken stream goes on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.ports import UpstreamFault
from gateway.upstreams.mcp_stream import RETRY_MS, AnswerStream

HEADERS = {"Content-Type": "text/event-stream; charset=utf-8"}
ANSWER = {"jsonrpc": "2.0", "id": 7, "result": {"content": [], "big": 2**70}}


def data(message: object) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def reading(stream: AnswerStream, *pieces: bytes) -> list[bool]:
    reader = stream.tap(200, HEADERS)
    assert reader is not None
    return [reader(piece) for piece in pieces]


@pytest.mark.parametrize(
    ("status", "kind", "streamed"),
    [
        (200, "text/event-stream", True),
        (200, "Text/Event-Stream;x=y", True),
        (200, "application/json", False),
        (200, "", False),
        (400, "text/event-stream", False),
    ],
)
def test_only_a_successful_event_stream_is_read_as_one(status, kind, streamed):
    stream = AnswerStream(7, print, 1000)
    assert (stream.tap(status, {"Content-Type": kind}) is not None, stream.begun) == (streamed, streamed)


def test_what_comes_before_the_answer_is_heard_and_what_comes_after_is_not():
    heard: list = []
    stream = AnswerStream(7, lambda message: heard.append(message.method), 1000)
    first = {"jsonrpc": "2.0", "method": "notifications/progress"}
    after = {"jsonrpc": "2.0", "method": "notifications/message"}
    question = {"jsonrpc": "2.0", "id": 7, "method": "roots/list"}
    other = {"jsonrpc": "2.0", "id": 8, "result": {}}
    assert reading(stream, data(first), data(question) + data(other), data(ANSWER) + data(after)) == [False, False, True]
    assert (heard, stream.response.result) == (["notifications/progress", "roots/list"], ANSWER["result"])


@pytest.mark.parametrize("id", [7, None])
def test_an_error_answers_even_if_it_does_not_say_what(id):
    stream = AnswerStream(7, print, 1000)
    assert reading(stream, data({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no"}})) == [True]


def test_events_without_data_or_of_another_kind_are_passed_over():
    stream = AnswerStream(7, print, 1000)
    assert reading(stream, b": ping\n\n", b"id: e1\ndata:\n\n", b"event: endpoint\ndata: /x\n\n", data(ANSWER)) == [False, False, False, True]


def test_it_knows_after_which_event_to_go_on_and_when():
    stream = AnswerStream(7, print, 1000)
    assert (stream.last_id, stream.retry_ms) == (None, RETRY_MS)
    reading(stream, b"id: e1\nretry: 20\ndata:\n\n", b"id: e2\n\n")
    assert (stream.last_id, stream.retry_ms) == ("e2", 20)
    reading(stream, b": taken up\n\n")
    assert (stream.last_id, stream.retry_ms) == ("e2", 20)
    reading(stream, "id: é\n\n".encode())
    assert stream.last_id is None


@pytest.mark.parametrize(
    ("piece", "kind"), [(b"data: {\n\n", "garbage"), (b'data: {"jsonrpc":"2.0"}\n\n', "garbage"), (b"data: " + b"x" * 2000, "too_large")]
)
def test_what_cannot_be_read_or_is_too_long_is_a_fault(piece, kind):
    with pytest.raises(UpstreamFault) as caught:
        reading(AnswerStream(7, print, 1000), piece)
    assert caught.value.kind == kind


@given(st.lists(st.integers(1, 300), max_size=20))
@settings(max_examples=50, deadline=None)
def test_the_pieces_make_no_difference(cuts):
    whole = b"id: e1\ndata:\n\n" + data({"jsonrpc": "2.0", "method": "x"}) + data(ANSWER)
    places = sorted({cut % len(whole) for cut in cuts} - {0})
    heard: list = []
    stream = AnswerStream(7, heard.append, 1000)
    assert reading(stream, *[whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)])[-1] is True
    assert (len(heard), stream.response.result, stream.last_id) == (1, ANSWER["result"], "e1")
