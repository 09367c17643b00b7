"""A client and an engine for the MCP door: requests as ASGI messages, replies as scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gateway.core.model import BudgetLeft, CallRequest, Completed, Principal, Reply, Tool
from gateway.doors.mcp import Limits, McpDoor
from gateway.doors.names import Names
from gateway.engine import Caller, ListedTool
from gateway.ports import Client, RequestFault
from tests.fakes import FakeClock

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ENVELOPE = {VERSION: "2026-07-28", CAPABILITIES: {}}
SERVER = {"name": "gateway", "version": "0"}
ANA = Caller(Principal("agent:ana"))
LEFT = BudgetLeft(11, False, 39, 190_000, 1.95, 1_795_960_800_000, 89.5, None)
RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "hi"}], "isError": False}
DONE = Completed("call_1_1", "succeeded", RESULT, LEFT)

Script = Callable[..., Awaitable[Reply]]


def tool(name: str, **definition: Any) -> Tool:
    upstream, _, local = name.partition(".")
    return Tool(name, upstream, local, {"name": local, "inputSchema": {"type": "object"}, **definition}, f"digest of {name} {definition}")


class FakeEngine:
    """Answers each call with `reply`, which may be a Reply, a fault to raise, or a function of the call."""

    def __init__(self, *tools: Tool) -> None:
        self.catalog = self
        self.all_tools = tools or (tool("crm.echo"),)
        self.reply: Reply | BaseException | Script = DONE
        self.asked: list[CallRequest] = []
        self.runs: list[str] = []
        self.servers: dict[str, Any] = {}
        self.clients: list[Client] = []
        self.resumed: list[Any] = []
        self.after: list[Reply] = []
        self.hearers: list[Any] = []
        self.short: dict[str, str] = {}

    def tool(self, name: str) -> Tool | None:
        return next((one for one in self.all_tools if one.name == name), None)

    def all(self) -> tuple[Tool, ...]:
        return self.all_tools

    def server(self, upstream: str) -> Any:
        return self.servers.get(upstream)

    async def tool_named(self, who: Caller, run: str, name: str) -> str | None:
        if isinstance(self.reply, RequestFault):
            raise self.reply
        return self.short.get(name)

    async def tools(self, who: Caller, run: str) -> list[ListedTool]:
        self.runs.append(run)
        return [ListedTool(one, one.definition, "read_only") for one in self.all_tools]

    async def call(self, who: Caller, run: str, request: CallRequest, *, client: Client, gone: asyncio.Future[None]) -> Reply:
        self.asked.append(request)
        self.clients.append(client)
        self.runs.append(run)
        if isinstance(self.reply, BaseException):
            raise self.reply
        return await self.reply(client.progress, gone) if callable(self.reply) else self.reply

    async def resume(
        self, who: Caller, run: str, call: str, number: int, answers: asyncio.Future[Any], *, client: Client, gone: asyncio.Future[None]
    ) -> Reply:
        """Then comes the next of `after`."""
        await asyncio.wait({answers, gone}, return_when=asyncio.FIRST_COMPLETED)
        self.resumed.append((run, call, number, answers.result() if answers.done() else None))
        return self.after.pop(0)

    def listen(self, hear: Any) -> Callable[[], None]:
        self.hearers.append(hear)
        return lambda: self.hearers.remove(hear)

    async def run_by_key(self, who: Caller, run_key: str, door: str) -> str:
        return f"run of {run_key} of {who.principal.id} by {door}"

    async def implicit_run(self, who: Caller, door: str) -> str:
        return f"implicit run of {who.principal.id} by {door}"


class FakeServer:
    """The port Server, as far as this door asks it. `answers`: by method, a result, a list of them in turn, or a fault."""

    def __init__(self, name: str, offers: Mapping[str, Any], *, prompts: Any = (), resources: Any = (), templates: Any = ()) -> None:
        self.name = name
        self.offers = dict(offers)
        self.asked: list[tuple[str, Any]] = []
        self.capabilities: list[Any] = []
        self.watched: list[list[str]] = []
        self.answers: dict[str, Any] = {
            "prompts/list": {"prompts": [{"name": one} for one in prompts]},
            "resources/list": {"resources": [{"uri": one} for one in resources]},
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": one} for one in templates]},
        }

    async def request(self, method: str, params: Any, *, remaining_ms: int, capabilities: Any = None) -> Any:
        self.asked.append((method, params))
        self.capabilities.append(capabilities)
        answer = self.answers.get(method, {})
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(self, uris: Any) -> None:
        self.watched.append(sorted(uris))
        if isinstance(fault := self.answers.get("watch"), Exception):
            raise fault


def door(engine: FakeEngine, caller: Caller = ANA, **limits: Any) -> McpDoor:
    def authenticate(headers: Any) -> Caller:
        if (b"authorization", b"Bearer wrong") in headers:
            raise RequestFault("auth.required", "This key is unknown.")
        return caller

    return McpDoor(engine, authenticate, Names(engine), [b"s" * 32], FakeClock(), server_info=SERVER, limits=Limits(**limits))  # type: ignore[arg-type]


def message(method: str = "tools/call", meta: Mapping[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    if method == "tools/call":
        params = {"name": "crm__echo", **params}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ENVELOPE | dict(meta or {})}}


def initialize(version: str = "2025-11-25", capabilities: Mapping[str, Any] | None = None, name: str = "ana's client") -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": {"name": name, "version": "1"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def headers(body: Any, **more: str | None) -> dict[str, str]:
    """What an official client sends with this body; `more` by name with underscores, None leaves one out."""
    sent: dict[str, str | None] = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
    }
    if isinstance(body, dict) and "method" in body:
        sent["mcp-method"] = body["method"]
        sent["mcp-name"] = body.get("params", {}).get("name")
    sent |= {name.replace("_", "-"): value for name, value in more.items()}
    return {name: value for name, value in sent.items() if isinstance(value, str)}


class Exchange:
    """One request at the door. `leave()` closes the connection; `answered()` waits for the end of the answer."""

    def __init__(
        self, app: McpDoor, body: Any, *, path: str = "/mcp", method: str = "POST", raw: list[tuple[bytes, bytes]] | None = None, **more: Any
    ):
        sent = headers(body, **more)
        pairs = raw or [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._messages.put_nowait({"type": "http.request", "body": data, "more_body": False})
        self._said = asyncio.Condition()
        self.reads = 0
        self.listening = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        scope = {"type": "http", "method": method, "path": path, "headers": pairs}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        self.reads += 1
        if self.reads == 2:
            self.listening.set()
        return await self._messages.get()

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._said:
            self.sent.append(message)
            self._said.notify_all()

    def leave(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    async def said(self, count: int) -> list[dict[str, Any]]:
        """The first messages of a stream, once there are as many."""
        async with asyncio.timeout(5), self._said:
            await self._said.wait_for(lambda: len(self.events) >= count)
        return self.events[:count]

    async def answered(self) -> Exchange:
        async with asyncio.timeout(5):
            await self.task
        return self

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(part["body"] for part in self.sent[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        found = [block for block in self.body.decode().split("\n\n") if block and not block.startswith(":")]
        return [json.loads(block.removeprefix("event: message\ndata: ")) for block in found]

    @property
    def result(self) -> Any:
        return self.json["result"]

    @property
    def ended(self) -> bool:
        return len(self.sent) > 1 and not self.sent[-1].get("more_body", False)


class Talk:
    """A client of the session era, once it has begun."""

    def __init__(self, app: McpDoor, session: str, version: str) -> None:
        self.app = app
        self.session = session
        self.version = version

    @classmethod
    async def begin(cls, app: McpDoor, version: str = "2025-11-25", **more: Any) -> Talk:
        exchange = await post(app, initialize(version, **more), mcp_protocol_version=None)
        return cls(app, exchange.headers["mcp-session-id"], exchange.result["protocolVersion"])

    def start(self, body: Any, **more: Any) -> Exchange:
        known = {"mcp_session_id": self.session, "mcp_protocol_version": self.version, "mcp_method": None, "mcp_name": None}
        return Exchange(self.app, body, **known | more)

    async def say(self, body: Any, **more: Any) -> Exchange:
        return await self.start(body, **more).answered()

    async def ask(self, method: str, id: Any = 1, **params: Any) -> Any:
        """The answer to a request."""
        return (await self.say(request(method, id, **params))).json


def request(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(id: Any = 1, meta: Mapping[str, Any] | None = None, name: str = "crm__echo", **arguments: Any) -> dict[str, Any]:
    return request("tools/call", id, name=name, arguments=arguments, **({"_meta": meta} if meta else {}))


async def post(app: McpDoor, body: Any, **more: Any) -> Exchange:
    return await Exchange(app, body, **more).answered()
