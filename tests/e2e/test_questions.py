"""What tools ask their clients, in all four pairings of eras, through a real gateway: one call, one dispatch, one outcome in the ledger."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.agents import PROTOCOL, session_post
from tests.e2e.before import Before, everything, governed
from tests.waiting import START_S, eventually

pytestmark = pytest.mark.anyio

ROUNDS = "test_input_required_result_multi_round"
FORM = "test_input_required_result_elicitation"
CAN = {"elicitation": {}, "sampling": {}, "roots": {}}
ANSWERS: Mapping[str, Any] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ana", "color": "blue"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "Hello"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///here", "name": "here"}]},
}


class Stateless:
    """A client of 2026-07-28. `asked`: the methods that it was asked for, a list each round."""

    def __init__(self, before: Before, can: Mapping[str, Any] = CAN) -> None:
        self.http = httpx.AsyncClient(base_url=before.url.removesuffix("/mcp"), timeout=START_S)
        self.can = can
        self.asked: list[list[str]] = []

    async def __aenter__(self) -> Stateless:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.http.aclose()

    async def once(self, tool: str, method: str = "tools/call", **more: Any) -> dict[str, Any]:
        """One request: its JSON-RPC answer."""
        meta = {PROTOCOL + "clientCapabilities": self.can, PROTOCOL + "protocolVersion": "2026-07-28"}
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"name": tool, **more, "_meta": meta}}
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, "mcp-name": tool, "accept": "application/json, text/event-stream"}
        return dict((await self.http.post("/mcp", json=body, headers=headers)).json())

    async def call(self, tool: str, method: str = "tools/call", **arguments: Any) -> dict[str, Any]:
        """With all the rounds that it takes."""
        result = (await self.once(tool, method, arguments=arguments))["result"]
        while result["resultType"] == "input_required":
            requests = result.get("inputRequests", {})
            self.asked.append(sorted(one["method"] for one in requests.values()))
            answers = {id: ANSWERS[one["method"]] for id, one in requests.items()}
            again = {"arguments": arguments, "inputResponses": answers, "requestState": result["requestState"]}
            result = (await self.once(tool, method, **again))["result"]
        return dict(result)


class InSession(Stateless):
    """A client of 2025-11-25, which answers on the side while its call waits."""

    async def begin(self, capabilities: Mapping[str, Any] = CAN) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": dict(capabilities), "clientInfo": {"name": "tests", "version": "1"}}
        answer = await session_post(self.http, "initialize", params)
        self.http.headers.update({"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"})

    async def once(self, tool: str, method: str = "tools/call", **more: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"name": tool, **more}}
        headers = {"accept": "application/json, text/event-stream"}
        async with self.http.stream("POST", "/mcp", json=body, headers=headers) as answer:
            if answer.headers["content-type"] == "application/json":
                return dict(json.loads(await answer.aread()))
            async for line in answer.aiter_lines():
                message = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
                if message.get("id") == 7:
                    return dict(message)
                if "id" in message:
                    await self.asked_for(message)
        raise AssertionError("a stream that ended without an answer")

    async def asked_for(self, question: dict[str, Any]) -> None:
        self.asked.append([question["method"]])
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": ANSWERS[question["method"]]}
        assert (await self.http.post("/mcp", json=answer, headers={"accept": "application/json, text/event-stream"})).status_code == 202

    async def call(self, tool: str, method: str = "tools/call", **arguments: Any) -> dict[str, Any]:
        return dict((await self.once(tool, method, arguments=arguments))["result"])


@asynccontextmanager
async def client(before: Before, kind: type[Stateless], can: Mapping[str, Any] = CAN) -> AsyncIterator[Any]:
    async with kind(before, can) as it:
        if isinstance(it, InSession):
            await it.begin(can)
        yield it


@pytest.fixture(scope="module", params=["2026", "session"])
async def before(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Before]:
    folder = tmp_path_factory.mktemp(request.param)
    async with everything(folder, request.param) as upstream, governed(folder, upstream) as it:
        yield it


BOTH = pytest.mark.parametrize("kind", [Stateless, InSession])


async def record(before: Before, call: str) -> list[str]:
    """What the ledger holds of one call."""
    stream = (await before.app.engine.ledger.rows("calls", {"call": call}))[0]["run"]
    events = await before.app.engine.ledger.events(stream, 0, 5000)
    return [type(one.event).__name__ for one in events if getattr(one.event, "call", None) == call]


def told(result: Mapping[str, Any]) -> dict[str, Any]:
    return dict(result["_meta"]["tool-call-gateway/call"])


@BOTH
@pytest.mark.parametrize(
    ("tool", "methods"),
    [
        (FORM, ["elicitation/create"]),
        ("test_input_required_result_sampling", ["sampling/createMessage"]),
        ("test_input_required_result_list_roots", ["roots/list"]),
        ("test_input_required_result_multiple_inputs", ["elicitation/create", "sampling/createMessage", "roots/list"]),
        (ROUNDS, ["elicitation/create", "elicitation/create"]),
    ],
)
async def test_a_tool_gets_its_answers_and_the_call_is_one(before: Before, kind: type[Stateless], tool: str, methods: list[str]) -> None:
    async with client(before, kind) as it:
        left = (await it.call("test_simple_text"))["_meta"]["tool-call-gateway/budget"]["tool_calls_left"]
        result = await it.call(tool)
        assert (told(result)["status"], told(result)["replayed"]) == ("succeeded", False)
        assert result["content"][0]["text"].startswith("state-ok")
        assert sorted(method for asked in it.asked for method in asked) == sorted(methods)
        assert result["_meta"]["tool-call-gateway/budget"]["tool_calls_left"] == left - 1
        assert await record(before, told(result)["call"]) == ["CallAdmitted", "CallSettled"]


@BOTH
async def test_a_prompt_may_ask_too_where_its_server_s_era_can(before: Before, kind: type[Stateless]) -> None:
    async with client(before, kind) as it:
        answer = await it.once("test_input_required_result_prompt", "prompts/get")
        if "error" in answer:  # a server of before asks by a request, and no call is there that it belonged to
            assert before.app.catalog.server("everything").offers.get("prompts") is not None
            return
        result = answer["result"] if kind is InSession else await it.call("test_input_required_result_prompt", "prompts/get")
        assert "Ana" in result["messages"][0]["content"]["text"]


@BOTH
async def test_a_client_that_can_t_answer_gets_an_error_and_no_hang(before: Before, kind: type[Stateless]) -> None:
    async with client(before, kind, {}) as it:
        result = await it.call(FORM)
        assert (result["isError"], told(result)["status"], it.asked) == (True, "failed", [])


async def test_a_question_that_nobody_answers_ends_with_the_call_s_time(before: Before) -> None:
    async with client(before, Stateless) as it:
        asked = (await it.once(FORM, arguments={"never": 1}))["result"]

        async def look() -> bool:
            return (await before.app.engine.ledger.rows("calls", {"call": told(asked)["call"]}))[0]["state"] == "failed"

        await eventually(look, "the outcome")
        answers = {"user_name": ANSWERS["elicitation/create"]}
        late = await it.once(FORM, arguments={"never": 1}, inputResponses=answers, requestState=asked["requestState"])
        assert (late["result"]["isError"], told(late["result"])["call"]) == (True, told(asked)["call"])


async def test_a_state_goes_only_where_it_belongs(before: Before) -> None:
    async with client(before, Stateless) as it:
        asked = (await it.once(FORM, arguments={}))["result"]
        answers = dict.fromkeys(asked["inputRequests"], ANSWERS["elicitation/create"])
        state = asked["requestState"]
        for arguments, wrong in (({"other": 1}, state), ({}, state + "x"), ({}, state[:-1]), ({}, "")):
            assert (await it.once(FORM, arguments=arguments, inputResponses=answers, requestState=wrong))["error"]["code"] == -32602
        assert (await it.once(ROUNDS, arguments={}, inputResponses=answers, requestState=state))["error"]["code"] == -32602
        final = (await it.once(FORM, arguments={}, inputResponses=answers, requestState=state))["result"]
        again = (await it.once(FORM, arguments={}, inputResponses=answers, requestState=state))["result"]
        assert (final["resultType"], told(again)["replayed"], told(again)["call"]) == ("complete", True, told(final)["call"])


async def test_a_repeat_of_a_waiting_call_is_asked_the_same(before: Before) -> None:
    async with client(before, Stateless) as it:
        first, second = [(await it.once(ROUNDS, arguments={"twice": 1}))["result"] for _ in range(2)]
        assert (first["inputRequests"], told(first)["call"]) == (second["inputRequests"], told(second)["call"])
        result = await it.call(ROUNDS, twice=1)
        assert (told(result)["call"], await record(before, told(result)["call"])) == (told(first)["call"], ["CallAdmitted", "CallSettled"])


async def test_a_cancelled_run_ends_a_question(before: Before) -> None:
    async with client(before, InSession) as it:
        it.asked_for = lambda question: cancel(before)  # type: ignore[method-assign]
        it.http.headers["gateway-run"] = f"cancelled {id(before)}"
        result = await asyncio.wait_for(it.call(FORM), 3)
        assert (result["isError"], told(result)["status"]) == (True, "cancelled")


async def cancel(before: Before) -> None:
    async with httpx.AsyncClient(base_url=before.url.removesuffix("/mcp")) as http:
        run = (await http.post("/v1/runs", json={"run_key": f"cancelled {id(before)}"})).json()["run"]
        assert (await http.post(f"/v1/runs/{run}/cancel")).status_code == 200


async def test_a_restart_keeps_sessions_and_says_clearly_what_it_lost(tmp_path: Path) -> None:
    async with everything(tmp_path) as upstream:
        async with governed(tmp_path, upstream) as first, client(first, InSession) as it, client(first, Stateless) as other:
            assert told(await it.call("test_simple_text"))["status"] == "succeeded"
            headers = dict(it.http.headers)
            asked = (await other.once(FORM, arguments={}))["result"]
        async with governed(tmp_path, upstream) as second, InSession(second) as it, client(second, Stateless) as other:
            it.http.headers.update({name: headers[name] for name in ("mcp-session-id", "mcp-protocol-version")})
            assert (await it.call(ROUNDS))["content"][0]["text"].startswith("state-ok")
            answers = dict.fromkeys(asked["inputRequests"], ANSWERS["elicitation/create"])
            late = (await other.once(FORM, arguments={}, inputResponses=answers, requestState=asked["requestState"]))["result"]
            assert (late["isError"], told(late)["call"]) == (True, told(asked)["call"])
