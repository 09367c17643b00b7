"""A new connection to an origin: its name, its address, TLS, each failure with its own kind; not a byte of a request leaves here.

Several addresses are tried as RFC 8305 says, the families in turn, each a quarter of a second after the one before or when that failed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio.staggered import staggered_race
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast
from urllib.parse import urlsplit

from gateway.upstreams.http_connection import Connection
from gateway.upstreams.http_faults import connect_fault

_HEAD_START_S: Final = 0.25
_PORTS: Final = {"http": 80, "https": 443}

_Address = tuple[socket.AddressFamily, Any]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where requests go. `host`: a name in its ASCII form or an IP address without brackets. `authority`: as the Host header has it."""

    host: str
    port: int
    secure: bool
    authority: str

    @classmethod
    def of(cls, url: str) -> Origin:
        """Raises ValueError for a URL that names none, or has a user in it; the message doesn't show the URL."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or "@" in parts.netloc:
            raise ValueError("wanted a URL with http or https and a host, and without a user or password")
        host = parts.hostname.encode("idna").decode() if not parts.hostname.isascii() else parts.hostname
        port = parts.port or _PORTS[parts.scheme]
        bracketed = f"[{host}]" if ":" in host else host
        authority = bracketed if port == _PORTS[parts.scheme] else f"{bracketed}:{port}"
        return cls(host, port, parts.scheme == "https", authority)


def tls_context() -> ssl.SSLContext:
    """The system's authorities, or those of SSL_CERT_FILE; reading them takes long: once an upstream."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def dial(origin: Origin, tls: ssl.SSLContext | None, protocol: Callable[[], Connection]) -> Connection:
    """A connection that is ready for a request. Raises UpstreamFault; the caller bounds the time."""
    loop = asyncio.get_running_loop()
    try:
        sock = await _socket(await _addresses(origin))
    except OSError as error:
        raise connect_fault(error) from error
    name = origin.host if tls is not None else None
    try:
        _, connection = await loop.create_connection(protocol, sock=sock, ssl=tls, server_hostname=name)
    except OSError as error:
        raise connect_fault(error, tls=tls is not None) from error
    return connection


async def _addresses(origin: Origin) -> list[_Address]:
    """The families in turn, each in the order of the resolver."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "it is no name") from error
    seen: Counter[int] = Counter()
    ranked = []
    for family, _, _, _, address in found:
        ranked.append((seen[family], family, address))
        seen[family] += 1
    return [(family, address) for _, family, address in sorted(ranked, key=lambda each: each[0])]


async def _socket(addresses: Sequence[_Address]) -> socket.socket:
    if len(addresses) == 1:
        return await _connected(addresses[0], [])
    made: list[socket.socket] = []
    try:
        won, _, errors = await staggered_race([partial(_connected, each, made) for each in addresses], _HEAD_START_S)
    except BaseException:
        for sock in made:
            sock.close()
        raise
    if won is None:
        raise next((error for error in errors if error is not None), OSError("it has no address"))
    return cast(socket.socket, won)


async def _connected(address: _Address, made: list[socket.socket]) -> socket.socket:
    """`made` gets the socket too: whoever is cancelled while it comes back can't see it otherwise."""
    sock = socket.socket(address[0], socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address[1])
    except BaseException:
        sock.close()
        raise
    made.append(sock)
    return sock
