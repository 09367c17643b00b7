"""What may come over HTTP instead of a whole answer, and how a whole one is read.

Messages name no URL: it may hold arguments. Source: FACTS §4 (which fault means what); RFC 9110 §8.4 (codings), §10.2.3 (Retry-After).
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import zlib
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from gateway.ports import UpstreamFault

_MAX_WAIT_MS: Final = 86_400_000


def connect_fault(error: OSError, *, tls: bool = False) -> UpstreamFault:
    """Why there is no connection; nothing was sent. `tls`: the handshake had begun."""
    if isinstance(error, socket.gaierror):
        kind, message = "dns", "its name could not be resolved"
    elif tls or isinstance(error, ssl.SSLError):
        kind, message = "tls", "no trusted TLS connection"
    elif isinstance(error, ConnectionRefusedError):
        kind, message = "refused", "no connection"
    else:
        kind, message = "connect_timeout" if error.errno == errno.ETIMEDOUT else "unreachable", "no connection"
    why = error.strerror if kind in ("dns", "tls") else os.strerror(error.errno or 0)  # a socket's own text says where the upstream is
    return UpstreamFault(kind, f"{message}: {why}" if error.errno and why else message)


def decoded(body: bytes, headers: Mapping[str, str], status: int, max_bytes: int) -> bytes:
    """The body without its coding, at most `max_bytes` long at every step. Raises UpstreamFault with the response's status."""
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    return body if encoding == "identity" else _inflated(body, encoding, status, max_bytes)


def too_large(status: int, max_bytes: int) -> UpstreamFault:
    return UpstreamFault("too_large", f"the response is longer than {max_bytes} bytes", status=status)


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
        raise too_large(status, max_bytes)
    if not inflate.eof or inflate.unused_data:
        raise UpstreamFault("cut", f"the response's {encoding} stream is not whole", status=status)
    return plain
