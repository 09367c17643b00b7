"""Turns over REST."""

from typing import Any

import pytest

from tests.doors.rest.stage import Stage, opened, result

pytestmark = pytest.mark.anyio

ANSWER = {
    "calls": [
        {"call_id": "a", "tool": "crm.get_order", "arguments": {"id": "A-1"}},
        {"type": "tool_use", "id": "b", "name": "crm__get_order", "input": {"id": "B-1"}},
        {"type": "function", "id": "c", "function": {"name": "crm__get_order", "arguments": "{"}},
    ],
    "digest": "abc",
}


async def test_opening_a_turn_numbers_it_and_tells_the_budget(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        for number in (1, 2):
            response = await bot.post(f"/v1/runs/{run}/turns", json={})
            assert (response.status_code, response.json()["turn"]) == (201, number)
            assert response.headers["location"] == f"/v1/runs/{run}/turns/{number}"
        assert response.json()["budget"]["turns_left"] == 3
        assert response.json()["status"] == "open"


async def test_turns_beyond_the_budget_are_429(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot, budgets={"turns": 1})
        await bot.post(f"/v1/runs/{run}/turns")
        response = await bot.post(f"/v1/runs/{run}/turns")
        assert (response.status_code, response.json()["reason"]) == (429, "budget.turns")


async def test_an_answer_keeps_the_asked_calls_in_order_whatever_their_form(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        await bot.post(f"/v1/runs/{run}/turns")
        body = (await bot.post(f"/v1/runs/{run}/turns/1/answer", json=ANSWER)).json()
        assert [(one["call_id"], one["tool"], one["status"]) for one in body["calls"]] == [(name, "crm.get_order", "new") for name in "abc"]
        assert (body["status"], body["digest"]) == ("answered", "abc")


@pytest.mark.parametrize(
    "calls",
    [
        [{"tool": "crm.get_order"}],
        [{"call_id": "a"}],
        [{"type": "tool_use", "name": "crm__get_order", "input": {}}],
        [{"call_id": "a", "tool": "x.y", "more": 1}],
        ["a"],
        {},
    ],
)
async def test_an_answer_whose_calls_have_no_identity_is_400(it: Stage, calls: Any) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        await bot.post(f"/v1/runs/{run}/turns")
        response = await bot.post(f"/v1/runs/{run}/turns/1/answer", json={"calls": calls})
        assert (response.status_code, response.json()["reason"]) == (400, "request.malformed")


async def test_a_restarted_worker_finds_the_results_in_the_providers_form(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        await bot.post(f"/v1/runs/{run}/turns")
        await bot.post(f"/v1/runs/{run}/turns/1/answer", json=ANSWER)
        await bot.post(f"/v1/runs/{run}/calls", json={**ANSWER["calls"][0], "turn": 1})  # type: ignore[dict-item]
        plain = (await bot.get(f"/v1/runs/{run}/turns/1")).json()["calls"]
        assert [one["result"] for one in plain] == [result(id="A-1"), None, None]
        openai = (await bot.get(f"/v1/runs/{run}/turns/1?format=openai")).json()["calls"]
        parts = [{"type": "text", "text": "ok"}, {"type": "text", "text": '{"id":"A-1"}'}]
        assert openai[0]["message"] == {"role": "tool", "tool_call_id": "a", "content": parts}
        assert openai[1]["message"] is None
        anthropic = (await bot.get(f"/v1/runs/{run}/turns/1?format=anthropic")).json()["calls"]
        assert anthropic[0]["message"]["tool_use_id"] == "a"


async def test_cancelling_a_turn_gives_its_open_calls_synthetic_results(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        await bot.post(f"/v1/runs/{run}/turns")
        await bot.post(f"/v1/runs/{run}/turns/1/answer", json=ANSWER)
        body = (await bot.post(f"/v1/runs/{run}/turns/1/cancel")).json()
        assert body["status"] == "cancelled"
        assert [one["synthetic"] for one in body["calls"]] == [True, True, True]
        assert (await bot.get(f"/v1/runs/{run}")).json()["status"] == "open"


async def test_usage_counts_against_the_tokens(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        await bot.post(f"/v1/runs/{run}/turns")
        figures = {"model": "m", "input": 100, "output": 20, "cache_creation": 0, "cache_read": 3, "cost_usd": 0.01}
        body = (await bot.post(f"/v1/runs/{run}/turns/1/usage", json=figures)).json()
        assert body["budget"]["tokens_left"] == 1000 - 123


@pytest.mark.parametrize("figures", [{"input": -1}, {"input": 1.5}, {"input": True}, {"cost_usd": -1}, {"cost_usd": "much"}, {"inputs": 1}])
async def test_usage_that_is_none_is_400(it: Stage, figures: dict[str, Any]) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        await bot.post(f"/v1/runs/{run}/turns")
        response = await bot.post(f"/v1/runs/{run}/turns/1/usage", json=figures)
        assert (response.status_code, response.json()["reason"]) == (400, "request.malformed")


async def test_a_turn_that_was_never_opened_is_404(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        for method, path in (("GET", "7"), ("POST", "7/answer"), ("POST", "7/usage"), ("POST", "7/cancel")):
            response = await bot.request(method, f"/v1/runs/{run}/turns/{path}")
            assert (response.status_code, response.json()["reason"]) == (404, "turn.unknown")
        assert (await bot.get(f"/v1/runs/{run}/turns/first")).json()["reason"] == "route.unknown"
