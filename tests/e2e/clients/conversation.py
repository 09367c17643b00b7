"""What every client's driver does: make the calls that a test asks for, line by line, and say what the client hands on to its user.

Runs in the client's own environment: standard library only. In, each a line of JSON: `{"tool", "arguments"}` is a call; with `"gives_up": true`
its user gives up on it at the next line, whatever that says. Out, a line for each: what `call` returned, or `{"raised"}`. The end of input ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
URL = os.environ["MCP_URL"]
HEADERS = json.loads(os.environ["MCP_HEADERS"])


async def converse(call: Call) -> None:
    """`call(tool, arguments)` is the client under test."""
    say({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        wish = json.loads(line)
        made = asyncio.ensure_future(call(wish["tool"], wish["arguments"]))
        if wish.get("gives_up"):
            await asyncio.to_thread(sys.stdin.readline)
            made.cancel()
        (met,) = await asyncio.gather(made, return_exceptions=True)
        say({"raised": type(met).__name__, "text": str(met)} if isinstance(met, BaseException) else met)


def say(told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)


def told(result: Any) -> dict[str, Any]:
    """Of a result as the MCP SDK, 1.x or 2.x, and those who build on it have it."""
    later = hasattr(result, "is_error")
    error, data = (result.is_error, result.structured_content) if later else (result.isError, result.structuredContent)
    return {"error": error, "text": "\n".join(block.text for block in result.content), "data": data, "meta": result.meta}
