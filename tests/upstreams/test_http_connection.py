"""One connection: what it makes of every framing, in whatever pieces it comes, and when another request may follow."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.ports import UpstreamFault
from gateway.upstreams.http_connection import MAX_HEAD, Connection, Response
from tests.cycles import is_let_go

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
PLAIN = OK + b"content-length: 5\r\nx-a: 1\r\n\r\nhello"
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Line:
    """A connection over a socket pair; `peer` is the other end. `idle` and `lost` count what it reported."""

    def __init__(self) -> None:
        self.idle = self.lost = 0
        self.connection: Connection
        self.peer: socket.socket

    def on_idle(self, _: Connection) -> None:
        self.idle += 1

    def on_lost(self, _: Connection) -> None:
        self.lost += 1

    def ask(self, max_bytes: int = 1000, seconds: float = 5, **more) -> asyncio.Task[Response]:
        until = asyncio.get_running_loop().time() + seconds
        return asyncio.ensure_future(self.connection.exchange(REQUEST, until, seconds, max_bytes, **more))

    async def hung_up(self) -> bool:
        """Whether our end closes, seen from the peer's, which gets what was sent first."""
        self.peer.setblocking(False)
        async with asyncio.timeout(5):
            while await asyncio.get_running_loop().sock_recv(self.peer, 4096):
                pass
        return True


@asynccontextmanager
async def line() -> AsyncIterator[Line]:
    it = Line()
    ours, it.peer = socket.socketpair()
    _, it.connection = await asyncio.get_running_loop().create_connection(lambda: Connection(it.on_idle, it.on_lost), sock=ours)
    try:
        yield it
    finally:
        it.connection.close()
        it.peer.close()
        await asyncio.sleep(0)


async def exchange(pieces: Iterable[bytes], *, ends: bool = False, **more) -> tuple[object, bool]:
    """The response, or the fault's kind and status, to these pieces; and whether the connection may be used again."""
    async with line() as it:
        call = it.ask(**more)
        await asyncio.sleep(0)
        for piece in pieces:
            it.connection.data_received(piece)
        if ends:
            it.connection.eof_received()
        try:
            async with asyncio.timeout(5):
                outcome: object = await call
        except UpstreamFault as fault:
            outcome = (fault.kind, fault.status)
        return outcome, bool(it.idle and not it.lost)


def body(text: bytes) -> bytes:
    return b"content-length: %d\r\n\r\n%s" % (len(text), text)


