"""Pydantic AI's MCP toolset. What its model would read is its answer; a failed call is one that it would try again."""

import asyncio
import json
from typing import Any

from conversation import HEADERS, URL, converse
from pydantic_ai import ModelRetry
from pydantic_ai.mcp import MCPToolset


async def main() -> None:
    async with MCPToolset(URL, headers=HEADERS) as toolset:

        async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            try:
                return {"error": False, "text": "", "data": await toolset.direct_call_tool(tool, arguments)}
            except ModelRetry as refused:
                return {"error": True, "text": refused.message, "data": json.loads(refused.message)}

        await converse(call)


asyncio.run(main())
