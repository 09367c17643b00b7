"""The official Python SDK, 2.x: it speaks 2026-07-28."""

import asyncio
from typing import Any

import httpx2
from conversation import HEADERS, URL, converse, told
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    async with httpx2.AsyncClient(headers=HEADERS) as http, Client(streamable_http_client(URL, http_client=http)) as client:

        async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            return told(await client.call_tool(tool, arguments))

        await converse(call)


asyncio.run(main())
