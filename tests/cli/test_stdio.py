"""`stdio` before it serves: what it wants, whom it finds, and what keeps it from being the gateway. What it then does: `e2e/test_stdio.py`."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import stdio as under_test
from gateway.cli.output import Failure
from gateway.cli.stdio import Way, bridged
from gateway.ports import PolicyError
from gateway.settings import load_settings
from tests.cli.running import ended, ran, started
from tests.serving import KEYS, SECRET, Served, served, settings_in
from tests.upstreams.origin import Connection, origin
from tests.waiting import START_S

pytestmark = pytest.mark.anyio
Capture = pytest.CaptureFixture[str]
HEADERS = {"authorization": f"Bearer {KEYS['agent:bot']}"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "PATIENCE_S", 0.2)
    monkeypatch.setattr(under_test, "AGAIN_S", 0.01)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one.getsockname()[1]


def settings_at(folder: Path, port: int) -> Any:
    settings_in(folder)
    file = folder / "gateway.yaml"
    file.write_text(file.read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}"))
    return load_settings(file, {"GATEWAY_SECRET": SECRET})


async def refused(way: Way) -> str:
    async with asyncio.timeout(START_S):
        with pytest.raises(Failure) as why:
            await way.open()
    await way.close()
    return str(why.value)


def test_without_a_key_it_says_so_and_nothing_on_stdout(folder: Path) -> None:
    said = ended(started(folder, "stdio", env={"GATEWAY_KEY": ""}))
    assert (said.code, said.out, len(said.err.splitlines())) == (1, "", 1)
    assert "GATEWAY_KEY" in said.err


@pytest.mark.parametrize("key", ["", "a\nb", "ü", "x" * 257])
def test_a_run_key_must_fit_into_a_header(key: str, capsys: Capture) -> None:
    assert ran(capsys, "stdio", "--run", key).code == 2


async def test_a_gateway_that_is_not_there_is_told_by_its_address() -> None:
    assert "http://127.0.0.1:9" in await refused(Way(None, "http://127.0.0.1:9", HEADERS))


async def test_whatever_else_listens_there_is_no_gateway(tmp_path: Path) -> None:
    async def page(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.answer(b"hello", "404 Not Found")

    async with origin(page) as it:
        port = int(it.url.rpartition(":")[2])
        assert "404" in await refused(Way(settings_at(tmp_path, port), None, HEADERS))


async def test_an_address_that_is_taken_by_nobody_who_answers_is_given_up_in_time(tmp_path: Path, taken: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(under_test, "READY_S", 0.1)
    assert str(taken) in await refused(Way(settings_at(tmp_path, taken), None, HEADERS))


async def test_a_ledger_that_another_gateway_has_open_elsewhere_is_told_with_its_process(tmp_path: Path) -> None:
    async with served(tmp_path):
        assert f"process {os.getpid()}" in await refused(Way(settings_at(tmp_path, 0), None, HEADERS))


async def test_policies_that_can_not_be_used_are_told_at_once(tmp_path: Path) -> None:
    settings = settings_at(tmp_path, 0)
    (tmp_path / "policies" / "shop.yaml").write_text("version: 1\n")
    way = Way(settings, None, HEADERS)
    with pytest.raises(PolicyError):
        await way.open()
    await way.close()


async def test_it_finds_the_gateway_that_serves_and_leaves_it_alone_at_its_end(tmp_path: Path) -> None:
    async with served(tmp_path) as it:
        way = Way(settings_at(tmp_path, int(it.url.rpartition(":")[2])), None, HEADERS)
        await way.open()
        assert way.found.endpoint == f"{it.url}/mcp"
        await way.renew(way.found)
        await way.close()
        async with it.client() as bot:
            assert (await bot.get("/readyz")).is_success


async def test_it_becomes_the_gateway_where_there_is_none_and_ends_with_its_client(tmp_path: Path) -> None:
    into, say = os.pipe()
    hear, out = os.pipe()
    way = Way(settings_at(tmp_path, 0), None, HEADERS)
    serving = asyncio.ensure_future(bridged(way, into, out))
    os.write(say, b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n')
    async with asyncio.timeout(START_S):
        assert b'"id":1' in await asyncio.to_thread(os.read, hear, 1 << 16)
        os.close(say)
        await serving
    async with served(tmp_path) as it:  # the ledger is free again
        assert isinstance(it, Served)
    for one in (into, hear, out):
        os.close(one)
