"""Documents as tools, over real sockets: what a recording server gets is judged by openapi-core, which shares nothing with this project.

GitHub's description, which npm's @octokit/openapi ships, and two of our own. Every tool is called with the least and with the most that
its schema takes. What openapi-core is not asked: text that a URL encodes; that is held by the tests of each part.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx
import pytest
import yaml
from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from openapi_core.exceptions import OpenAPIError
from werkzeug.datastructures import Headers, ImmutableMultiDict

from gateway.core.model import Tool
from gateway.upstreams.credentials import Credentials
from gateway.upstreams.http import HttpUpstream
from gateway.upstreams.openapi import Api, read_api
from tests.e2e.openapi_arguments import made
from tests.e2e.running import AGENT, gateway
from tests.upstreams.openapi.stage import FLEET, SHOP
from tests.upstreams.origin import Connection, Origin, Seen, dispatch, origin
from tests.waiting import WAIT_S

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

OCTOKIT = "@octokit/openapi@23.0.2"
DOWNLOAD_S = 180
"""npm fetches 25 MB and unpacks 390."""
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
CREDENTIALS = Credentials({"x-shop-key": "key-of-the-shop"})


class Asked:
    """A recorded request in openapi-core's form, as if it had been sent to the document's own server."""

    def __init__(self, seen: Seen, server: str) -> None:
        target = urlsplit(seen.target)
        self.host_url = "{0.scheme}://{0.netloc}".format(urlsplit(server))
        self.path, self.method, self.body = unquote(target.path), seen.method.lower(), seen.body or None
        self.content_type = seen.headers.get("content-type", "")
        cookies = {name: one.value for name, one in SimpleCookie(seen.headers.get("cookie", "")).items()}
        query = ImmutableMultiDict(parse_qsl(target.query, keep_blank_values=True))
        self.parameters = RequestParameters(query, Headers(dict(seen.headers)), ImmutableMultiDict(cookies), {})


def written(path: Path) -> dict[str, Any]:
    """The document as others read it; dates become texts again."""
    data: dict[str, Any] = json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str) if path.suffix == ".yaml" else path.read_text())
    return data


def judge(data: Mapping[str, Any]) -> OpenAPI:
    """It knows JSON only by its plain name."""
    config = Config(spec_validator_cls=None, extra_media_type_deserializers={"application/merge-patch+json": json.loads})  # type: ignore[arg-type]
    return OpenAPI.from_dict(data, config=config)


async def record(connection: Connection) -> None:
    while True:
        await connection.request()
        await connection.answer()


async def called(api: Api, it: Origin) -> list[str]:
    """Call every tool with what can be made for it; the names of those for which nothing could."""
    upstream, unmade = HttpUpstream("api", api.base_url, api.operations, CREDENTIALS), []
    await upstream.open()
    for operation in api.operations:
        tool = Tool(f"api.{operation.name}", "api", operation.name, {}, "digest")
        calls = [upstream.send(dispatch(arguments, tool=tool)) for arguments in made(operation.input_schema)]
        for answer in await asyncio.gather(*calls):
            assert answer.status == 200
        unmade += [] if calls else [operation.name]
    await upstream.close()
    return unmade


def wrong(spec: OpenAPI, seen: Iterable[Seen], server: str) -> list[str]:
    found = []
    for one in seen:
        try:
            spec.validate_request(Asked(one, server))  # type: ignore[arg-type]
        except OpenAPIError as error:
            found.append(f"{one.method} {one.target} {one.body!r}: {error} {error.__cause__}")
    return found


@pytest.fixture(scope="module")
def github() -> Path:
    """GitHub's document from npm, in a cache folder."""
    npm = shutil.which("npm", path=PATH)
    if npm is None:
        pytest.fail("Node.js is missing: install the test extra of this project")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tool-call-gateway-tests"
    home = cache / OCTOKIT.rpartition("/")[2]
    if not home.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=cache))
        install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(fresh / "npm"), OCTOKIT]
        subprocess.run(install, check=True, timeout=DOWNLOAD_S, env={**os.environ, "PATH": PATH})
        (fresh / "npm/node_modules/@octokit/openapi/generated/api.github.com.json").rename(fresh / "api.github.com.json")
        shutil.rmtree(fresh / "npm")  # the other editions are 300 MB
        if not home.exists():
            fresh.rename(home)
    return home / "api.github.com.json"


