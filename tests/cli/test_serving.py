"""`serve` and `demo` as processes: what they announce, how they end, and what keeps them from starting."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.cli.serving import cant_listen
from tests.cli.conftest import in_postgres
from tests.cli.running import ended, ran, said, started
from tests.serving import KEYS


@contextmanager
def serving(folder: Path, *argv: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway that serves, and the first line that it said."""
    process = started(folder, "serve", *argv)
    try:
        yield process, said(process, "\n}\n" if "--json" in argv else "upstream")
    finally:
        process.kill()
        process.communicate()


def test_it_says_where_it_listens_and_what_it_loaded(folder: Path) -> None:
    with serving(folder) as (_, text):
        url = text.split()[3].removesuffix(":")
        assert httpx.get(url + "/readyz", trust_env=False).status_code == 200
        policies, tools = text.splitlines()[1:3]
        assert policies.split()[:2] == ["policies", "shop"]
        assert tools == "tools      2 of 1 upstream"


def test_programs_are_told_the_same_as_json(folder: Path) -> None:
    text = (folder / "gateway.yaml").read_text()
    (folder / "gateway.yaml").write_text(text.replace("upstreams:\n", "upstreams:\n  gone: {mcp: {command: [/nowhere/at-all]}}\n"))
    with serving(folder, "--json") as (_, text):
        told = json.loads(text)
        assert (told["policies"], told["ceilings"], told["tools"]) == (["shop"], [], ["shop.get_order", "shop.refund"])
        assert list(told["away"]) == ["gone"]
        assert httpx.get(told["url"] + "/healthz", trust_env=False).status_code == 200


def test_upstreams_that_are_away_are_counted_and_named(folder: Path) -> None:
    text = (folder / "gateway.yaml").read_text()
    (folder / "gateway.yaml").write_text(text.replace("upstreams:\n", "upstreams:\n  gone: {mcp: {command: [/nowhere/at-all]}}\n"))
    with serving(folder) as (process, text):
        assert "away       1 of 2: gone" in text or said(process, "away").startswith("away       1 of 2: gone")


@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_it_quietly(folder: Path, end: signal.Signals, code: int) -> None:
    with serving(folder) as (process, _):
        process.send_signal(end)
        last = ended(process)
        assert (last.code, last.out, last.err) == (code, "", "")


def test_without_a_secret_it_warns_once(folder: Path) -> None:
    text = (folder / "gateway.yaml").read_text()
    (folder / "gateway.yaml").write_text(text.replace('secret: ["${env:GATEWAY_SECRET}"]\n', ""))
    with serving(folder) as (process, _):
        process.send_signal(signal.SIGTERM)
        lines = ended(process).err.splitlines()
        assert len(lines) == 1
        assert ("WARNING" in lines[0], "secret" in lines[0]) == (True, True)


def test_a_second_process_on_the_same_ledger_is_one_line_with_the_firsts_id(folder: Path) -> None:
    with serving(folder) as (process, _):
        second = ended(started(folder, "serve"))
        assert (second.code, second.out, len(second.err.splitlines())) == (1, "", 1)
        assert second.err.startswith("gateway: ")
        assert f"process {process.pid} " in second.err


def newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("PRAGMA user_version = 99")
        raw.commit()


@pytest.mark.parametrize("spoil", [lambda file: file.write_text("no database " * 100), lambda file: file.mkdir(), newer])
def test_a_ledger_that_cannot_be_used_is_one_line(folder: Path, spoil: Callable[[Path], Any]) -> None:
    spoil(folder / "gateway.db")
    last = ended(started(folder, "serve"))
    assert (last.code, last.out, len(last.err.splitlines())) == (1, "", 1), last.err
    assert (last.err.startswith("gateway: "), "gateway.db" in last.err) == (True, True)


def test_a_ledger_without_its_folder_is_one_line_and_json_for_programs(folder: Path) -> None:
    text = (folder / "gateway.yaml").read_text()
    (folder / "gateway.yaml").write_text(text.replace("sqlite:gateway.db", "sqlite:nowhere/gateway.db"))
    last = ended(started(folder, "serve", "--json"))
    assert (last.code, last.out, "nowhere" in json.loads(last.err)["error"]) == (1, "", True)


def test_policies_that_cannot_be_used_are_all_told_and_who_says_more(folder: Path) -> None:
    (folder / "policies" / "b.yaml").write_text("version: 1\nname: b\nfoo: 1\n")
    last = ended(started(folder, "serve"))
    first, *mistakes = last.err.splitlines()
    assert (last.code, last.out, "`gateway check`" in first, len(mistakes)) == (1, "", True, 6)


@pytest.mark.parametrize("command", [("serve",), ("demo", "--port", "PORT")])
def test_a_port_that_is_taken_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        text = (folder / "gateway.yaml").read_text()
        (folder / "gateway.yaml").write_text(text.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        last = ran(capsys, *(port if one == "PORT" else one for one in command))
        assert (last.code, last.out, len(last.err.splitlines())) == (1, "", 1)
        assert port in last.err
    assert not (folder / "gateway.db").exists()


def test_settings_and_policies_that_cannot_be_used_are_said_without_a_traceback(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "policies" / "shop.yaml").write_text("{")
    last = ran(capsys, "serve")
    assert (last.code, "shop.yaml:2:1: " in last.err, "Traceback" in last.err) == (1, True, False)
    (folder / "gateway.yaml").write_text("listen: x\n")
    last = ran(capsys, "serve")
    assert (last.code, "gateway.yaml:1:9: " in last.err) == (1, True)


def test_why_a_place_cannot_be_listened_on_is_in_the_systems_words() -> None:
    assert cant_listen("127.0.0.1", 0) is None
    assert cant_listen("::1", 0) is None or not os.path.exists("/proc/net/if_inet6")
    assert (cant_listen("192.0.2.1", 0) or "").endswith(": Cannot assign requested address")
    assert "no-such-host.invalid" in (cant_listen("no-such-host.invalid", 0) or "")


def test_the_demo_keeps_away_from_a_deployment(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "gateway.yaml").read_text()
    last = ran(capsys, "demo", "--once", "--folder", folder)
    assert (last.code, last.out, len(last.err.splitlines())) == (1, "", 1)
    assert (folder / "gateway.yaml").read_text() == before


def test_workers_need_a_ledger_that_they_can_share(folder: Path) -> None:
    refused = ended(started(folder, "serve", "--workers", "2"))
    assert (refused.code, refused.out, len(refused.err.splitlines())) == (1, "", 1)
    assert "postgresql://" in refused.err
    assert ended(started(folder, "serve", "--workers", "0")).code == 2


def test_workers_share_the_address_and_the_ledger(folder: Path, new_database: Callable[[], str]) -> None:
    in_postgres(folder, new_database())
    with serving(folder, "--workers", "2") as (process, text):
        url = text.split()[3].removesuffix(":")
        asked = {"url": url + "/v1/runs", "headers": {"authorization": f"Bearer {KEYS['agent:bot']}"}, "json": {"run_key": "one"}, "trust_env": False}
        answers = [httpx.post(**asked) for _ in range(6)]  # each on a connection of its own
        assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
        assert len({answer.json()["run"] for answer in answers}) == 1
        assert answers[0].json()["run"] in ended(started(folder, "runs", "list")).out
        assert ended(started(folder, "verify")).code == 0
        process.send_signal(signal.SIGTERM)
        last = ended(process)
        assert (last.code, last.out, last.err) == (-signal.SIGTERM, "", "")
