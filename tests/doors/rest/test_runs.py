"""Runs over REST."""

import pytest

from gateway.wire.mcp import listed_name
from tests.doors.rest.stage import Stage, opened

pytestmark = pytest.mark.anyio


async def test_opening_a_run_answers_with_its_token_budget_and_tools(it: Stage) -> None:
    async with it.client("bot") as bot:
        asked = {"run_key": "ticket-881", "policy": None, "task_type": "interactive", "goal": "help", "labels": {"team": "a"}}
        asked |= {"budgets": {"tool_calls": 3}}
        response = await bot.post("/v1/runs", json=asked)
        body = response.json()
        assert response.status_code == 201
        assert response.headers["location"] == f"/v1/runs/{body['run']}"
        assert (body["status"], body["reason"], body["policy"]["name"]) == ("open", None, "shop")
        assert body["budget"]["tool_calls_left"] == 3
        assert body["tools"] == ["billing.refund", "crm.get_order", "crm.update_note"]
        assert (body["goal"], body["labels"], body["run_key"]) == ("help", {"team": "a"}, "ticket-881")


async def test_the_same_run_key_is_the_same_run(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot, run_key="a")
        again = await bot.post("/v1/runs", json={"run_key": "a"})
        assert (again.status_code, again.json()["run"]) == (200, run)


async def test_a_run_opens_without_a_body(it: Stage) -> None:
    async with it.client("bot") as bot:
        assert (await bot.post("/v1/runs")).status_code == 201


async def test_a_policy_that_does_not_match_is_403(it: Stage) -> None:
    async with it.client("bot") as bot:
        response = await bot.post("/v1/runs", json={"policy": "other"})
        assert (response.status_code, response.json()["reason"]) == (403, "policy.none")


@pytest.mark.parametrize(
    "body",
    [{"run_keys": "a"}, {"run_key": 1}, {"run_key": ""}, {"labels": {"a": 1}}, {"labels": []}, {"budgets": 3}, {"budgets": {"tool_calls": -1}}, []],
)
async def test_a_run_asked_for_wrongly_is_400(it: Stage, body: object) -> None:
    async with it.client("bot") as bot:
        response = await bot.post("/v1/runs", json=body)
        assert (response.status_code, response.json()["reason"]) == (400, "request.malformed")


async def test_the_run_token_acts_in_its_run_and_opens_its_children(it: Stage) -> None:
    async with it.client("bot") as bot:
        parent = (await bot.post("/v1/runs", json={})).json()
        other = await opened(bot)
    async with it.client(parent["token"]) as token:
        assert (await token.get(f"/v1/runs/{parent['run']}")).status_code == 200
        assert (await token.get(f"/v1/runs/{other}")).status_code == 404
        child = await token.post("/v1/runs", json={"parent_run": parent["run"]})
        assert (child.status_code, child.json()["parent_run"]) == (201, parent["run"])
        assert (await token.get(f"/v1/runs/{child.json()['run']}")).status_code == 200
        assert (await token.post("/v1/runs", json={})).status_code == 403


