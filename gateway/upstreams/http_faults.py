"""What may come back over HTTP instead of a whole answer, read the same way by every upstream that speaks it through aiohttp.

`once` stands inside the client's own retry loop and turns each exception into an UpstreamFault there: the loop, which would silently
send an idempotent method again after a closed connection, never sees anything to retry. Messages name no URL: it may hold arguments.
Source: FACTS §4 (which fault means what); RFC 9110 §10.2.3 (Retry-After).
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from aiohttp import ClientError, ClientHandlerType, ClientRequest, ClientResponse, client_exceptions

from gateway.ports import UpstreamFault

_MAX_WAIT_MS: Final = 86_400_000
_KINDS: Final[tuple[tuple[type[Exception], str, str], ...]] = (
    (client_exceptions.ConnectionTimeoutError, "connect_timeout", "no connection in time"),
    (client_exceptions.ClientConnectorDNSError, "dns", "its name could not be resolved"),
    (client_exceptions.ClientSSLError, "tls", "no trusted TLS connection"),
    (client_exceptions.ClientConnectorError, "unreachable", "no connection"),
    (client_exceptions.ServerDisconnectedError, "closed", "the connection closed without a response"),
    (client_exceptions.ClientOSError, "reset", "the connection broke"),
    (client_exceptions.ClientPayloadError, "cut", "the response broke off"),
    (client_exceptions.ClientResponseError, "garbage", "the response is no valid HTTP"),
    (OSError, "reset", "the connection broke"),
)
"""The first row that fits counts: later rows are base classes of earlier ones."""


def fault_of(error: Exception, status: int | None = None) -> UpstreamFault:
    """The fault that one of aiohttp's exceptions means."""
    kind, message = next(((kind, says) for type_, kind, says in _KINDS if isinstance(error, type_)), ("closed", "the client was closed"))
    if kind == "unreachable" and isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        kind = "refused"
    if isinstance(error, OSError) and error.strerror:
        message = f"{message}: {error.strerror}"
    return UpstreamFault(kind, message, status=status)


async def once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """aiohttp middleware: one try, whose exceptions are UpstreamFaults."""
    try:
        return await handler(request)
    except (ClientError, OSError) as error:
        raise fault_of(error) from error


async def read_body(response: ClientResponse, max_bytes: int) -> bytes:
    """The whole body, decompressed, at most `max_bytes` long at every step; the caller bounds the time.

    Raises UpstreamFault with the response's status; the connection is closed then, and also when cancelled.
    """
    try:
        body = await _read(response, max_bytes)
    except (ClientError, OSError) as error:
        response.close()
        raise fault_of(error, response.status) from error
    except BaseException:
        response.close()
        raise
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    return body if encoding == "identity" else _inflated(body, encoding, response.status, max_bytes)


async def _read(response: ClientResponse, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            raise _too_large(response.status, max_bytes)
    return bytes(body)


def retry_after_ms(headers: Mapping[str, str]) -> int | None:
    """How long the upstream asks to wait; a date counts from the response's own Date, so no clock is read. At most a day."""
    wanted = headers.get("Retry-After", "").strip()
    if wanted.isascii() and wanted.isdigit():
        return min(int(wanted[:9]) * 1000, _MAX_WAIT_MS)
    try:
        wait = parsedate_to_datetime(wanted) - parsedate_to_datetime(headers.get("Date", ""))
    except (ValueError, TypeError):  # no date, or only one of the two has a zone
        return None
    return min(max(int(wait.total_seconds() * 1000), 0), _MAX_WAIT_MS)


def _inflated(body: bytes, encoding: str, status: int, max_bytes: int) -> bytes:
    """gzip and deflate, which some servers use though we ask for neither; a bomb stops at the cap."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UpstreamFault("garbage", f"the response is encoded as {encoding[:32]!r}, which was not asked for", status=status)
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = inflate.decompress(body, max_bytes + 1)
    except zlib.error:
        raise UpstreamFault("garbage", f"the response is no valid {encoding}", status=status) from None
    if len(plain) > max_bytes:
        raise _too_large(status, max_bytes)
    if not inflate.eof or inflate.unused_data:
        raise UpstreamFault("cut", f"the response's {encoding} stream is not whole", status=status)
    return plain


def _too_large(status: int, max_bytes: int) -> UpstreamFault:
    return UpstreamFault("too_large", f"the response is longer than {max_bytes} bytes", status=status)
