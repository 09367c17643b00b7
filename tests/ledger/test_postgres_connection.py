"""Connections: bounded in time, telling no secret, and losing no character of a text."""

from __future__ import annotations

import asyncio
import socket

import asyncpg
import pytest

from gateway.ledger.postgres_connection import POINTS, READING, Server, end, names
from gateway.ports import LedgerFault

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("text", ["plain", "", "a\0b", "\ufdd0", "\ufdd00\0\ufdd01", "\0" * 3, "ü€😀"])
async def test_every_text_comes_back_as_it_was(dsn: str, text: str) -> None:
    connection = await Server(dsn).connect()
    try:
        assert await connection.fetchval("SELECT $1::text", text) == text
        assert await connection.fetchval("SELECT x FROM unnest($1::text[]) AS x", names([text])) == text
    finally:
        await end(connection)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://gateway:s3cret@{place}/db", "postgresql://gateway:pa/s3cret@{place}/db", "postgresql://gateway:s3cret@{place}:port/db",
        "postgresql://gateway@{place}/db?password=s3cret", "postgresql://gateway:s3cret@{place}/db?sslmode=wrong", "postgresql://a:s3cret@h1,h2:1,2,3/x",
    ],
)  # fmt: skip
async def test_a_fault_names_the_place_and_no_secret(address: str, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(LedgerFault) as fault:
        await Server(address.format(place=f"127.0.0.1:{port}")).connect()
    assert "s3cret" not in str(fault.value) + caplog.text


async def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ledger.postgres_connection._CONNECT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(LedgerFault):
        await asyncio.wait_for(Server(f"postgresql://127.0.0.1:{silent.getsockname()[1]}/db").connect(), 5)


async def test_every_wait_on_the_server_is_bounded(dsn: str) -> None:
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    for settings in (POINTS, READING):
        connection = await Server(dsn).connect(settings)
        assert "0" not in [await connection.fetchval(f"SHOW {name}") for name in names]
        await end(connection)


async def test_reading_connections_cannot_write(dsn: str) -> None:
    pool = await Server(dsn).pool(READING, 1, 5)
    try:
        with pytest.raises(LedgerFault), Server(dsn).faults():
            await pool.execute("CREATE TABLE somebodys (thing int)")
    finally:
        await end(pool)


async def test_a_connection_that_does_not_end_politely_ends_anyway(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ledger.postgres_connection._POLITE_S", 0.05)
    pool = await Server(dsn).pool(POINTS, 1, 5)
    async with asyncio.timeout(5):
        await pool.acquire()
        await end(pool)
    with pytest.raises(asyncpg.InterfaceError):
        await pool.acquire()