async def test_a_run_shows_how_many_calls_stand_where(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        await bot.post(f"/v1/runs/{run}/calls", json={"tool": "crm.get_order", "arguments": {"id": "1"}})
        await bot.post(f"/v1/runs/{run}/calls", json={"tool": "billing.refund", "arguments": {"amount": 500}})
        body = (await bot.get(f"/v1/runs/{run}")).json()
        assert body["calls"] == {"succeeded": 1, "held": 1}
        assert body["awaiting_approval"] is True
        assert "token" not in body


async def test_another_principals_run_does_not_exist(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("other") as other:
        run = await opened(bot)
        for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/turns"), ("GET", "/events"), ("GET", "/tools"), ("POST", "/freeze")):
            response = await other.request(method, f"/v1/runs/{run}{path}")
            assert (response.status_code, response.json()["reason"]) == (404, "run.unknown")


async def test_runs_are_listed_newest_first_in_pages(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("ops") as ops, it.client("other") as other:
        made = [await opened(bot) for _ in range(3)]
        await bot.post(f"/v1/runs/{made[0]}/finish")
        first = (await bot.get("/v1/runs?limit=2")).json()
        assert [row["run"] for row in first["runs"]] == made[:0:-1]
        rest = (await bot.get("/v1/runs", params={"limit": 2, "before": first["next"]})).json()
        assert ([row["run"] for row in rest["runs"]], rest["next"]) == (made[:1], None)
        assert [row["run"] for row in (await bot.get("/v1/runs?state=closed")).json()["runs"]] == made[:1]
        assert len((await ops.get("/v1/runs")).json()["runs"]) == 3
        assert (await other.get("/v1/runs")).json()["runs"] == []


async def test_finishing_keeps_the_handoff_and_cancelling_after_it_changes_nothing(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        handoff = {"done": "looked up", "open": ["refund"], "next": None}
        body = (await bot.post(f"/v1/runs/{run}/finish", json={"handoff": handoff})).json()
        assert (body["status"], body["reason"], body["handoff"]) == ("completed", "model_final", handoff)
        assert (await bot.post(f"/v1/runs/{run}/cancel")).json()["status"] == "completed"


async def test_finishing_after_a_cancel_is_409_and_tells_the_budget(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        assert (await bot.post(f"/v1/runs/{run}/cancel")).json()["reason"] == "caller_cancelled"
        response = await bot.post(f"/v1/runs/{run}/finish")
        assert (response.status_code, response.json()["reason"]) == (409, "run.not_open")
        assert response.json()["budget"]["tool_calls_left"] == 10


async def test_only_an_operator_lets_a_frozen_run_go_on(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("ops") as ops:
        run = await opened(bot)
        assert (await bot.post(f"/v1/runs/{run}/freeze", json={"note": "odd"})).json()["status"] == "frozen"
        refused = await bot.post(f"/v1/runs/{run}/calls", json={"tool": "crm.get_order", "arguments": {"id": "1"}})
        assert (refused.status_code, refused.json()["reason"]) == (409, "run.not_open")
        assert (await bot.post(f"/v1/runs/{run}/resume")).status_code == 403
        assert (await ops.post(f"/v1/runs/{run}/resume")).json()["status"] == "open"


async def test_events_are_read_in_order_from_any_place(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        await bot.post(f"/v1/runs/{run}/calls", json={"tool": "crm.get_order", "arguments": {"id": "1"}})
        body = (await bot.get(f"/v1/runs/{run}/events")).json()
        assert [one["kind"] for one in body["events"]] == ["RunOpened", "CallAdmitted", "CallSettled"]
        assert [one["seq"] for one in body["events"]] == [1, 2, 3]
        assert body["next"] == 3
        rest = (await bot.get(f"/v1/runs/{run}/events?after=1&limit=1")).json()
        assert ([one["kind"] for one in rest["events"]], rest["next"]) == (["CallAdmitted"], 2)
        beyond = (await bot.get(f"/v1/runs/{run}/events?after=9")).json()
        assert (beyond["events"], beyond["next"], beyond["budget"]["tool_calls_left"]) == ([], 9, 9)


async def test_tools_are_listed_in_each_providers_form_without_what_is_injected(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        plain = (await bot.get(f"/v1/runs/{run}/tools")).json()["tools"]
        assert [(one["name"], one["effect"]) for one in plain] == [
            ("billing.refund", "non_idempotent"), ("crm.get_order", "read_only"), ("crm.update_note", "idempotent_write"),
        ]  # fmt: skip
        assert "tenant" not in plain[2]["inputSchema"]["properties"]
        openai = (await bot.get(f"/v1/runs/{run}/tools?format=openai")).json()["tools"]
        assert openai[1]["function"]["name"] == listed_name("crm.get_order")
        assert openai[1]["function"]["parameters"] == plain[1]["inputSchema"]
        anthropic = (await bot.get(f"/v1/runs/{run}/tools?format=anthropic")).json()["tools"]
        assert (anthropic[1]["name"], anthropic[1]["input_schema"]) == ("crm__get_order", plain[1]["inputSchema"])
        assert [openai[2]["function"]["name"], anthropic[2]["name"], plain[2]["name"]] == ["note", "note", "crm.update_note"]
        assert (await bot.get(f"/v1/runs/{run}/tools?format=xml")).status_code == 400
