"""What aiohttp's exceptions mean, how long to wait, and how a body is read within its cap."""

from __future__ import annotations

import errno
import gzip
import zlib

import aiohttp
import pytest

from gateway.core.outcomes import FAULTS
from gateway.ports import UpstreamFault
from gateway.upstreams.http_faults import fault_of, once, read_body, retry_after_ms
from tests.upstreams.origin import origin

ANSWERED = "Sun, 29 Nov 2026 18:00:00 GMT"


def subclasses(of: type) -> set[type]:
    return {of} | {each for child in of.__subclasses__() for each in subclasses(child)}


@pytest.mark.parametrize("kind", sorted(subclasses(aiohttp.ClientError), key=lambda each: each.__name__), ids=lambda each: each.__name__)
def test_every_exception_of_the_client_has_a_kind_and_only_connecting_is_harmless(kind):
    error = kind.__new__(kind)
    fault = FAULTS[fault_of(error).kind]
    connecting = issubclass(kind, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    assert fault.sent is not connecting


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), "reset"),
        (BrokenPipeError(errno.EPIPE, "pipe"), "reset"),
        (aiohttp.ClientOSError(errno.ECONNREFUSED, "not while connecting"), "reset"),
        (aiohttp.ServerDisconnectedError(), "closed"),
        (aiohttp.ClientPayloadError(), "cut"),
        (aiohttp.SocketTimeoutError(), "reset"),
    ],
)
def test_the_kind_of_a_fault(error, kind):
    assert fault_of(error, 200).kind == kind
    assert fault_of(error, 200).status == 200


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("0", 0),
        ("7", 7000),
        (" 7 ", 7000),
        ("999999999999999", 86_400_000),
        ("Sun, 29 Nov 2026 18:01:30 GMT", 90_000),
        ("Sun, 29 Nov 2026 17:00:00 GMT", 0),
        ("Sun, 29 Nov 2027 18:00:00 GMT", 86_400_000),
        ("29 Nov 2026 18:01:30", None),
        ("", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
    ],
)
def test_how_long_the_upstream_asks_to_wait(value, ms):
    assert retry_after_ms({"Retry-After": value, "Date": ANSWERED}) == ms


def test_a_date_without_the_responses_own_date_says_nothing():
    assert retry_after_ms({"Retry-After": ANSWERED}) is None
    assert retry_after_ms({}) is None


async def body_of(data: bytes, max_bytes: int = 1000, **headers: str) -> bytes:
    async def script(connection):
        await connection.request()
        await connection.answer(data, **headers)

    async with origin(script) as it, aiohttp.ClientSession(auto_decompress=False, middlewares=(once,)) as session:
        return await read_body(await session.get(it.url), max_bytes)


ENCODED = [("gzip", gzip.compress(b"hello", mtime=0)), ("deflate", zlib.compress(b"hello")), ("Identity", b"hello")]


@pytest.mark.anyio
@pytest.mark.parametrize(("encoding", "data"), ENCODED)
async def test_an_encoded_body_is_decoded(encoding, data):
    assert await body_of(data, content_encoding=encoding) == b"hello"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("encoding", "data", "kind"),
    [
        ("gzip", gzip.compress(b"\0" * 5_000_000, mtime=0), "too_large"),
        ("gzip", gzip.compress(b"hello", mtime=0)[:-3], "cut"),
        ("gzip", gzip.compress(b"hello", mtime=0) + b"more", "cut"),
        ("gzip", b"", "cut"),
        ("gzip", b"hello", "garbage"),
        ("br", b"hello", "garbage"),
        ("identity", b"x" * 1001, "too_large"),
    ],
)
async def test_a_body_that_cannot_be_taken_keeps_its_status(encoding, data, kind):
    with pytest.raises(UpstreamFault) as caught:
        await body_of(data, max_bytes=10_000 if encoding == "gzip" else 1000, content_encoding=encoding)
    assert (caught.value.kind, caught.value.status) == (kind, 200)


@pytest.mark.anyio
async def test_a_body_as_long_as_the_cap_is_taken():
    assert await body_of(b"x" * 1000) == b"x" * 1000