@pytest.mark.parametrize(
    ("bytes_", "status", "expected"),
    [
        (PLAIN, 200, b"hello"),
        (OK + body(b""), 200, b""),
        (CHUNKED + b'5;a=b;c="d"\r\nhello\r\n1\r\n!\r\n0\r\nX-Trailer: y\r\nContent-Type: z\r\n\r\n', 200, b"hello!"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b""),
        (b"HTTP/1.1 100 Continue\r\nx-b: 2\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + PLAIN, 200, b"hello"),
        (b"HTTP/1.1 200\r\n" + body(b"x"), 200, b"x"),
    ],
)
async def test_a_whole_response_leaves_the_connection_open(bytes_, status, expected):
    response, kept = await exchange([bytes_])
    assert isinstance(response, Response)
    assert (response.status, response.body, kept) == (status, expected, True)
    assert not {"X-B", "X-Trailer", "Content-Type"} & set(response.headers)


async def test_headers_are_named_in_one_way_and_the_first_of_equal_ones_counts():
    response, _ = await exchange([OK + b"CONTENT-TYPE: a  \r\ncontent-type: b\r\nretry-After:\r\n" + body(b"")])
    assert response.headers == {"Content-Type": "a", "Retry-After": "", "Content-Length": "0"}


@pytest.mark.parametrize(
    ("bytes_", "expected"),
    [
        (OK + b"connection: close\r\n" + body(b"hello"), b"hello"),
        (b"HTTP/1.0 200 OK\r\n" + body(b"hello"), b"hello"),
        (PLAIN + b"HTTP/1.1 200 OK\r\ncontent-type: evil\r\n" + body(b"junk!"), b"hello"),
        (PLAIN + b"HTT", b"hello"),
        (PLAIN + b"\0", b"hello"),
        (PLAIN + b"x" * MAX_HEAD, b"hello"),
    ],
)
async def test_a_response_that_ends_the_connection_or_has_something_behind_it_is_whole_but_the_last(bytes_, expected):
    response, kept = await exchange([bytes_])
    assert (response.body, kept, response.headers.get("Content-Type")) == (expected, False, None)


@pytest.mark.parametrize("length", [b"content-length: 5\r\n\r\n", b"content-length: 0\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n", b"\r\n"])
async def test_the_answer_to_a_head_has_no_body_whatever_it_says(length):
    response, kept = await exchange([OK + length], bodiless=True)
    assert (response.status, response.body, kept) == (200, b"", False)


async def test_without_a_length_the_body_ends_with_the_connection():
    response, kept = await exchange([OK + b"\r\nhel", b"lo"], ends=True)
    assert (response.body, kept) == (b"hello", False)


@pytest.mark.parametrize(
    ("bytes_", "fault"),
    [
        (b"", ("closed", None)),
        (b"HTTP/1.1 2", ("cut", None)),
        (b"HTTP/1.1 100 Continue\r\n\r\n", ("cut", None)),
        (OK + b"content-length: 9\r\n\r\nhello", ("cut", 200)),
        (CHUNKED + b"5\r\nhello\r\n", ("cut", 200)),
        (CHUNKED + b"5\r\nhello\r\n0\r\nx: y\r\n", ("cut", 200)),
    ],
)
async def test_a_connection_that_ends_too_early_says_how_far_it_came(bytes_, fault):
    assert await exchange([bytes_] if bytes_ else [], ends=True) == (fault, False)


@pytest.mark.parametrize(
    "bytes_",
    [
        b"SSH-2.0-x\r\n",
        OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        OK + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
        OK + b"content-length: 5, 5\r\n\r\nhello",
        OK + b"content-length: -5\r\n\r\nhello",
        OK + b"content-length: 99999999999999999999999\r\n\r\nhello",
        OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        OK + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
        OK + b"x: a\r\n folded\r\n" + body(b""),
        OK + b"x : a\r\n" + body(b""),
        OK + b"x: a\0b\r\n" + body(b""),
        OK + b"x: a\rb\r\n" + body(b""),
        b"HTTP/1.1 200 OK\ncontent-length: 0\n\n",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 042 What\r\n" + body(b""),
        b"HTTP/1.1 20 OK\r\n" + body(b""),
        b"HTTP/1.1 104 What\r\n" + body(b"hello"),
    ],
)
async def test_what_is_no_response_to_a_request_is_garbage(bytes_):
    assert await exchange([bytes_], ends=True) == (("garbage", None), False)


@pytest.mark.parametrize("coding", [b"gzip", b"gzip, chunked", b"chunked, gzip", b"identity"])
async def test_a_transfer_coding_that_was_not_asked_for_is_garbage(coding):
    outcome, kept = await exchange([OK + b"transfer-encoding: %s\r\n\r\n0\r\n\r\n" % coding], ends=True)
    assert (outcome, kept) == (("garbage", 200), False)


async def test_broken_chunks_are_garbage_with_their_status():
    assert await exchange([CHUNKED + b"zz\r\n"]) == (("garbage", 200), False)


def head_of(size: int) -> bytes:
    start = OK + b"content-length: 0\r\nx: "
    return start + b"y" * (size - len(start) - 4) + b"\r\n\r\n"


@pytest.mark.parametrize("step", [MAX_HEAD * 2, 1000])
async def test_a_head_as_long_as_its_bound_is_taken_and_no_longer_one(step):
    for size, wanted in ((MAX_HEAD, 200), (MAX_HEAD + 1, None)):
        data = head_of(size)
        outcome, _ = await exchange([data[at : at + step] for at in range(0, len(data), step)])
        assert outcome == ("garbage", None) if wanted is None else outcome.status == wanted


@pytest.mark.parametrize("endless", [b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"x: ", CHUNKED + b"1;", CHUNKED + b"1\r\nx\r\n0\r\nx: "])
async def test_interim_responses_extensions_and_trailers_end_somewhere(endless):
    more = endless if endless.startswith(b"HTTP/1.1 100") else b"y" * 1000
    outcome, kept = await exchange([endless, *[more] * 6000])
    assert (outcome[0], kept) == ("garbage", False)


@pytest.mark.parametrize("framing", [b"content-length: 11\r\n\r\n%s", b"transfer-encoding: chunked\r\n\r\nb\r\n%s\r\n0\r\n\r\n", b"\r\n%s"])
async def test_a_body_has_at_most_as_many_bytes_as_asked(framing):
    whole = OK + framing % (b"x" * 11)
    assert await exchange([whole], ends=True, max_bytes=10) == (("too_large", 200), False)
    assert (await exchange([whole], ends=True, max_bytes=11))[0].body == b"x" * 11


async def test_a_long_body_in_few_pieces_is_whole():
    text = bytes(range(256)) * 2000
    response, kept = await exchange([OK + body(text)], max_bytes=len(text))
    assert (response.body == text, kept) == (True, True)


@given(
    st.sampled_from([
        b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, CHUNKED + b"5;a=b\r\nhello\r\n0\r\nx: y\r\n\r\n", OK + b"x:\r\n\r\nhello", PLAIN[:-2],
        OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\n", CHUNKED + b"zz\r\n", OK + b"x: a\r\n b\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n",
    ]),
    st.data(),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_the_pieces_a_response_comes_in_make_no_difference(bytes_, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(bytes_) - 1))))
    pieces = [bytes_[a:b] for a, b in zip([0, *cuts], [*cuts, len(bytes_)], strict=True)]
    single = [bytes_[at : at + 1] for at in range(len(bytes_))]
    whole = asyncio.run(exchange([bytes_], ends=True))
    assert asyncio.run(exchange(pieces, ends=True))[0] == whole[0]
    assert asyncio.run(exchange(single, ends=True))[0] == whole[0]


