"""`runs`, `calls`, `verify`, against a gateway that runs: what it recorded is read, and what stops a run goes through its door."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import called, opened
from tests.cli.running import ran, ran_beside
from tests.serving import KEYS, Served, served
from tests.upstreams.origin import Connection

pytestmark = pytest.mark.anyio
Capture = pytest.CaptureFixture[str]


async def test_runs_are_listed_newest_first_and_filtered(it: Served, capsys: Capture) -> None:
    runs = [await opened(it, run_key=key) for key in ("a", "b")]
    listed = (await ran_beside(capsys, "runs", "list", "--json")).json
    assert [row["run"] for row in listed] == runs[::-1]
    assert listed[0]["opened_at"].endswith("Z")
    assert [len((await ran_beside(capsys, "runs", "list", *by, "--json")).json) for by in (("--limit", "1"), ("--state", "closed"))] == [1, 0]
    assert len((await ran_beside(capsys, "runs", "list", "--principal", "agent:bot", "--json")).json) == 2
    text = await ran_beside(capsys, "runs", "list")
    assert text.lines[0].split()[:2] == ["RUN", "PRINCIPAL"]
    assert [line.split()[0] for line in text.lines[1:]] == runs[::-1]


async def test_a_run_is_shown_with_its_calls_in_their_order(it: Served, capsys: Capture) -> None:
    run = await opened(it, goal="a\x1b[2Jb")
    calls = [(await called(it, run, "shop.get_order", id=str(number)))["call"] for number in range(2)]
    shown = (await ran_beside(capsys, "runs", "show", run, "--json")).json
    assert (shown["run"], shown["state"], {one["call"] for one in shown["calls"]}) == (run, "open", set(calls))
    text = await ran_beside(capsys, "runs", "show", run)
    assert [line.split()[0] for line in text.lines if line.startswith("call_")] == calls
    assert "\x1b" not in text.out


async def test_calls_are_listed_and_filtered(it: Served, capsys: Capture) -> None:
    run = await opened(it)
    await called(it, run, "shop.get_order", id="1")
    await called(it, run, "shop.get_order", id=7)
    for by, count in (((), 2), (("--state", "denied"), 1), (("--tool", "shop.get_order"), 2), (("--run", run), 2), (("--run", "run_x"), 0)):
        assert len((await ran_beside(capsys, "calls", "list", *by, "--json")).json) == count, by
    assert len((await ran_beside(capsys, "calls", "list")).lines) == 3


async def test_a_call_is_shown_with_its_events_arguments_and_result(it: Served, capsys: Capture) -> None:
    call = (await called(it, await opened(it), "shop.get_order", id="1"))["call"]
    shown = (await ran_beside(capsys, "calls", "show", call, "--json")).json
    assert [one["event"] for one in shown["events"]] == ["CallAdmitted", "CallSettled"]
    assert (shown["arguments"], shown["result"]["structuredContent"]["target"]) == ({"id": "1"}, "/orders/1")
    assert (shown["effect"], shown["upstream"], shown["findings"], shown["shadowed"]) == ("read_only", "shop", [], [])
    text = (await ran_beside(capsys, "calls", "show", call)).out
    assert ("CallAdmitted" in text, '{"id": "1"}' in text) == (True, True)


async def test_a_denied_call_shows_why_and_no_effect(it: Served, capsys: Capture) -> None:
    run = await opened(it)
    call = (await called(it, run, "shop.get_order", id=7))["call"]
    shown = (await ran_beside(capsys, "calls", "show", call, "--json")).json
    (finding,) = shown["findings"]
    assert (finding["reason"], bool(finding["message"]), set(finding)) == (shown["reason"], True, {"reason", "message", "rule"})
    (listed,) = (await ran_beside(capsys, "calls", "list", "--json")).json
    (of_run,) = (await ran_beside(capsys, "runs", "show", run, "--json")).json["calls"]
    assert (listed["effect"], of_run["upstream"]) == (None, None)
    assert (shown["effect"], shown["upstream"]) == (None, None)
    text = (await ran_beside(capsys, "calls", "show", call)).out
    assert finding["message"] in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith(("effect", "upstream"))] == ["-", "-"]


async def test_a_call_shows_what_shadow_rules_would_have_said(folder: Path, capsys: Capture) -> None:
    shadow = 'version: 1\nname: c\nkind: ceiling\ntools:\n  - {tool: shop.get_order, mode: shadow, allow_if: "false"}\n  - {tool: "*"}\n'
    (folder / "policies" / "c.yaml").write_text(shadow)
    async with served(folder) as it:
        call = (await called(it, await opened(it), "shop.get_order", id="1"))["call"]
        shown = (await ran_beside(capsys, "calls", "show", call, "--json")).json
    assert (shown["state"], shown["findings"], len(shown["shadowed"])) == ("succeeded", [], 1)


async def test_a_run_is_found_by_a_key_that_only_it_has_and_shows_its_budget(it: Served, capsys: Capture) -> None:
    run = await opened(it, run_key="ticket")
    await called(it, run, "shop.get_order", id="1")
    shown = (await ran_beside(capsys, "runs", "show", "ticket", "--json")).json
    async with it.client() as bot:
        door = (await bot.get(f"/v1/runs/{run}")).json()["budget"]
    assert shown["run"] == run
    assert {**shown["budget"], "seconds_left": None} == {**door, "seconds_left": None}
    text = (await ran_beside(capsys, "runs", "show", run)).out
    assert [line.split()[1] for line in text.splitlines() if line.startswith(("tool_calls_left", "deadline"))] == ["9", door["deadline"]]
    async with it.client("user:mia") as mia_herself:
        other = (await mia_herself.post("/v1/runs", json={"run_key": "ticket"})).json()["run"]
    said = await ran_beside(capsys, "runs", "show", "ticket")
    assert (said.code, run in said.err, other in said.err) == (1, True, True)


async def test_errors_are_json_for_programs(it: Served, capsys: Capture) -> None:
    said = await ran_beside(capsys, "runs", "show", "run_x", "--json")
    assert (said.code, said.out, list(json.loads(said.err))) == (1, "", ["error"])


@pytest.mark.parametrize("argv", [
    ("runs", "show", "run_x"), ("runs", "show", "principal:agent:bot"), ("calls", "show", "call_x_1"), ("calls", "show", ""),
])  # fmt: skip
async def test_an_id_that_nothing_has_is_one_line(it: Served, capsys: Capture, argv: tuple[str, ...]) -> None:
    said = await ran_beside(capsys, *argv)
    assert (said.code, said.out, len(said.err.splitlines())) == (1, "", 1)


async def test_a_run_is_frozen_resumed_and_cancelled_through_the_running_gateway(it: Served, mia: str, capsys: Capture) -> None:
    run = await opened(it)
    for act, status in (("freeze", "frozen"), ("resume", "open"), ("cancel", "cancelled")):
        said = await ran_beside(capsys, "runs", act, run, "--url", it.url, "--json")
        assert (said.code, said.json["status"]) == (0, status)
    again = await ran_beside(capsys, "runs", "freeze", run, "--url", it.url)
    assert (again.code, again.err.startswith("gateway: run.not_open: ")) == (1, True)


async def test_a_sound_ledger_verifies_beside_the_gateway(it: Served, capsys: Capture) -> None:
    await called(it, await opened(it), "shop.get_order", id="1")
    said = await ran_beside(capsys, "verify", "--json")
    assert (said.code, said.json["problems"], said.json["streams"]) == (0, [], 3)
    assert (await ran_beside(capsys, "verify")).out.startswith("Sound: ")


async def test_a_ledger_that_was_changed_is_not_sound(it: Served, folder: Path, capsys: Capture) -> None:
    run = await opened(it)
    with closing(sqlite3.connect(folder / "gateway.db")) as raw:
        raw.execute("UPDATE runs SET principal = 'agent:other' WHERE run = ?", (run,))
        raw.commit()
    said = await ran_beside(capsys, "verify", "--json")
    assert (said.code, [one["what"] for one in said.json["problems"]]) == (1, ["runs"])
    text = await ran_beside(capsys, "verify")
    assert (text.code, text.lines[0].startswith(f"{run}: runs: "), text.lines[-1].startswith("NOT sound")) == (1, True, True)


@pytest.mark.parametrize("argv", [("runs", "list"), ("calls", "list"), ("holds", "list"), ("verify",)])
def test_without_a_ledger_there_is_one_line(folder: Path, capsys: Capture, argv: tuple[str, ...]) -> None:
    said = ran(capsys, *argv)
    assert (said.code, said.out, len(said.err.splitlines())) == (1, "", 1)


# ---- doubts -------------------------------------------------------------------------------------------------------------


async def hangs_up(connection: Connection) -> None:
    """Read a request, and leave it unanswered the first time."""
    await connection.request()
    if connection.number > 1:
        await connection.answer()
    connection.close()


@pytest.fixture
async def doubtful(folder: Path, anyio_backend: str) -> AsyncIterator[tuple[Served, str]]:
    """A gateway with a call in doubt."""
    async with served(folder, hangs_up) as it:
        yield it, (await called(it, await opened(it), "shop.refund", amount=5))["call"]


async def test_a_doubt_is_listed_and_ended_by_a_person_who_says_why(doubtful: tuple[Served, str], mia: str, capsys: Capture) -> None:
    it, call = doubtful
    (row,) = (await ran_beside(capsys, "calls", "list", "--state", "in_doubt", "--json")).json
    assert row["call"] == call
    word = ("--happened", "--why", "it's on\x1b[2J the statement", "--result", '{"r": 1}')
    said = await ran_beside(capsys, "calls", "reconcile", call, *word, "--url", it.url)
    assert (said.code, said.out.startswith(f"{call} is succeeded.")) == (0, True)
    assert (await ran_beside(capsys, "calls", "list", "--state", "in_doubt", "--json")).json == []
    shown = (await ran_beside(capsys, "calls", "show", call, "--json")).json
    assert (shown["result"]["structuredContent"], shown["events"][-1]["by"]) == ({"r": 1}, "user:mia")
    text = (await ran_beside(capsys, "calls", "show", call)).out
    assert ("the statement" in text, "\x1b" in text) == (True, False)


async def test_what_did_not_happen_goes_out_once_more(doubtful: tuple[Served, str], mia: str, capsys: Capture) -> None:
    it, call = doubtful
    said = await ran_beside(capsys, "calls", "reconcile", call, "--did-not-happen", "--why", "no trace", "--url", it.url, "--json")
    assert (said.json["status"], said.json["attempt"]) == ("admitted", 2)
    async with it.client() as bot:
        assert (await bot.get(f"/v1/runs/{said.json['run']}/calls/{call}?wait=5")).json()["status"] == "succeeded"


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("--happened",), 2),
        (("--why", "x"), 2),
        (("--happened", "--abandoned", "--why", "x"), 2),
        (("--happened", "--why", "x", "--result", "{"), 1),
        (("--abandoned", "--why", "x", "--result", "{}"), 1),
        (("--happened", "--why", ""), 1),
    ],
)
async def test_a_word_that_says_too_little_or_too_much_is_refused(
    doubtful: tuple[Served, str], mia: str, capsys: Capture, argv: tuple[str, ...], code: int
) -> None:
    it, call = doubtful
    said = await ran_beside(capsys, "calls", "reconcile", call, *argv, "--url", it.url)
    assert (said.code, said.out) == (code, "")
    assert len((await ran_beside(capsys, "calls", "list", "--state", "in_doubt", "--json")).json) == 1


async def test_whoever_asked_ends_no_doubt(doubtful: tuple[Served, str], capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    it, call = doubtful
    monkeypatch.setenv("GATEWAY_KEY", KEYS["agent:bot"])
    said = await ran_beside(capsys, "calls", "reconcile", call, "--happened", "--why", "trust me", "--url", it.url)
    assert (said.code, said.err.startswith("gateway: auth.forbidden: ")) == (1, True)
