"""Calls over REST: the contract's shapes, providers' objects as they are, identity, waiting, refusals."""

import asyncio
import json
from typing import Any

import pytest

from gateway.ports import UpstreamFault
from tests.doors.rest.stage import Stage, opened, result

pytestmark = pytest.mark.anyio

READ = {"tool": "crm.get_order", "arguments": {"id": "A-1"}}
NOTE = {"tool": "crm.update_note", "arguments": {"id": "A-1", "note": "hi"}}
REFUND = {"tool": "billing.refund", "arguments": {"amount": 500}}


async def test_a_call_answers_with_its_result_and_budget(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        response = await bot.post(f"/v1/runs/{run}/calls", json=READ)
        body = response.json()
        assert response.status_code == 200
        assert (body["status"], body["replayed"], body["message"], body["differences"]) == ("succeeded", False, None, None)
        assert body["result"] == result(id="A-1")
        assert body["budget"]["tool_calls_left"] == 9


async def test_a_result_that_is_too_long_to_be_shown_is_read_by_the_key_in_its_note(it: Stage) -> None:
    long = result(text="x" * 300_000)

    async def lists(arguments: Any) -> dict[str, Any]:
        return long

    it.shelf.acts["crm.get_order"] = lists
    async with it.client("bot") as bot, it.client("other") as other:
        run = await opened(bot)
        body = (await bot.post(f"/v1/runs/{run}/calls", json=READ)).json()
        assert (body["status"], body["reason"], body["result"]["isError"]) == ("succeeded", "result.too_large", False)
        path = body["result"]["content"][-1]["description"].rpartition("GET ")[2]
        assert (await bot.get(path)).json() == long
        assert (await other.get(path)).status_code == 404
        assert (await bot.get(path + "0")).status_code == 410


async def test_a_repeated_write_is_replayed_with_a_message(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        first = (await bot.post(f"/v1/runs/{run}/calls", json=NOTE)).json()
        again = (await bot.post(f"/v1/runs/{run}/calls", json=NOTE)).json()
        assert (again["replayed"], again["call"], again["result"]) == (True, first["call"], first["result"])
        assert again["message"]
        assert len(it.shelf.sent) == 1
        assert it.shelf.sent[0].arguments["tenant"] == "acme"


async def test_big_integers_pass_both_ways(it: Stage) -> None:
    async def big(arguments: Any) -> dict[str, Any]:
        return result(id=arguments["n"] + 1)

    it.shelf.add("crm.get_big", {"type": "object"}, big)
    async with it.client("bot") as bot:
        run = await opened(bot)
        response = await bot.post(f"/v1/runs/{run}/calls", content=b'{"tool":"crm.get_big","arguments":{"n":9007199254740993000000000000001}}')
        assert json.loads(response.content)["result"]["structuredContent"] == {"id": 9007199254740993000000000000002}


@pytest.mark.parametrize(
    ("call", "form", "message"),
    [
        (
            {"type": "function", "id": "call_9", "function": {"name": "crm__get_order", "arguments": '{"id": "A-1"}'}},
            "openai",
            {"role": "tool", "tool_call_id": "call_9", "content": "ok"},
        ),
        (
            {"type": "function_call", "id": "fc_1", "call_id": "call_9", "name": "crm__get_order", "arguments": '{"id": "A-1"}'},
            "openai",
            {"type": "function_call_output", "call_id": "call_9"},
        ),
        (
            {"type": "tool_use", "id": "toolu_9", "name": "crm__get_order", "input": {"id": "A-1"}},
            "anthropic",
            {"type": "tool_result", "tool_use_id": "toolu_9"},
        ),
    ],
)
async def test_a_providers_object_is_taken_as_it_is_and_answered_in_kind(it: Stage, call: dict[str, Any], form: str, message: dict[str, Any]) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        plain = (await bot.post(f"/v1/runs/{run}/calls", json=call)).json()
        assert plain["result"]["structuredContent"] == {"id": "A-1"}
        response = await bot.post(f"/v1/runs/{run}/calls?format={form}", json=call)
        body = response.json()
        assert {name: body[name] for name in message if name != "content"} == {name: message[name] for name in message if name != "content"}
        assert response.headers["gateway-call"] == plain["call"]
        assert response.headers["gateway-replayed"] == "true"
        assert response.headers["gateway-budget-tool-calls-left"] == "9"


@pytest.mark.parametrize(
    "call",
    [
        {"type": "function", "id": "c1", "function": {"name": "crm__get_order", "arguments": '{"id": "A'}},
        {"type": "function", "id": "c1", "function": {"name": "crm__get_order", "arguments": '["A"]'}},
        {"type": "tool_use", "id": "c1", "name": "crm__get_order", "input": '{"id": "A'},
        {"tool": "crm.get_order", "arguments": '{"id": "A-1"}'},
        {"tool": "crm.get_order", "arguments": ["A-1"]},
    ],
)
async def test_arguments_that_are_no_object_are_recorded_as_malformed(it: Stage, call: dict[str, Any]) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        response = await bot.post(f"/v1/runs/{run}/calls", json=call)
        assert (response.status_code, response.json()["reason"]) == (422, "arguments.malformed")
        assert response.json()["call"]
        assert (await bot.get(f"/v1/runs/{run}/events")).json()["events"][-1]["kind"] == "CallDenied"
        assert not it.shelf.sent


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"tool": ""},
        {"tool": 7},
        {"tool": "crm.get_order", "args": {}},
        {"tool": "crm.get_order", "turn": -1},
        {"tool": "crm.get_order", "turn": "1"},
        {"tool": "crm.get_order", "wait": "long"},
        {"tool": "crm.get_order", "call_id": "x" * 300},
        {"type": "function", "function": {"arguments": "{}"}},
        {"type": "tool_use", "id": "x" * 300, "name": "crm__get_order", "input": {}},
        {"type": "tool_result"},
        "text",
    ],
)
async def test_a_call_that_is_none_is_400_and_not_recorded(it: Stage, call: Any) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        response = await bot.post(f"/v1/runs/{run}/calls", json=call)
        assert (response.status_code, response.json()["reason"]) == (400, "request.malformed")
        assert response.json()["budget"] is not None
        assert len((await bot.get(f"/v1/runs/{run}/events")).json()["events"]) == 1


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b'{"tool":"crm.get_order","tool":"crm.drop_all"}', 400, "request.malformed"),
        (b'{"tool":"crm.get_order","arguments":{"id":NaN}}', 400, "request.malformed"),
        (b"[" * 70 + b"]" * 70, 400, "request.malformed"),
        (b'{"tool":"\xff"}', 400, "request.malformed"),
        (b'{"tool":"x","arguments":{"pad":"' + b"x" * (1 << 20) + b'"}}', 413, "request.too_large"),
    ],
)
async def test_a_body_that_is_not_taken_is_refused(it: Stage, body: bytes, status: int, reason: str) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        response = await bot.post(f"/v1/runs/{run}/calls", content=body)
        assert (response.status_code, response.json()["reason"]) == (status, reason)