@given(st.binary(max_size=300), st.booleans())
@settings(max_examples=100, deadline=None)
def test_whatever_comes_ends_the_call_with_an_answer_or_a_fault(bytes_, begun):
    outcome, kept = asyncio.run(exchange([(OK if begun else b"") + bytes_] if begun or bytes_ else [], ends=True))
    assert isinstance(outcome, Response) or outcome[0] in ("closed", "cut", "garbage")
    assert not kept


# ---- faults from outside ------------------------------------------------------------------------------------------------


async def test_a_connection_that_was_lost_before_the_request_sent_nothing():
    async with line() as it:
        it.connection.close()
        with pytest.raises(UpstreamFault) as caught:
            await it.ask()
    assert caught.value.kind == "unreachable"


async def test_an_upstream_that_speaks_first_gets_no_request():
    async with line() as it:
        it.connection.data_received(b"SSH-2.0-x\r\n")
        with pytest.raises(UpstreamFault) as caught:
            await it.ask()
        assert caught.value.kind == "unreachable"
        assert it.peer.recv(100) == b""


@pytest.mark.parametrize("junk", [b"HTTP/1.1 408 Request Timeout\r\n\r\n", b"x", b"\r\n"])
async def test_bytes_on_an_idle_connection_close_it(junk):
    async with line() as it:
        call = it.ask()
        await asyncio.sleep(0)
        it.connection.data_received(PLAIN)
        await call
        assert (it.idle, it.lost) == (1, 0)
        it.peer.send(junk)
        assert await it.hung_up()
        assert it.lost >= 1


async def test_the_end_of_an_idle_connection_is_reported_before_it_is_used_again():
    async with line() as it:
        call = it.ask()
        await asyncio.sleep(0)
        it.connection.data_received(PLAIN)
        await call
        it.connection.eof_received()
        assert it.lost >= 1


async def test_the_deadline_ends_it_and_closes():
    async with line() as it:
        call = it.ask(seconds=0.05)
        await asyncio.sleep(0)
        it.connection.data_received(OK + b"content-length: 5\r\n\r\n")
        with pytest.raises(UpstreamFault) as caught:
            await call
        assert (caught.value.kind, caught.value.status) == ("timeout", 200)
        assert await it.hung_up()

async def test_a_fault_leaves_nothing_behind():
    async with line() as it:
        assert await is_let_go(lambda: it.ask(seconds=0.01), UpstreamFault)


@pytest.mark.parametrize(("first_s", "second_s"), [(0.03, 0.1), (5, 0.05)])
async def test_each_request_on_a_connection_has_its_own_deadline(first_s, second_s):
    async with line() as it:
        call = it.ask(seconds=first_s)
        await asyncio.sleep(0)
        it.connection.data_received(PLAIN)
        await call
        asked_at = asyncio.get_running_loop().time()
        with pytest.raises(UpstreamFault) as caught:
            await it.ask(seconds=second_s)
        assert (caught.value.kind, caught.value.message) == ("timeout", f"no whole answer within {second_s} s")
        assert second_s - 0.002 <= asyncio.get_running_loop().time() - asked_at < 4  # libuv counts in ms


async def test_a_deadline_that_passes_between_requests_ends_nothing():
    async with line() as it:
        for _ in range(2):
            call = it.ask(seconds=0.02)
            await asyncio.sleep(0)
            it.connection.data_received(PLAIN)
            assert (await call).body == b"hello"
            later = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_at(it.connection._until + 0.01, later.set_result, None)
            await later
        assert (it.idle, it.lost) == (2, 0)


async def test_cancelling_closes_at_once():
    async with line() as it:
        call = it.ask()
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert it.lost >= 1
        assert await it.hung_up()


async def test_a_request_that_follows_before_the_last_caller_woke_is_not_disturbed():
    async with line() as it:
        follows: list[asyncio.Task[Response]] = []
        it.connection._idle = lambda _: follows.append(it.ask()) if not follows else None
        call = it.ask()
        await asyncio.sleep(0)
        it.connection.data_received(PLAIN)
        assert (await call).body == b"hello"
        await asyncio.sleep(0)
        it.connection.data_received(OK + body(b"second"))
        async with asyncio.timeout(5):
            assert (await follows[0]).body == b"second"


async def test_an_answer_before_the_whole_request_left_is_taken_and_the_connection_closed():
    async with line() as it:
        until = asyncio.get_running_loop().time() + 5
        call = asyncio.ensure_future(it.connection.exchange(b"x" * 50_000_000, until, 5, 1000))
        await asyncio.sleep(0)
        it.connection.data_received(b"HTTP/1.1 413 Too Large\r\n" + body(b""))
        assert ((await call).status, it.idle) == (413, 0)
        assert it.lost >= 1
