"""FastMCP's client."""

import asyncio
from typing import Any

from conversation import HEADERS, URL, converse, told
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport


async def main() -> None:
    async with Client(StreamableHttpTransport(URL, headers=HEADERS)) as client:

        async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            return told(await client.call_tool(tool, arguments, raise_on_error=False))

        await converse(call)


asyncio.run(main())
