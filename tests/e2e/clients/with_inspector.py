"""The Inspector's command line: a process, and a session, for each call. To give up on a call is to end its processes."""

import asyncio
import json
import os
import signal
from typing import Any

from conversation import HEADERS, URL, converse

COMMAND = json.loads(os.environ["INSPECTOR"])


async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    headers = [part for name, value in HEADERS.items() for part in ("--header", f"{name}: {value}")]
    given = [part for name, value in arguments.items() for part in ("--tool-arg", f"{name}={value}")]
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--cli", URL, "--transport", "http", *headers, "--method", "tools/call", "--tool-name", tool, *given,
        stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # the launcher's child would go on
            await process.wait()
    result = json.loads(said)
    text = "\n".join(block["text"] for block in result["content"])
    return {"error": result.get("isError", False), "text": text, "data": result.get("structuredContent"), "meta": result["_meta"]}


asyncio.run(converse(call))
