"""`holds`: what waits is read from the ledger; a vote is cast at the running gateway, on what the person saw."""

from __future__ import annotations

import pytest

from gateway.cli.holds import what_follows
from tests.cli.conftest import called, opened
from tests.cli.running import ran_beside
from tests.serving import KEYS, Served

pytestmark = pytest.mark.anyio
Capture = pytest.CaptureFixture[str]


@pytest.fixture
async def hold(it: Served) -> str:
    """A refund that waits for finance."""
    answer = await called(it, await opened(it, goal="say \x1b[31mred"), "shop.refund", amount=500, note="a\nb\x1b[2J")
    held: str = answer["hold"]["hold"]
    return held


async def digest_of(hold: str, capsys: Capture) -> str:
    digest: str = (await ran_beside(capsys, "holds", "show", hold, "--json")).json["digest"]
    return digest


async def test_only_what_waits_is_listed_unless_all_is_asked_for(it: Served, hold: str, mia: str, capsys: Capture) -> None:
    assert [row["hold"] for row in (await ran_beside(capsys, "holds", "list", "--json")).json] == [hold]
    assert (await ran_beside(capsys, "holds", "list")).lines[1].startswith(hold)
    await ran_beside(capsys, "holds", "deny", hold, "--url", it.url)
    assert (await ran_beside(capsys, "holds", "list", "--json")).json == []
    assert (await ran_beside(capsys, "holds", "list")).lines == ["Nothing waits for approval."]
    assert [row["state"] for row in (await ran_beside(capsys, "holds", "list", "--all", "--json")).json] == ["denied"]


async def test_a_hold_shows_what_would_be_executed_and_how_to_decide(hold: str, capsys: Capture) -> None:
    shown = (await ran_beside(capsys, "holds", "show", hold, "--json")).json
    assert (shown["tool"], shown["arguments"]["amount"], shown["status"]) == ("shop.refund", 500, "held")
    text = (await ran_beside(capsys, "holds", "show", hold)).out
    assert f"gateway holds approve {hold} --digest {shown['digest'][:12]}" in text
    assert "\x1b" not in text


async def test_programs_are_shown_a_hold_as_the_door_shows_it(it: Served, hold: str, capsys: Capture) -> None:
    async with it.client("user:mia") as mia_herself:
        assert (await ran_beside(capsys, "holds", "show", hold, "--json")).json == (await mia_herself.get(f"/v1/holds/{hold}")).json()


@pytest.mark.parametrize("length", [8, 12, 64])
async def test_an_approval_takes_the_digest_that_was_shown_or_its_beginning(it: Served, hold: str, mia: str, capsys: Capture, length: int) -> None:
    digest = await digest_of(hold, capsys)
    said = await ran_beside(capsys, "holds", "approve", hold, "--digest", digest[:length], "--url", it.url, "--json")
    assert (said.code, said.json["status"]) == (0, "approved")


async def test_an_approval_says_until_when_the_call_may_be_executed(it: Served, hold: str, mia: str, capsys: Capture) -> None:
    said = await ran_beside(capsys, "holds", "approve", hold, "--digest", await digest_of(hold, capsys), "--url", it.url)
    until = (await ran_beside(capsys, "holds", "show", hold, "--json")).json["execute_by"]
    assert said.lines == [f"{hold} is approved: the call may be executed until {until}."]


def test_a_vote_that_does_not_suffice_says_what_is_what_follows() -> None:
    wanted = {"quorum": 2, "approvers": ["group:leads", "user:mia"], "met": False}
    assert what_follows({"status": "held", "requirements": [wanted, {**wanted, "met": True}]}).endswith("2 of group:leads, user:mia")


async def test_an_approval_of_something_else_is_not_counted(it: Served, hold: str, mia: str, capsys: Capture) -> None:
    digest = await digest_of(hold, capsys)
    for wrong in ("0" * 8, digest[:7], ""):
        said = await ran_beside(capsys, "holds", "approve", hold, "--digest", wrong, "--url", it.url)
        assert (said.code, said.err.startswith("gateway: ")) == (1, True)
    assert (await ran_beside(capsys, "holds", "approve", hold, "--url", it.url)).code == 2
    assert (await ran_beside(capsys, "holds", "show", hold, "--json")).json["status"] == "held"


async def test_a_denial_needs_no_digest_and_carries_its_reason(it: Served, hold: str, mia: str, capsys: Capture) -> None:
    said = await ran_beside(capsys, "holds", "deny", hold, "--reason", "not this one", "--url", it.url)
    assert (said.code, said.lines) == (0, [f"{hold} is denied."])
    async with it.client("user:mia") as mia_herself:
        assert (await mia_herself.get(f"/v1/holds/{hold}")).json()["note"] == "not this one"


async def test_who_may_not_vote_is_told_so(it: Served, hold: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", KEYS["agent:bot"])
    said = await ran_beside(capsys, "holds", "deny", hold, "--url", it.url)
    assert (said.code, said.err.startswith("gateway: hold.forbidden: ")) == (1, True)


@pytest.mark.parametrize("argv", [
    ("show", "hold_x_1"), ("show", "nope"), ("deny", "hold_x_1"), ("deny", "../runs"), ("approve", "x", "--digest", "0" * 64),
])  # fmt: skip
async def test_a_hold_that_is_not_there_is_one_line(it: Served, mia: str, capsys: Capture, argv: tuple[str, ...]) -> None:
    said = await ran_beside(capsys, "holds", *argv, *(("--url", it.url) if argv[0] != "show" else ()))
    assert (said.code, said.out, len(said.err.splitlines())) == (1, "", 1)