@pytest.mark.parametrize(
    ("call", "status", "reason"),
    [
        ({"tool": "crm.drop_all"}, 403, "tool.not_allowed"),
        ({"tool": "crm.get_nothing", "arguments": {}}, 404, "tool.unknown"),
        ({"tool": "crm.get_order", "arguments": {"id": 1}}, 422, "arguments.invalid"),
        ({"tool": "crm.update_note", "arguments": {"tenant": "x"}}, 422, "arguments.bound"),
    ],
)
async def test_a_refusal_is_a_problem_with_its_call_findings_and_budget(it: Stage, call: dict[str, Any], status: int, reason: str) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        response = await bot.post(f"/v1/runs/{run}/calls", json=call)
        body = response.json()
        assert (response.status_code, body["reason"]) == (status, reason)
        assert body["call"].startswith("call_")
        assert body["findings"][0]["reason"] == reason
        assert body["budget"]["tool_calls_left"] == 10
        assert not it.shelf.sent


async def test_a_spent_budget_is_429_without_an_invitation_to_wait(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot, budgets={"tool_calls": 1})
        await bot.post(f"/v1/runs/{run}/calls", json=READ)
        response = await bot.post(f"/v1/runs/{run}/calls", json={"tool": "crm.get_order", "arguments": {"id": "A-2"}})
        assert (response.status_code, response.json()["reason"]) == (429, "budget.tool_calls")
        assert "retry-after" not in response.headers
        assert response.json()["budget"]["tool_calls_left"] == 0


