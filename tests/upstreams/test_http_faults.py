"""Why there is no connection, how long to wait, and how a body is decoded within its cap."""

from __future__ import annotations

import errno
import gzip
import socket
import ssl
import zlib

import pytest

from gateway.core.outcomes import FAULTS
from gateway.ports import UpstreamFault
from gateway.upstreams.http_faults import connect_fault, decoded, retry_after_ms

ANSWERED = "Sun, 29 Nov 2026 18:00:00 GMT"


@pytest.mark.parametrize(
    ("error", "tls", "kind"),
    [
        (socket.gaierror(socket.EAI_NONAME, "no name"), False, "dns"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), False, "refused"),
        (OSError(errno.ENETUNREACH, "no route"), False, "unreachable"),
        (OSError(errno.EMFILE, "too many files"), False, "unreachable"),
        (OSError("several"), False, "unreachable"),
        (TimeoutError(errno.ETIMEDOUT, "late"), False, "connect_timeout"),
        (ssl.SSLCertVerificationError(1, "self-signed"), True, "tls"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), True, "tls"),
    ],
)
def test_no_connection_has_a_kind_that_says_nothing_was_sent(error, tls, kind):
    assert connect_fault(error, tls=tls).kind == kind
    assert not FAULTS[kind].sent


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


def body_of(data: bytes, max_bytes: int = 1000, **headers: str) -> bytes:
    return decoded(data, {name.replace("_", "-").title(): value for name, value in headers.items()}, 200, max_bytes)


ENCODED = [("gzip", gzip.compress(b"hello", mtime=0)), ("deflate", zlib.compress(b"hello")), ("Identity", b"hello")]


@pytest.mark.parametrize(("encoding", "data"), ENCODED)
def test_an_encoded_body_is_decoded(encoding, data):
    assert body_of(data, content_encoding=encoding) == b"hello"


@pytest.mark.parametrize(
    ("encoding", "data", "kind"),
    [
        ("gzip", gzip.compress(b"\0" * 5_000_000, mtime=0), "too_large"),
        ("gzip", gzip.compress(b"hello", mtime=0)[:-3], "cut"),
        ("gzip", gzip.compress(b"hello", mtime=0) + b"more", "cut"),
        ("gzip", b"", "cut"),
        ("gzip", b"hello", "garbage"),
        ("br", b"hello", "garbage"),
    ],
)
def test_a_body_that_cannot_be_taken_keeps_its_status(encoding, data, kind):
    with pytest.raises(UpstreamFault) as caught:
        body_of(data, max_bytes=10_000 if encoding == "gzip" else 1000, content_encoding=encoding)
    assert (caught.value.kind, caught.value.status) == (kind, 200)


def test_a_body_that_decodes_to_the_cap_is_taken():
    assert body_of(gzip.compress(b"x" * 1000, mtime=0), content_encoding="gzip") == b"x" * 1000
