"""An agent behind each door, as the scenarios drive it: the same wishes, told in REST or in MCP of either era, the same answers back.

What an agent's harness and people do beside calls (voting, ending runs, declaring what a model answered) has one door only, REST, and is
shared. An answer is brought to one form here; what one door says twice (MCP's `_meta` and `structuredContent`) must agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import httpx

from tests.e2e.serving import Stage
from tests.e2e.told import Plain
from tests.scenarios import AROUND
from tests.waiting import eventually, until

OURS = "tool-call-gateway/"
PROTOCOL = "io.modelcontextprotocol/"
VERSION = "2026-07-28"


@dataclass(frozen=True)
class Answer:
    """`says`: done, replayed, held, ready or refused, with `:reason` where there is one. `body`: all that was told, in REST's form."""

    says: str
    body: Mapping[str, Any]
    retry_after: bool | None = None

    @property
    def reason(self) -> str | None:
        return self.says.partition(":")[2] or None

    @property
    def result(self) -> Any:
        return self.body["result"]

    @property
    def left(self) -> Any:
        return self.body["budget"]


@dataclass
class Agent:
    """`on`: the upstream that a tool without a dot belongs to. `answers`: all so far."""

    stage: Stage
    principal: str
    on: str = "web"
    run_key: str = ""
    run: str = ""
    answers: list[Answer] = field(default_factory=list)
    door: ClassVar[str] = ""

    def __post_init__(self) -> None:
        self.http = self.stage.client(f"agent:{self.principal}")
        self.mia, self.ben, self.meter = (self.stage.client(id) for id in ("user:mia", "user:ben", "agent:meter"))
        self.web = self.stage.web

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End the run, so that the next one of this principal finds its room again."""
        await self.http.post(f"/v1/runs/{self.run}/cancel")
        for client in (self.http, self.mia, self.ben, self.meter):
            await client.aclose()

    # ---- the agent ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        raise NotImplementedError

    async def reopen(self, status: int = 200) -> None:
        """Find the run that has this run_key."""
        answer = await self.http.post("/v1/runs", json={"run_key": self.run_key})
        assert answer.status_code == status, answer.text
        self.run = answer.json()["run"]

    async def tools(self) -> dict[str, Any]:
        """Full name -> input schema of what is listed."""
        raise NotImplementedError

    async def asked(self, tool: str, arguments: Any, **more: Any) -> Answer:
        raise NotImplementedError

    async def call(self, tool: str, *, raw: Any = None, **given: Any) -> str:
        """Make a call with `given` as arguments (`raw` instead, whatever it is), apart from AROUND; what the answer says."""
        around = {name: given.pop(name, none) for name, none in AROUND.items()}
        name = tool if "." in tool else f"{self.on}.{tool}"
        self.answers.append(await self.asked(name, given if raw is None else raw, **around))
        return self.last.says

    def start(self, tool: str, **given: Any) -> asyncio.Task[str]:
        """The same without waiting for it."""
        return asyncio.ensure_future(self.call(tool, **given))

    @property
    def last(self) -> Answer:
        return self.answers[-1]

    # ---- its harness, and people ----------------------------------------------------------------------------------------

    async def post(self, path: str, body: Any = None, *, by: httpx.AsyncClient | None = None, status: int = 200) -> Any:
        """A request about the run, by its owner."""
        answer = await (by or self.http).post(f"/v1/runs/{self.run}{path}", json=body or {})
        assert answer.status_code == status, answer.text
        return answer.json()

    async def look(self, path: str = "") -> Any:
        answer = await self.http.get(f"/v1/runs/{self.run}{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def hold(self) -> dict[str, Any]:
        """The hold that the last answer names, as a person sees it."""
        held = self.last.body["hold"]["hold"]
        return dict((await self.mia.get(f"/v1/holds/{held}")).json())

    async def vote(self, say: str, *, by: httpx.AsyncClient | None = None, status: int = 200, **more: Any) -> Any:
        """A person's say about the hold of the last answer."""
        hold = await self.hold()
        answer = await (by or self.mia).post(f"/v1/holds/{hold['hold']}/{say}", json={"digest": hold["digest"], **more})
        assert answer.status_code == status, answer.text
        return answer.json()

    async def first_hold(self) -> dict[str, Any]:
        """Wait for the run's first hold, as a person finds it."""

        async def look() -> dict[str, Any] | None:
            holds = (await self.mia.get("/v1/holds?state=held")).json()["holds"]
            return next((one for one in holds if one["run"] == self.run), None)

        found = await eventually(look, "a hold")
        assert found is not None
        return found

    async def until_hold(self, status: str) -> None:
        """Wait until the hold of the last answer has come to this."""

        async def look() -> bool:
            return (await self.hold())["status"] == status

        await eventually(look, f"a hold that is {status}")

    async def until_run(self, **wanted: Any) -> None:
        """Wait until the run shows these values."""

        async def look() -> bool:
            shown = await self.look()
            return all(shown[name] == value for name, value in wanted.items())

        await eventually(look, f"a run with {wanted}")

    async def until_calls(self, **counts: int) -> None:
        """Wait until so many calls are in these states."""

        async def look() -> bool:
            calls = (await self.look())["calls"]
            return all(calls.get(state, 0) == count for state, count in counts.items())

        await eventually(look, f"calls: {counts}")

    async def until_late(self) -> None:
        """Wait until the run's time is up."""

        async def look() -> bool:
            return (await self.look())["budget"]["seconds_left"] == 0

        await eventually(look, "the deadline")

    async def events(self) -> list[dict[str, Any]]:
        return list((await self.look("/events?limit=500"))["events"])

    # ---- upstreams ------------------------------------------------------------------------------------------------------

    def took(self, id: str) -> list[dict[str, Any]]:
        """What the upstream got of one case: tool, arguments, key."""
        if self.on == "web":
            return [{"tool": one.tool, "arguments": one.arguments, "key": one.key} for one in self.web.of(id)]
        calls = [call["params"] for call in self.stage.desk.calls(id)]
        return [{"tool": call["name"], "arguments": call["arguments"], "key": call["_meta"].get("key")} for call in calls]

    async def reached(self, id: str, times: int = 1) -> None:
        await until(lambda: len(self.took(id)) >= times, f"request {times} of {id!r} on {self.on}")

    def told(self) -> list[Any]:
        """All answers in the form in which two doors are compared."""
        plain = Plain()
        return [plain([answer.says, answer.body]) for answer in self.answers]