async def test_a_held_call_is_202_and_goes_on_after_approval(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("mia") as mia:
        run = await opened(bot)
        response = await bot.post(f"/v1/runs/{run}/calls", json=REFUND)
        body = response.json()
        assert (response.status_code, body["status"], response.headers["retry-after"]) == (202, "held", "5")
        assert response.headers["location"] == f"/v1/runs/{run}/calls/{body['call']}"
        assert not it.shelf.sent
        hold = (await mia.get(body["hold"]["url"])).json()
        await mia.post(f"/v1/holds/{hold['hold']}/approve", json={"digest": hold["digest"]})
        assert (await bot.get(response.headers["location"])).json()["status"] == "ready"
        done = await bot.post(f"/v1/runs/{run}/calls", json=REFUND)
        assert (done.status_code, done.json()["call"], done.json()["status"]) == (200, body["call"], "succeeded")
        assert len(it.shelf.sent) == 1
        shown = await bot.get(response.headers["location"])
        assert (shown.status_code, shown.json()["result"]) == (200, done.json()["result"])


async def test_waiting_for_people_ends_when_they_decide(it: Stage) -> None:
    async with it.client("bot") as bot, it.client("mia") as mia:
        run = await opened(bot)
        waiting = asyncio.ensure_future(bot.post(f"/v1/runs/{run}/calls", json={**REFUND, "wait": 5}))
        await asyncio.wait_for(it.engine.ledger.watch(run, 1), 5)
        holds = (await mia.get("/v1/holds")).json()["holds"]
        await mia.post(f"/v1/holds/{holds[0]['hold']}/deny", json={"digest": holds[0]["digest"], "reason": "too much"})
        response = await asyncio.wait_for(waiting, 5)
        assert (response.status_code, response.json()["reason"]) == (403, "approval.denied")


@pytest.mark.parametrize("kind", ["timeout", "refused"])
async def test_an_upstream_without_an_answer_is_502_or_504(it: Stage, kind: str) -> None:
    async def broken(arguments: Any) -> dict[str, Any]:
        raise UpstreamFault(kind, "no answer")

    it.shelf.acts["crm.get_order"] = broken
    async with it.client("bot") as bot:
        run = await opened(bot)
        response = await bot.post(f"/v1/runs/{run}/calls", json=READ)
        expected = {"timeout": (504, "tool.timeout"), "refused": (502, "upstream.unavailable")}[kind]
        assert (response.status_code, response.json()["reason"]) == expected
        assert response.headers["retry-after"]
        assert response.json()["call"]


async def test_a_write_without_an_answer_is_in_doubt_and_stays_so(it: Stage) -> None:
    async def broken(arguments: Any) -> dict[str, Any]:
        raise UpstreamFault("reset", "gone")

    it.shelf.acts["billing.refund"] = broken
    async with it.client("bot") as bot:
        run = await opened(bot)
        for _ in range(2):
            response = await bot.post(f"/v1/runs/{run}/calls", json={"tool": "billing.refund", "arguments": {"amount": 5}})
            assert (response.status_code, response.json()["reason"], response.json()["retryable"]) == (409, "call.in_doubt", False)
            assert "retry-after" not in response.headers
        assert len(it.shelf.sent) == 1


async def test_a_tools_own_error_is_200_failed(it: Stage) -> None:
    async def failing(arguments: Any) -> dict[str, Any]:
        return {**result(), "isError": True}

    it.shelf.acts["crm.get_order"] = failing
    async with it.client("bot") as bot:
        run = await opened(bot)
        response = await bot.post(f"/v1/runs/{run}/calls", json=READ)
        assert (response.status_code, response.json()["status"], response.json()["result"]["isError"]) == (200, "failed", True)


async def test_a_running_call_is_409_with_a_time_to_ask_again(it: Stage) -> None:
    going, go_on = asyncio.Event(), asyncio.Event()

    async def slow(arguments: Any) -> dict[str, Any]:
        going.set()
        await go_on.wait()
        return result()

    it.shelf.acts["crm.update_note"] = slow
    async with it.client("bot") as bot:
        run = await opened(bot)
        first = asyncio.ensure_future(bot.post(f"/v1/runs/{run}/calls", json=NOTE))
        await asyncio.wait_for(going.wait(), 5)
        second = await bot.post(f"/v1/runs/{run}/calls", json={**NOTE, "wait": 0.01})
        assert (second.status_code, second.json()["reason"], second.headers["retry-after"]) == (409, "call.in_flight", "1")
        assert (await bot.get(f"/v1/runs/{run}/calls/{second.json()['call']}")).status_code == 409
        go_on.set()
        assert (await asyncio.wait_for(first, 5)).status_code == 200


async def test_a_trusted_call_id_replays_and_may_not_change_its_arguments(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        first = (await bot.post(f"/v1/runs/{run}/calls", json={**READ, "call_id": "c1"})).json()
        again = (await bot.post(f"/v1/runs/{run}/calls", json={**READ, "call_id": "c1"})).json()
        assert (again["replayed"], again["call"]) == (True, first["call"])
        other = await bot.post(f"/v1/runs/{run}/calls", json={"tool": "crm.get_order", "arguments": {"id": "B"}, "call_id": "c1"})
        assert (other.status_code, other.json()["reason"]) == (422, "key.reused")


async def operation_id(it: Stage, key: str, headers: dict[str, str], **more: Any) -> str | None:
    """The operation_id that a call with these headers is recorded under."""
    async with it.client(key) as client:
        run = await opened(client)
        await client.post(f"/v1/runs/{run}/calls", json={**READ, **more}, headers=headers)
        found: str | None = (await client.get(f"/v1/runs/{run}/events")).json()["events"][1]["event"]["operation_id"]
        return found


@pytest.mark.parametrize(("sent", "read"), [('"refund-7"', "refund-7"), ("refund-7", "refund-7"), (r'"a\"b\\c"', 'a"b\\c'), ('"', '"')])
async def test_a_trusted_idempotency_key_is_the_operation_id(it: Stage, sent: str, read: str) -> None:
    assert await operation_id(it, "bot", {"idempotency-key": sent}) == read


async def test_the_fields_operation_id_stands_before_the_header(it: Stage) -> None:
    assert await operation_id(it, "bot", {"idempotency-key": "header"}, operation_id="field") == "field"


async def test_an_idempotency_key_that_is_not_trusted_is_not_read(it: Stage) -> None:
    assert await operation_id(it, "other", {"idempotency-key": "refund-7"}) is None


async def test_an_idempotency_key_that_is_none_is_400(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        for sent in ('""', "", "x" * 300, "ü"):
            response = await bot.post(f"/v1/runs/{run}/calls", json=READ, headers={"idempotency-key": sent.encode("latin-1")})
            assert (response.status_code, response.json()["reason"]) == (400, "request.malformed")


async def test_the_turn_comes_from_the_body_or_the_header(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        await bot.post(f"/v1/runs/{run}/calls", json=READ, headers={"gateway-turn": "1"})
        await bot.post(f"/v1/runs/{run}/calls", json={**READ, "turn": 2}, headers={"gateway-turn": "1"})
        events = (await bot.get(f"/v1/runs/{run}/events")).json()["events"]
        assert [one["event"]["turn"] for one in events if one["kind"] == "CallAdmitted"] == [1, 2]
        for sent in ("x", "-1", "1.5", ""):
            response = await bot.post(f"/v1/runs/{run}/calls", json=READ, headers={"gateway-turn": sent})
            assert response.status_code == 400


async def test_the_trace_reaches_the_tool(it: Stage) -> None:
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "x-request-id": "req-1"}
    async with it.client("bot") as bot:
        run = await opened(bot)
        response = await bot.post(f"/v1/runs/{run}/calls", json=READ, headers=trace)
        assert response.headers["x-request-id"] == "req-1"
        assert it.shelf.sent[0].trace == trace


async def test_a_call_of_another_run_does_not_exist(it: Stage) -> None:
    async with it.client("bot") as bot:
        one, two = await opened(bot), await opened(bot)
        call = (await bot.post(f"/v1/runs/{one}/calls", json=READ)).json()["call"]
        response = await bot.get(f"/v1/runs/{two}/calls/{call}")
        assert (response.status_code, response.json()["reason"]) == (404, "call.unknown")
        assert (await bot.post("/v1/runs/run_none/calls", json=READ)).json()["reason"] == "run.unknown"
