"""Definitions over REST: operators look and accept, nobody else does; answers have the document's shapes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.doors.rest.stage import KEYS, conforms, door
from tests.offered import Offered, defined, offered

pytestmark = pytest.mark.anyio

GET, PAY = defined("get"), defined("pay", description="Pays.")
OTHER = defined("pay", description="Pays somebody else.")


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[Offered]:
    async with offered(tmp_path, GET, PAY) as it:
        yield it


def client(it: Offered, key: str) -> httpx.AsyncClient:
    headers, hooks = {"authorization": f"Bearer {key}"}, {"response": [conforms]}
    return httpx.AsyncClient(transport=httpx.ASGITransport(door(it.engine)), base_url="http://localhost", headers=headers, event_hooks=hooks)


async def test_what_is_held_back_is_shown_beside_what_is_accepted_and_accepted_by_its_digest(it: Offered) -> None:
    await it.offers(OTHER)
    async with client(it, "ops") as ops:
        get, pay = (await ops.get("/v1/tools")).json()["tools"]
        assert (get["tool"], get["state"], get["digest"], get["definition"]) == ("shop.get", "away", None, None)
        assert (pay["state"], pay["definition"], pay["accepted_definition"], pay["accepted"]["by"]) == ("changed", OTHER, PAY, None)
        answer = await ops.post("/v1/tools/accept", json={"tools": {"shop.pay": pay["digest"]}})
        [pay] = answer.json()["tools"]
        assert (pay["state"], pay["accepted"]["digest"], pay["accepted"]["by"]) == ("accepted", pay["digest"], "user:ops")
        assert (pay["note"], pay["definition"], pay["accepted_definition"]) == (None, None, None)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"tools": {"shop.pay": "0" * 64}}, 409, "tool.digest"), ({"tools": {"shop.gone": "0" * 64}}, 409, "tool.digest"),
        ({"tools": {"shop.pay": 5}}, 400, "request.malformed"), ({"tools": ["shop.pay"]}, 400, "request.malformed"), ({}, 400, "request.malformed"),
    ],
)  # fmt: skip
async def test_what_can_not_be_accepted_is_a_problem(it: Offered, body: object, status: int, reason: str) -> None:
    async with client(it, "ops") as ops:
        answer = await ops.post("/v1/tools/accept", json=body)
        assert (answer.status_code, answer.json()["reason"]) == (status, reason)


@pytest.mark.parametrize("key", sorted(KEYS.keys() - {"ops"}))
async def test_agents_and_approvers_neither_look_nor_accept(it: Offered, key: str) -> None:
    async with client(it, key) as other:
        for answer in (await other.get("/v1/tools"), await other.post("/v1/tools/accept", json={"tools": {}})):
            assert (answer.status_code, answer.json()["reason"]) == (403, "auth.forbidden")
