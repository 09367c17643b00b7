"""Results pass as they are (P15): whatever JSON a server writes, a client of either era behind the gateway reads what it would read directly.

The servers answer with the very text that the test gives them; there is one for each era over each transport, and each is asked by a
client of each era. Compared strictly: 1 is not 1.0, and integers have all their digits.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.e2e.running import AGENT, gateway
from tests.waiting import WAIT_S, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SERVER = str(Path(__file__).with_name("mirror_server.py"))
OURS, PROTOCOL = "tool-call-gateway/", "io.modelcontextprotocol/"
UPSTREAMS = [f"{era}-{transport}" for era in ("2026", "session") for transport in ("stdio", "http")]
POLICY = """\
version: 1
name: mirrors
match: {task_types: [interactive]}
run:
  budgets: {turns: unlimited, tool_calls: unlimited, deadline: 10m, tokens: unlimited}
tools:
  - {tool: "*.keep", effect: idempotent_write, shadow: [loops]}
  - {tool: "*", effect: read_only, shadow: [loops]}
"""


@asynccontextmanager
async def mirror(folder: Path, era: str) -> AsyncIterator[str]:
    """A server over HTTP; its URL."""
    port = folder / f"port-{era}"
    process = await asyncio.create_subprocess_exec(sys.executable, SERVER, era, str(port))
    try:
        await until(port.exists, "the mirror")
        yield f"http://127.0.0.1:{port.read_text()}/mcp"
    finally:
        process.terminate()
        await process.wait()


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, str]]:
    """`gateway` and each server over HTTP -> its URL."""
    folder = tmp_path_factory.mktemp("mirrors")
    async with AsyncExitStack() as stack:
        urls = {f"{era}-http": await stack.enter_async_context(mirror(folder, era)) for era in ("2026", "session")}
        entries = [f"{name}: {{mcp: {{url: '{url}'}}}}" for name, url in urls.items()]
        entries += [f"{era}-stdio: {{mcp: {{command: {[sys.executable, SERVER, era, 'stdio']}}}}}" for era in ("2026", "session")]
        url = await stack.enter_async_context(gateway(folder / "gateway", "\n".join(entries) + "\n", POLICY, {}))
        yield {**urls, "gateway": f"{url}/r/fidelity/mcp"}


# ---- clients ------------------------------------------------------------------------------------------------------------


class Client:
    """A client of one era that reads and writes nothing but JSON."""

    def __init__(self, url: str, era: str) -> None:
        self.http = httpx.Client(headers={"authorization": f"Bearer {AGENT}", "accept": "application/json, text/event-stream"}, timeout=WAIT_S)
        self.url, self.era, self.ids = url, era, count(1)
        if era == "session":
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
            self.ask("initialize", hello)
            self.http.headers["mcp-protocol-version"] = "2025-11-25"

    def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": dict(params)}
        headers = {"content-type": "application/json"}
        if self.era == "2026":
            message["params"]["_meta"] = {PROTOCOL + "protocolVersion": "2026-07-28", PROTOCOL + "clientCapabilities": {}}
            headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
            headers |= {"mcp-name": params["name"]} if "name" in params else {}
        answer = self.http.post(self.url, content=json.dumps(message), headers=headers).raise_for_status()
        if "mcp-session-id" in answer.headers:
            self.http.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        text = answer.text.removeprefix("data: ") if answer.headers["content-type"] == "text/event-stream" else answer.text
        return json.loads(text.removeprefix("event: message\ndata: "))["result"]

    def call(self, tool: str, text: str) -> Any:
        return self.ask("tools/call", {"name": tool, "arguments": {"text": text}})


@pytest.fixture(scope="module")
def clients(running: dict[str, str], anyio_backend: str) -> Iterator[dict[str, Client]]:
    found = {era: Client(running["gateway"], era) for era in ("2026", "session")}
    yield found
    for one in found.values():
        one.http.close()


def bare(result: Mapping[str, Any]) -> dict[str, Any]:
    """Without what a gateway, or the newer protocol, adds."""
    meta = {name: value for name, value in (result.get("_meta") or {}).items() if not name.startswith((OURS, PROTOCOL))}
    kept = {name: value for name, value in result.items() if name not in ("_meta", "resultType")}
    return kept | ({"_meta": meta} if meta else {})


def strict(value: Any) -> Any:
    """Equal only for values that are the same JSON: numbers with how they are written."""
    if isinstance(value, dict):
        return {name: strict(item) for name, item in value.items()}
    if isinstance(value, list):
        return [strict(item) for item in value]
    return (type(value).__name__, repr(value)) if isinstance(value, (int, float)) else value


# ---- results ------------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NAMES = TEXTS.filter(lambda name: not name.startswith((OURS, PROTOCOL)))
NUMBERS = st.integers(-(2**200), 2**200) | st.sampled_from([2**53 + 1, 2**63, 2**64, -(2**64) - 1]) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=4)
META = st.fixed_dictionaries({}, optional={"_meta": OBJECTS, "annotations": OBJECTS})


def block(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda known, more, extra: {**extra, **known, **more}, st.fixed_dictionaries(members), META, OBJECTS)


RESOURCES = block(uri=TEXTS, mimeType=TEXTS, text=TEXTS) | block(uri=TEXTS, blob=st.just("AAEC"))
BLOCKS = (
    block(type=st.just("text"), text=TEXTS)
    | block(type=st.sampled_from(["image", "audio"]), data=st.just("AAEC"), mimeType=TEXTS)
    | block(type=st.just("resource"), resource=RESOURCES)
    | block(type=st.just("resource_link"), uri=TEXTS, name=TEXTS, size=st.integers(0, 2**80))
    | block(type=st.text(st.characters(categories=["Ll"]), min_size=8, max_size=12), anything=JSON)
)
RESULTS = st.builds(
    lambda known, extra: {**{name: value for name, value in extra.items() if name != "resultType"}, **known},
    st.fixed_dictionaries(
        {"content": st.lists(BLOCKS, max_size=4)}, optional={"structuredContent": OBJECTS, "isError": st.booleans(), "_meta": OBJECTS}
    ),
    OBJECTS,
)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@given(RESULTS, st.booleans())
@example({"content": [], "structuredContent": {"deep": deep(60), "big": -(10**4000), "small": 5e-324, "negative zero": -0.0}}, True)
@example({"content": [{"type": "text", "text": "\u0000\u2028\u2029\x7f\ufeff\U0010ffff"}], "_meta": {"": {"": ""}}}, False)
@settings(max_examples=60, deadline=None)
def test_every_result_passes_as_it_is_in_all_pairings(clients: dict[str, Client], result: dict[str, Any], ascii: bool) -> None:
    text = json.dumps(result, ensure_ascii=ascii)
    for upstream in UPSTREAMS:
        for era, client in clients.items():
            assert strict(bare(client.call(f"{upstream}__mirror", text))) == strict(bare(result)), (upstream, era)


def test_what_is_said_under_our_own_name_is_dropped_and_the_servers_word_about_itself_kept(clients: dict[str, Client]) -> None:
    info = {"name": "mirror", "version": "7", "x": 2**70}
    text = json.dumps({"content": [], "_meta": {OURS + "call": {"status": "faked"}, OURS + "x": 1, PROTOCOL + "serverInfo": info}})
    for upstream in UPSTREAMS:
        for client in clients.values():
            meta = client.call(f"{upstream}__mirror", text)["_meta"]
            assert (meta[OURS + "call"]["status"], OURS + "x" in meta, meta[PROTOCOL + "serverInfo"]) == ("succeeded", False, info)


def test_direct_and_through_the_gateway_a_client_reads_the_same(running: dict[str, str], clients: dict[str, Client]) -> None:
    text = '{"content":[{"type":"hologram","n":1.0,"big":123456789012345678901234567890}],"new":{"é":[1e-7,1E5]}}'
    for era in ("2026", "session"):
        direct = Client(running[f"{era}-http"], era)
        expected = [strict(bare(direct.call("mirror", text))) for _ in range(2)]
        direct.http.close()
        assert [strict(bare(clients[era].call(f"{era}-http__mirror", text)))] * 2 == expected


def test_a_replay_is_the_same_result(clients: dict[str, Client]) -> None:
    text = '{"content":[{"type":"hologram","n":1.0,"big":123456789012345678901234567890}],"_meta":{"a":-0.0}}'
    for upstream in UPSTREAMS:
        first, again = (one.call(f"{upstream}__keep", text) for one in clients.values())
        assert (first["_meta"][OURS + "call"]["replayed"], again["_meta"][OURS + "call"]["replayed"]) == (False, True)
        assert strict(bare(first)) == strict(bare(again)) == strict(json.loads(text))


def test_definitions_pass_with_all_that_no_revision_knows(running: dict[str, str], clients: dict[str, Client]) -> None:
    direct = Client(running["session-http"], "session")
    expected = {one["name"]: one for one in direct.ask("tools/list", {})["tools"]}
    direct.http.close()
    for client in clients.values():
        listed = {one["name"]: one for one in client.ask("tools/list", {})["tools"]}
        for upstream in UPSTREAMS:
            shown = {**listed[f"{upstream}__odd"], "name": "odd"}
            assert strict(shown) == strict(expected["odd"])
