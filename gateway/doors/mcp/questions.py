"""Questions to a client of the session era: requests of ours on the stream of its POST, answered by POSTs of their own.

They wait in this process. An answer that no question waits for, because it came late or to another process, is refused where it arrives.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from gateway.core.model import Json
from gateway.ports import Unanswered
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Response

Say = Callable[[Mapping[str, Any]], None]


class Questions:
    def __init__(self) -> None:
        self._open: dict[tuple[str, str], asyncio.Future[Response]] = {}

    async def ask(self, session: str, say: Say, requests: Mapping[str, Any]) -> Mapping[str, Json] | Unanswered:
        """Each of `requests` (id -> {method, params}) under an id of its own; all results, or the client's first error."""
        posed = {name: (session, secrets.token_hex(8)) for name in requests}
        waiting = {name: asyncio.get_running_loop().create_future() for name in requests}
        self._open |= {posed[name]: waiting[name] for name in requests}
        try:
            for name, one in requests.items():
                say(jsonrpc.request(posed[name][1], one["method"], one.get("params")))
            answers = dict(zip(waiting, await asyncio.gather(*waiting.values()), strict=True))
        finally:
            for key in posed.values():
                del self._open[key]
        for answer in answers.values():
            if answer.error is not None:
                return Unanswered(answer.error["code"], answer.error["message"])
        return {name: answer.result for name, answer in answers.items()}

    def answered(self, session: str, response: Response) -> bool:
        """Does a question of this session wait for it?"""
        waiting = self._open.get((session, str(response.id)))
        if waiting is None or waiting.done():
            return False
        waiting.set_result(response)
        return True
