"""A result that was too long to be shown is read as a resource of the gateway's own, whatever the run's servers offer."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from gateway.core.guards.result import RESULTS
from gateway.doors.mcp.post import Post
from gateway.doors.mcp.servers import Servers
from gateway.engine import Engine
from gateway.wire.jsonrpc import Request

pytestmark = pytest.mark.anyio

WHOLE = {"content": [{"type": "new", "big": 2**70}]}


class Keeper:
    """The engine, as far as it is asked here."""

    async def kept_aside(self, who: Any, run: str, key: str) -> Any:
        return {("bot", "run_1", "abc"): WHOLE}[(who, run, key)]


class FromRun:
    """A request of one run."""

    caller = "bot"

    async def run(self, engine: Any) -> str:
        return "run_1"


async def test_it_is_one_json_text() -> None:
    request = Request(1, "resources/read", {"uri": RESULTS + "abc"})
    result = await Servers(cast(Engine, Keeper())).answer(cast(Post, FromRun()), request, {})
    (content,) = cast(Any, result)["contents"]
    assert (content["uri"], content["mimeType"], json.loads(content["text"])) == (RESULTS + "abc", "application/json", WHOLE)
