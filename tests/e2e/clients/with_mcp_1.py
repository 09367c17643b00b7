"""The official Python SDK, 1.x: it speaks the session revisions, and leaves it to its user to say that a call was given up."""

import asyncio
from typing import Any

import httpx
from conversation import HEADERS, URL, converse, told
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CancelledNotification, CancelledNotificationParams, ClientNotification


async def main() -> None:
    async with (
        httpx.AsyncClient(headers=HEADERS) as http,
        streamable_http_client(URL, http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()

        async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            try:
                return told(await session.call_tool(tool, arguments))
            except asyncio.CancelledError:
                given_up = CancelledNotificationParams(requestId=session._request_id - 1)  # the SDK tells nobody a request's id
                await session.send_notification(ClientNotification(CancelledNotification(params=given_up)))
                raise

        await converse(call)


asyncio.run(main())