class RestAgent(Agent):
    door = "rest"

    async def open(self) -> None:
        await self.reopen(201)

    async def tools(self) -> dict[str, Any]:
        return {tool["name"]: tool["inputSchema"] for tool in (await self.look("/tools"))["tools"]}

    async def asked(self, tool: str, arguments: Any, *, turn: int, call_id: str, operation: str, hurried: bool) -> Answer:
        body = {"tool": tool, "arguments": arguments, "call_id": call_id or None, "operation_id": operation or None, "turn": turn}
        answer = await self.http.post(f"/v1/runs/{self.run}/calls", json=body | ({"wait": 0.1} if hurried else {}))
        return rest_answer(answer)


def rest_answer(answer: httpx.Response) -> Answer:
    body = answer.json()
    if answer.status_code == 200:
        return Answer(_done(body), body)
    waits = "retry-after" in answer.headers
    if answer.status_code == 202:
        return Answer(body["status"], body, waits)
    assert (answer.headers["content-type"], body["status"]) == ("application/problem+json", answer.status_code)
    return Answer(f"refused:{body['reason']}", body, waits)


def _done(body: Mapping[str, Any]) -> str:
    return ("replayed" if body["replayed"] else "done") + (f":{body['reason']}" if body["reason"] else "")


class McpAgent(Agent):
    door = "mcp"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.session = self.stage.client(f"agent:{self.principal}", **{"gateway-run": self.run_key})

    async def open(self) -> None:
        """An MCP client only names its run; it is opened on first use."""
        await self.tools()
        await self.reopen()

    async def tools(self) -> dict[str, Any]:
        tools = (await self.result("tools/list"))["tools"]
        return {tool["name"].replace("__", ".", 1): tool["inputSchema"] for tool in tools}

    async def asked(self, tool: str, arguments: Any, *, turn: int, call_id: str, operation: str, hurried: bool) -> Answer:
        meta = {"call_id": call_id, "operation_id": operation, "turn": turn}
        params = {"name": tool.replace(".", "__", 1), "arguments": arguments, "_meta": {OURS + name: value for name, value in meta.items() if value}}
        impatient = {"user-agent": "openai-agents"} if hurried else {}
        return mcp_answer(await self.result("tools/call", params, **impatient))

    async def result(self, method: str, params: Mapping[str, Any] | None = None, **headers: str) -> dict[str, Any]:
        """Of one request."""
        return self.bare(await mcp(self.session, method, params, **headers))

    @staticmethod
    def bare(result: dict[str, Any]) -> dict[str, Any]:
        """Without what every answer of this era says of itself."""
        assert (result.pop("resultType"), result["_meta"].pop(PROTOCOL + "serverInfo")["name"]) == ("complete", "tool-call-gateway")
        return result


