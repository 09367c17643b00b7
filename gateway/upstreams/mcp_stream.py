"""The event stream in which a server answers one request: what it says before, the answer, and where to go on if the stream breaks.

Bounded in every direction: one event by what the answer may be, all that is no answer by `CHATTER`.
Source: 2025-11-25 and 2026-07-28, "Streamable HTTP"; FACTS §4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gateway.ports import UpstreamFault
from gateway.upstreams.http_connection import Reader
from gateway.upstreams.http_faults import too_large
from gateway.upstreams.mcp_peer import Heard
from gateway.wire import jsonrpc
from gateway.wire.json import JsonError, parse
from gateway.wire.jsonrpc import Id, Response, RpcError
from gateway.wire.sse import Decoder, Event, SseError

MAX_DEPTH: Final = 128
CHATTER: Final = 16 * 1024 * 1024
"""Bytes that a stream may hold beside the answer."""
RETRY_MS: Final = 1_000
_FIELDS: Final = 64
"""What an event has around its data."""
_SENDABLE: Final = re.compile(r"[\x20-\x7e]{1,1024}")


class AnswerStream:
    """`tap` is for the connection. `begun`: the answer comes as events. `id` None: a stream that answers nothing, and has no end."""

    def __init__(self, id: Id | None, heard: Heard, max_bytes: int) -> None:
        self.begun = False
        self.response: Response | None = None
        self.headers: Mapping[str, str] = {}
        self._id, self._heard, self._max_bytes = id, heard, max_bytes
        self._taken = 0
        self._last_id: str | None = None
        self.retry_ms = RETRY_MS

    @property
    def last_id(self) -> str | None:
        """The event to go on after; None where the stream can't be taken up again."""
        return self._last_id if self._last_id is not None and _SENDABLE.fullmatch(self._last_id) else None

    def tap(self, status: int, headers: Mapping[str, str]) -> Reader | None:
        self.headers = headers
        self.begun = status == 200 and headers.get("Content-Type", "").partition(";")[0].strip().lower() == "text/event-stream"
        if not self.begun:
            return None
        if headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            return _encoded
        self._decoder = Decoder(self._max_bytes + _FIELDS)
        return self._read

    def _read(self, piece: bytes) -> bool:
        self._taken += len(piece)
        if self._taken > self._max_bytes + CHATTER and self._id is not None:
            raise too_large(200, self._max_bytes)
        try:
            for event in self._decoder.feed(piece):
                self._take(event)
        except SseError:
            raise too_large(200, self._max_bytes) from None
        self._last_id = self._decoder.last_id or self._last_id
        self.retry_ms = self._decoder.retry_ms if self._decoder.retry_ms is not None else self.retry_ms
        return self.response is not None

    def _take(self, event: Event) -> None:
        """Events without data only say where the stream is; of other kinds than `message` none is the protocol's."""
        if not event.data.strip() or event.event != "message" or self.response is not None:
            return
        try:
            message = jsonrpc.read(parse(event.data, max_depth=MAX_DEPTH))
        except (JsonError, RpcError):
            raise UpstreamFault("garbage", "the stream holds an event that can't be read", status=200) from None
        if not isinstance(message, Response):
            self._heard(message)
        elif message.id == self._id or (message.id is None and self._id is not None):
            self.response = message


def _encoded(piece: bytes) -> bool:
    raise UpstreamFault("garbage", "the stream has a content coding, which was not asked for", status=200)
