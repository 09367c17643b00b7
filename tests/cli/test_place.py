"""Settings, ledger and gateway that a command works on; what is missing is one clear line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.app_adapters import ledger
from gateway.cli.output import Failure
from gateway.cli.place import address, asked, existing, reading, settings, shown
from gateway.ports import LedgerFault
from gateway.settings import ListenSettings, TlsSettings
from gateway.system import SystemClock
from tests.cli.conftest import in_postgres
from tests.serving import Served, settings_in
from tests.upstreams.origin import Connection, origin

pytestmark = pytest.mark.anyio


def test_a_path_is_shown_as_short_as_it_can_be(folder: Path) -> None:
    assert shown(folder / "policies" / "shop.yaml") == "policies/shop.yaml"
    assert shown(Path("/etc/hosts")) == "/etc/hosts"


def test_a_missing_deployment_names_the_place_and_the_way_out(folder: Path) -> None:
    with pytest.raises(Failure, match=rf"{folder}/other.yaml.*gateway init"):
        existing("other.yaml")
    with pytest.raises(Failure):
        existing("policies")


def test_all_mistakes_of_the_settings_come_at_once(folder: Path) -> None:
    (folder / "gateway.yaml").write_text("listen: 1\nledger: x\n")
    with pytest.raises(Failure) as wrong:
        settings("gateway.yaml")
    assert {"gateway.yaml:1:9", "gateway.yaml:2:9"} <= {line.rpartition(": ")[0] for line in str(wrong.value).splitlines()}


async def test_without_a_ledger_reading_says_so(folder: Path) -> None:
    with pytest.raises(Failure, match=r"no ledger at gateway\.db"):
        async with reading("gateway.yaml"):
            pass


async def test_a_file_that_is_no_ledger_is_a_fault_with_its_name(folder: Path) -> None:
    (folder / "gateway.db").write_text("not a database, but long enough to be taken for one " * 50)
    with pytest.raises(LedgerFault, match=r"gateway\.db"):
        async with reading("gateway.yaml"):
            pass


async def test_a_ledger_in_postgresql_is_read_when_a_gateway_has_made_it(folder: Path, new_database: Callable[[], str]) -> None:
    in_postgres(folder, new_database())
    with pytest.raises(LedgerFault, match="a gateway that serves makes one"):
        async with reading("gateway.yaml"):
            pass
    made = ledger(settings("gateway.yaml"), SystemClock())
    await made.open()
    await made.close()
    async with reading("gateway.yaml") as found:
        assert await found.rows("runs", {}) == []


async def test_the_ledger_is_read_beside_the_running_gateway(it: Served) -> None:
    async with reading("gateway.yaml") as ledger:
        assert await ledger.rows("runs", {}) == []


@pytest.mark.parametrize("key", [None, "", " ", "schlüssel", "a\nb"])
def test_asking_needs_a_usable_key(folder: Path, monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    if key is not None:
        monkeypatch.setenv("GATEWAY_KEY", key)
    with pytest.raises(Failure, match="GATEWAY_KEY"):
        asked("gateway.yaml", "http://127.0.0.1:9", "GET", "holds")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense", "http://[x"])
def test_a_gateway_that_cannot_be_reached_is_named(folder: Path, mia: str, url: str) -> None:
    with pytest.raises(Failure, match="gateway serve") as wrong:
        asked("gateway.yaml", url, "GET", "holds")
    assert url in str(wrong.value)


async def test_a_refusal_comes_in_the_gateways_own_words(it: Served, mia: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = asyncio.to_thread
    assert (await ask(asked, "gateway.yaml", it.url, "GET", "holds"))["holds"] == []
    with pytest.raises(Failure, match=r"^hold\.unknown: "):
        await ask(asked, "gateway.yaml", it.url, "GET", "holds", "hold_x_1")
    with pytest.raises(Failure, match=r"^(hold|route)\.unknown: "):
        await ask(asked, "gateway.yaml", it.url + "/", "GET", "holds", "../runs")
    monkeypatch.setenv("GATEWAY_KEY", "wrong")
    with pytest.raises(Failure, match=r"^auth\.required: .*GATEWAY_KEY") as wrong:
        await ask(asked, "gateway.yaml", it.url, "GET", "holds")
    assert "wrong" not in str(wrong.value)


@pytest.mark.parametrize("body", [b"<html>", b"[1]"])
async def test_what_is_no_gateway_is_said_to_be_none(folder: Path, mia: str, body: bytes) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.answer(body)

    async with origin(script) as other:
        with pytest.raises(Failure, match="is this a gateway"):
            await asyncio.to_thread(asked, "gateway.yaml", other.url, "GET", "holds")


def test_an_address_can_be_asked_from_this_machine(tmp_path: Path) -> None:
    found = settings_in(tmp_path)
    places = {("127.0.0.1", 1): "http://127.0.0.1:1", ("::1", 2): "http://[::1]:2", ("0.0.0.0", 3): "http://127.0.0.1:3", ("::", 4): "http://[::1]:4"}
    for (host, port), url in places.items():
        assert address(replace(found, listen=ListenSettings(host, port))) == url
    secured = replace(found, tls=TlsSettings(Path("c"), Path("k")))
    assert address(secured).startswith("https://")


def test_a_relative_config_is_found_from_any_folder(folder: Path) -> None:
    with contextlib.chdir(folder / "policies"):
        assert settings("../gateway.yaml").policies == folder / "policies/../policies"
