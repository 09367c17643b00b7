"""LangChain's MCP adapters, as an agent of theirs invokes tools: a session for each call."""

import asyncio
from typing import Any

from conversation import HEADERS, URL, converse
from langchain_mcp_adapters.client import MultiServerMCPClient


async def main() -> None:
    client = MultiServerMCPClient({"gateway": {"transport": "streamable_http", "url": URL, "headers": HEADERS}})
    tools = {tool.name: tool for tool in await client.get_tools()}

    async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        message = await tools[tool].ainvoke({"type": "tool_call", "id": "1", "name": tool, "args": arguments})
        data = (message.artifact or {}).get("structured_content")
        return {"error": message.status == "error", "text": message.text, "data": data}

    await converse(call)


asyncio.run(main())
