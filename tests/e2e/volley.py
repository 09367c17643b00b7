"""Many POSTs over a few connections of our own: an HTTP client that costs a tenth of a real one, where calls are counted in thousands."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

Told = tuple[int, dict[str, Any]]
"""Status and body."""


async def volley(url: str, key: str, bodies: Sequence[Any], at_once: int) -> list[Told]:
    """Post all to one place, so many at a time, in order; the answers in theirs."""
    waiting = deque(enumerate(bodies))
    answers: dict[int, Told] = {}
    await asyncio.gather(*(_gun(url, key, waiting, answers) for _ in range(at_once)))
    return [answers[number] for number in range(len(bodies))]


async def _gun(url: str, key: str, waiting: deque[tuple[int, Any]], answers: dict[int, Told]) -> None:
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    head = f"POST {at.path} HTTP/1.1\r\nhost: {at.netloc}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: "
    try:
        while waiting:
            number, given = waiting.popleft()
            body = json.dumps(given).encode()
            writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
            answers[number] = await _answer(reader)
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> Told:
    top, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    length = next(int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:"))
    return int(top.split()[1]), json.loads(await reader.readexactly(length))
