"""Connections to one PostgreSQL primary: how they are made, what they may cost, and its faults as ours.

* Every wait has an end: connecting, statements, locks, and a transaction whose process sleeps; what such a process had locked is freed.
* Text here may hold U+0000, which PostgreSQL's can't: it is written with an escape that no other text has.
* An address may hold a password. Messages repeat nothing that was written in an address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg

from gateway.ledger.sql import numbered, statements
from gateway.ports import LedgerFault

SQL: Final = {name: numbered(text) for name, text in statements("postgres").items()}
STATEMENT_S: Final = 8.0
"""When this side gives up on a statement; the server has done so before, unless it can't be reached."""

FAULTS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

_CONNECT_S: Final = 5.0
_POLITE_S: Final = 1.0
_ALL: Final = {"application_name": "gateway", "search_path": "gateway", "default_transaction_isolation": "read committed", "jit": "off"}
_BOUNDED: Final = {"lock_timeout": "5s", "idle_in_transaction_session_timeout": "3s"}
_PLANNED_ONCE: Final = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}  # while tables are small too, for they will grow
POINTS: Final = {**_ALL, **_BOUNDED, **_PLANNED_ONCE, "statement_timeout": "6s"}
WRITING: Final = {**_ALL, **_BOUNDED, **_PLANNED_ONCE, "statement_timeout": "0"}
"""A commit that waits for a standby must not be told to stop waiting: the server would call that a success. This side ends it instead."""

READING: Final = {
    **_ALL, "statement_timeout": "60s", "lock_timeout": "5s", "idle_in_transaction_session_timeout": "10min", "default_transaction_read_only": "on",
}  # fmt: skip

_ESCAPE: Final = "\ufdd0"  # a code point that is no character and never will be


class Server:
    """One database, by its address (libpq's URI; several hosts may be named, the primary is found)."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @property
    def _address(self) -> str:
        if "@" in urlsplit(self._dsn).path:  # then the driver would take half a password for the database's name
            raise ValueError
        return self._dsn

    async def connect(self, settings: Mapping[str, str] = WRITING) -> asyncpg.Connection:
        """A connection of one's own. Raises LedgerFault."""
        with self.faults():
            connection = await asyncpg.connect(
                self._address, timeout=_CONNECT_S, command_timeout=STATEMENT_S, server_settings=dict(settings), target_session_attrs="primary"
            )
            await _text_as_it_is(connection)
            return connection

    async def pool(self, settings: Mapping[str, str], most: int, patience_s: float) -> asyncpg.Pool:
        """Up to `most` connections, made when needed."""
        with self.faults():
            return await asyncpg.create_pool(
                self._address, min_size=0, max_size=most, timeout=_CONNECT_S, command_timeout=patience_s, server_settings=dict(settings),
                target_session_attrs="primary", init=_text_as_it_is, reset=_nothing,
            )  # fmt: skip

    @contextmanager
    def faults(self) -> Iterator[None]:
        """What goes wrong in here is a LedgerFault."""
        try:
            yield
        except (asyncpg.ClientConfigurationError, ValueError):  # their words repeat parts of the address
            raise LedgerFault("PostgreSQL: its address can't be used; are names and password in it percent-encoded?") from None
        except FAULTS as error:
            raise LedgerFault(f"PostgreSQL: {str(error) or type(error).__name__}") from error


async def end(one: asyncpg.Connection | asyncpg.Pool) -> None:
    """Close, politely if the other side answers."""
    try:
        await asyncio.wait_for(one.close(), _POLITE_S)
    except FAULTS:
        one.terminate()


async def _text_as_it_is(connection: asyncpg.Connection) -> None:
    for kind in ("text", "varchar"):
        await connection.set_type_codec(kind, schema="pg_catalog", encoder=_written, decoder=_read, format="binary")


def names(texts: Iterable[str]) -> list[str]:
    """For an array of text, whose elements the driver writes by itself."""
    return [_written(text).decode() for text in texts]


def _written(text: str) -> bytes:
    if "\0" in text or _ESCAPE in text:
        text = text.replace(_ESCAPE, _ESCAPE + "1").replace("\0", _ESCAPE + "0")
    return text.encode()


def _read(data: Any) -> str:
    text = bytes(data).decode()
    return text.replace(_ESCAPE + "0", "\0").replace(_ESCAPE + "1", _ESCAPE) if _ESCAPE in text else text


async def _nothing(connection: asyncpg.Connection) -> None:
    """Nothing here changes a session, so giving a connection back needs no round trip."""
