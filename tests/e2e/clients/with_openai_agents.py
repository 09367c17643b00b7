"""The MCP client of OpenAI's Agents SDK."""

import asyncio
from typing import Any

from agents.mcp import MCPServerStreamableHttp
from conversation import HEADERS, URL, converse, told


async def main() -> None:
    async with MCPServerStreamableHttp({"url": URL, "headers": HEADERS}) as server:

        async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            return told(await server.call_tool(tool, arguments))

        await converse(call)


asyncio.run(main())
