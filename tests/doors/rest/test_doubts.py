"""Reconciling over REST: its form, who may, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from gateway.ports import UpstreamFault
from tests.doors.rest.stage import Stage, opened

pytestmark = pytest.mark.anyio


async def doubted(it: Stage, bot: httpx.AsyncClient) -> str:
    """The path of a call in doubt; the next dispatch goes through."""
    act = it.shelf.acts["billing.refund"]

    async def lost(arguments: Mapping[str, Any]) -> dict[str, Any]:
        it.shelf.acts["billing.refund"] = act
        raise UpstreamFault("reset", "gone")

    it.shelf.acts["billing.refund"] = lost
    run = await opened(bot)
    answer = await bot.post(f"/v1/runs/{run}/calls", json={"tool": "billing.refund", "arguments": {"amount": 5}})
    assert answer.json()["reason"] == "call.in_doubt"
    return f"/v1/runs/{run}/calls/{answer.json()['call']}"


async def test_a_person_ends_a_doubt_and_the_agent_gets_what_they_found(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("mia") as mia:
        call = await doubted(it, bot)
        said = {"outcome": "happened", "why": "it is on the statement", "result": {"refund": "r1"}}
        answer = await mia.post(f"{call}/reconcile", json=said)
        assert (answer.status_code, answer.json()["status"], answer.json()["attempt"]) == (200, "succeeded", 1)
        shown = (await bot.get(call)).json()
        assert (shown["status"], shown["replayed"], shown["result"]["structuredContent"]) == ("succeeded", True, {"refund": "r1"})
        events = (await bot.get(f"/v1/runs/{shown['call'].replace('call', 'run').rpartition('_')[0]}/events")).json()["events"]
        [event] = [one["event"] for one in events if one["kind"] == "CallReconciled"]
        assert (event["by"], event["why"]) == ("user:mia", "it is on the statement")
        again = await mia.post(f"{call}/reconcile", json=said)
        assert (again.status_code, again.json()["reason"]) == (409, "call.not_in_doubt")


async def test_what_did_not_happen_is_sent_once_more(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("ops") as ops:
        call = await doubted(it, bot)
        answer = await ops.post(f"{call}/reconcile", json={"outcome": "did_not_happen", "why": "no trace"})
        assert (answer.json()["status"], answer.json()["attempt"]) == ("admitted", 2)
        assert (await bot.get(call, params={"wait": 5})).json()["status"] == "succeeded"
        assert len({dispatch.key for dispatch in it.shelf.sent}) == 1


async def test_what_did_not_happen_in_a_closed_run_has_failed(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("ops") as ops:
        call = await doubted(it, bot)
        await bot.post(f"{call.partition('/calls')[0]}/cancel", json={})
        answer = await ops.post(f"{call}/reconcile", json={"outcome": "did_not_happen", "why": "no trace"})
        assert (answer.json()["status"], answer.json()["reason"]) == ("failed", "call.not_applied")
        shown = await bot.get(call)
        assert (shown.status_code, shown.json()["reason"], shown.json()["retryable"]) == (409, "call.not_applied", True)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"outcome": "happened"},
        {"outcome": "maybe", "why": "x"},
        {"outcome": "happened", "why": ""},
        {"outcome": "abandoned", "why": "x", "result": 1},
        {"outcome": "happened", "why": "x", "by": "user:ceo"},
    ],
)
async def test_what_says_too_little_or_too_much_is_refused(it: Stage, body: dict[str, Any]) -> None:
    async with it.client("bot") as bot, it.client("ops") as ops:
        call = await doubted(it, bot)
        answer = await ops.post(f"{call}/reconcile", json=body)
        assert (answer.status_code, answer.json()["reason"]) == (400, "request.malformed")
        assert (await bot.get(call)).json()["reason"] == "call.in_doubt"


@pytest.mark.parametrize(("key", "status"), [("bot", 403), ("other", 404), (None, 401)])
async def test_who_may_not_is_told_no_more_than_they_may_see(it: Stage, key: str | None, status: int) -> None:
    async with it.client("bot") as bot, it.client(key) as client:
        call = await doubted(it, bot)
        assert (await client.post(f"{call}/reconcile", json={"outcome": "happened", "why": "x"})).status_code == status
