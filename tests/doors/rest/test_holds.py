"""Holds over REST: who sees them, and votes."""

import httpx
import pytest

from tests.doors.rest.stage import Stage, opened

pytestmark = pytest.mark.anyio


async def held(bot: httpx.AsyncClient, amount: int = 500) -> str:
    run = await opened(bot)
    body = (await bot.post(f"/v1/runs/{run}/calls", json={"tool": "billing.refund", "arguments": {"amount": amount}})).json()
    hold: str = body["hold"]["hold"]
    return hold


async def test_a_hold_shows_what_would_run_to_its_approver_and_its_owner(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("mia") as mia, it.client("other") as other:
        hold = await held(bot)
        for client in (bot, mia):
            body = (await client.get(f"/v1/holds/{hold}")).json()
            assert (body["status"], body["tool"], body["arguments"], body["principal"]) == ("held", "billing.refund", {"amount": 500}, "agent:bot")
            assert body["requirements"][0]["approvers"] == ["group:finance"]
        response = await other.get(f"/v1/holds/{hold}")
        assert (response.status_code, response.json()["reason"]) == (404, "hold.unknown")
        assert (await mia.get("/v1/holds/hold_none_1")).status_code == 404


async def test_holds_are_listed_by_state_in_pages(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("mia") as mia, it.client("other") as other:
        made = [await held(bot, amount) for amount in (500, 600, 700)]
        first = (await mia.get("/v1/holds?limit=2&state=held")).json()
        assert [one["hold"] for one in first["holds"]] == made[:0:-1]
        rest = (await mia.get("/v1/holds", params={"limit": 2, "before": first["next"]})).json()
        assert [one["hold"] for one in rest["holds"]] == made[:1]
        assert (await mia.get("/v1/holds?state=denied")).json() == {"holds": [], "next": None}
        assert (await other.get("/v1/holds")).json()["holds"] == []
        assert (await mia.get("/v1/holds?state=odd")).status_code == 400


async def test_a_vote_counts_once_and_the_same_again_is_fine(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("mia") as mia:
        hold = await held(bot)
        digest = (await mia.get(f"/v1/holds/{hold}")).json()["digest"]
        for _ in range(2):
            response = await mia.post(f"/v1/holds/{hold}/approve", json={"digest": digest, "note": "fine"})
            assert (response.status_code, response.json()["status"]) == (200, "approved")
            assert [(vote["by"], vote["vote"], vote["note"]) for vote in response.json()["votes"]] == [("user:mia", "approve", "fine")]
        assert response.json()["execute_by"]


async def test_the_opposite_vote_is_409_with_the_state(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("mia") as mia:
        hold = await held(bot)
        digest = (await mia.get(f"/v1/holds/{hold}")).json()["digest"]
        denied = await mia.post(f"/v1/holds/{hold}/deny", json={"digest": digest, "reason": "no"})
        assert (denied.json()["status"], denied.json()["note"], denied.json()["ended_by"]) == ("denied", "no", "user:mia")
        response = await mia.post(f"/v1/holds/{hold}/approve", json={"digest": digest})
        assert (response.status_code, response.json()["reason"], response.json()["state"]) == (409, "hold.conflict", "denied")


async def test_a_vote_on_another_digest_is_409(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("mia") as mia:
        hold = await held(bot)
        response = await mia.post(f"/v1/holds/{hold}/approve", json={"digest": "0" * 64})
        assert (response.status_code, response.json()["reason"]) == (409, "hold.digest")
        assert (await mia.get(f"/v1/holds/{hold}")).json()["status"] == "held"


async def test_the_requester_may_look_but_not_vote(it: Stage) -> None:
    async with it.client("bot") as bot:
        hold = await held(bot)
        digest = (await bot.get(f"/v1/holds/{hold}")).json()["digest"]
        response = await bot.post(f"/v1/holds/{hold}/approve", json={"digest": digest})
        assert (response.status_code, response.json()["reason"]) == (403, "hold.forbidden")


@pytest.mark.parametrize("body", [{}, {"digest": 1}, {"digest": "a", "reason": "approve has a note"}, {"digest": "a", "note": "x" * 5000}])
async def test_a_vote_that_is_none_is_400(it: Stage, body: object) -> None:
    async with it.client("bot") as bot, it.client("mia") as mia:
        hold = await held(bot)
        assert (await mia.post(f"/v1/holds/{hold}/approve", json=body)).status_code == 400


async def test_looking_never_decides(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("mia") as mia:
        hold = await held(bot)
        for path in ("approve", "deny"):
            response = await mia.get(f"/v1/holds/{hold}/{path}")
            assert (response.status_code, response.headers["allow"]) == (405, "POST")
        assert (await mia.get(f"/v1/holds/{hold}")).json()["votes"] == []
