"""The official Python SDK, 1.x: it speaks the session revisions."""

import asyncio
from typing import Any

import httpx
from conversation import HEADERS, URL, converse, told
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    async with (
        httpx.AsyncClient(headers=HEADERS) as http,
        streamable_http_client(URL, http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()

        async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            return told(await session.call_tool(tool, arguments))

        await converse(call)


asyncio.run(main())