@pytest.mark.filterwarnings("ignore:.*parameter is deprecated:DeprecationWarning")
async def test_githubs_whole_interface_becomes_tools_whose_requests_it_would_take(github: Path) -> None:
    async with origin(record) as it:
        api = read_api(github, github.name, base_url=it.url)
        unmade = await called(api, it)
    assert (len(api.operations), [one.message.partition(" is left out")[0] for one in api.remarks]) == (
        1222, ["POST /repos/{owner}/{repo}/releases/{release_id}/assets"],
    )  # fmt: skip
    assert len(unmade) < 20, unmade
    assert len(it.seen) > 2300
    data = written(github)
    del data["components"]["schemas"]["alert-number"]["readOnly"]  # of a property that would be; this one is a path's parameter
    assert wrong(judge(data), it.seen, "https://api.github.com") == []


@pytest.mark.parametrize(("path", "server", "count"), [(SHOP, "https://eu.shop.test/v2", 22), (FLEET, "https://fleet.test/api", 12)])
async def test_our_own_documents_take_the_requests_that_calls_produce(path: Path, server: str, count: int) -> None:
    async with origin(record) as it:
        api = read_api(path, path.name, base_url=it.url + urlsplit(server).path, credentials=CREDENTIALS)
        assert await called(api, it) == []
    assert len(it.seen) == count
    assert wrong(judge(written(path)), it.seen, server) == []


async def test_the_judge_would_have_noticed(tmp_path: Path) -> None:
    async with origin(record) as it:
        api = read_api(FLEET, "fleet.json", base_url=it.url + "/api")
        await called(api, it)
    bad = [Seen(one.method, one.target.replace("/cars/1", "/cars/x"), one.headers, one.body.replace(b"at", b"in")) for one in it.seen]
    assert len(wrong(judge(written(FLEET)), bad, "https://fleet.test/api")) >= 4


# ---- through the gateway ------------------------------------------------------------------------------------------------

POLICY = """\
version: 1
name: shop
match: {task_types: [interactive]}
run:
  budgets: {turns: unlimited, tool_calls: 50, deadline: 10m, tokens: unlimited}
tools:
  - {tool: "shop.get*", effect: read_only}
  - {tool: shop.createOrder, effect: idempotent_write, idempotency: {send_as: {header: Idempotency-Key}}}
"""
UPSTREAM = """\
shop:
  openapi: {{document: {document}, base_url: "{url}/v2", exclude: ["tag:goods"]}}
  auth: {{api_key: {{header: X-Shop-Key, value: "${{env:SHOP_KEY}}"}}}}
"""


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[tuple[str, Origin]]:
    async with origin(record) as it, gateway(tmp_path, UPSTREAM.format(document=SHOP, url=it.url), POLICY, {"SHOP_KEY": "s3cret"}) as url:
        yield url, it


async def test_a_governed_call_of_an_operation_reaches_its_server(shop: tuple[str, Origin]) -> None:
    url, it = shop
    async with httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {AGENT}"}, timeout=WAIT_S) as bot:
        run = (await bot.post("/v1/runs", json={})).json()["run"]
        listed = (await bot.get(f"/v1/runs/{run}/tools?format=anthropic")).json()["tools"]
        assert {one["name"] for one in listed} == {"shop__getOrder", "shop__createOrder"}
        calls = [
            ("shop.getOrder", {"order_id": "a/1", "fields": ["id"]}, 200),
            ("shop.createOrder", {"lines": [{"sku": "a", "amount": 2}]}, 200),
            ("shop.createOrder", {"lines": [{"sku": "a", "amount": 0}]}, 422),
            ("shop.putOrder", {"order_id": "1", "lines": []}, 403),
        ]
        for tool, arguments, status in calls:
            response = await bot.post(f"/v1/runs/{run}/calls", json={"tool": tool, "arguments": arguments})
            assert response.status_code == status, response.text
            assert "s3cret" not in response.text
    read, write = it.seen
    assert (read.target, read.headers["x-shop-key"]) == ("/v2/orders/a%2F1?fields=id", "s3cret")
    assert (json.loads(write.body), len(write.headers["idempotency-key"])) == ({"lines": [{"sku": "a", "amount": 2}]}, 64)