class SessionAgent(McpAgent):
    """MCP as it was before 2026-07-28: a session, named in each request."""

    async def open(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "scenarios", "version": "1"}}
        answer = await session_post(self.session, "initialize", params)
        self.session.headers.update({"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"})
        await super().open()

    async def result(self, method: str, params: Mapping[str, Any] | None = None, **headers: str) -> dict[str, Any]:
        answer = await session_post(self.session, method, params, **headers)
        assert (answer.status_code, answer.json()["id"]) == (200, 7), answer.text
        return dict(answer.json()["result"])


async def session_post(client: httpx.AsyncClient, method: str, params: Mapping[str, Any] | None = None, **headers: str) -> httpx.Response:
    """One request of the session era."""
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}}
    return await client.post("/mcp", json=body, headers={"accept": "application/json, text/event-stream"} | headers)


async def mcp(client: httpx.AsyncClient, method: str, params: Mapping[str, Any] | None = None, path: str = "/mcp", **headers: str) -> dict[str, Any]:
    """One request of revision 2026-07-28; its result."""
    answer = await mcp_post(client, method, params, path, **headers)
    assert (answer.status_code, answer.json()["id"]) == (200, 7), answer.text
    return dict(answer.json()["result"])


async def mcp_post(
    client: httpx.AsyncClient, method: str, params: Mapping[str, Any] | None = None, path: str = "/mcp", **headers: str
) -> httpx.Response:
    """The same, whatever is answered."""
    given = params or {}
    envelope = {PROTOCOL + "protocolVersion": VERSION, PROTOCOL + "clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**given, "_meta": {**given.get("_meta", {}), **envelope}}}
    named = {"mcp-name": given["name"]} if "name" in given else {}
    known = {"mcp-protocol-version": VERSION, "mcp-method": method, "accept": "application/json, text/event-stream"}
    return await client.post(path, json=body, headers=known | named | headers)


def mcp_answer(result: dict[str, Any]) -> Answer:
    """In REST's form; what `_meta` says must be what the structured content says."""
    meta = result.pop("_meta")
    call, budget = meta.pop(OURS + "call"), meta.pop(OURS + "budget", None)
    assert not any(name.startswith(OURS) for name in meta)
    if call["status"] in ("held", "ready"):
        body = result["structuredContent"]
        assert (result["isError"], call["hold"], call["reason"], budget) == (False, body["hold"]["hold"], "approval.required", body["budget"])
        return Answer(call["status"], body)
    if "hint" in (result.get("structuredContent") or {}):
        body = result["structuredContent"]
        assert (result["isError"], call["call"], call["reason"], budget) == (True, body["call"], body["reason"], body["budget"])
        return Answer(f"refused:{body['reason']}", body)
    told = {"call": call["call"], "status": call["status"], "reason": call["reason"], "replayed": call["replayed"]}
    told |= {"message": call.get("message"), "differences": call.get("differences"), "result": result | ({"_meta": meta} if meta else {})}
    return Answer(_done(told), told | {"budget": budget})
