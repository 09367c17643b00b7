"""Who stands for a client while a server works on its request: hears progress and logs, and has the server's questions answered.

A server of the session era asks by requests of its own. They go to whoever made the call, and are refused at once where nobody can answer:
no server waits for nothing. When the call ends, so do its questions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from gateway.ports import Ask, Client, Unanswered
from gateway.wire import jsonrpc, mcp_client
from gateway.wire.jsonrpc import Notification, Request
from gateway.wire.mcp_input import LEVELS, QUESTIONS

log = logging.getLogger("gateway.upstream")

PROGRESS: Final = "notifications/progress"
LOG: Final = "notifications/message"
MAX_OPEN: Final = 16
"""Questions of one call that may be open at once."""

_IT: Final = "question"


class Attendant:
    """`say` sends a message to the server; `otherwise` gets the notifications that are for no client in particular."""

    def __init__(self, client: Client, say: Callable[[dict[str, Any]], None], otherwise: Callable[[Notification], None]) -> None:
        self._client, self._say, self._otherwise = client, say, otherwise
        self._answering: set[asyncio.Task[None]] = set()

    def heard(self, message: Request | Notification) -> None:
        """What the server says before it answers."""
        if isinstance(message, Request):
            self._asked(message)
        elif message.method == PROGRESS:
            if self._client.progress is not None:
                self._client.progress(message.params)
        elif message.method == LOG:
            if self._client.log is not None and at_least(message.params.get("level"), self._client.log_level):
                self._client.log(message.params)
        else:
            self._otherwise(message)

    def end(self) -> None:
        """The call is over, one way or another."""
        for task in list(self._answering):
            task.cancel()

    def _asked(self, request: Request) -> None:
        ask = self._client.ask
        if request.method not in QUESTIONS or ask is None:
            self._say(mcp_client.answer_to(request))
        elif len(self._answering) >= MAX_OPEN:
            self._say(jsonrpc.error(request.id, jsonrpc.INVALID_REQUEST, f"{MAX_OPEN} questions of this call are open already"))
        else:
            task = asyncio.get_running_loop().create_task(self._answer(ask, request))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, ask: Ask, request: Request) -> None:
        refusal = jsonrpc.INTERNAL_ERROR, "the gateway could not have it answered"
        try:
            answers = await ask({_IT: {"method": request.method, "params": request.params}})
            if _IT in answers:
                self._say(jsonrpc.result(request.id, answers[_IT]))
                return
            refusal = jsonrpc.INTERNAL_ERROR, "the client left it unanswered"
        except Unanswered as nobody:
            refusal = nobody.code, nobody.message
        except asyncio.CancelledError:
            refusal = jsonrpc.INTERNAL_ERROR, "the call that it belongs to has ended"
        except Exception:  # a fault of ours; the server must not wait for it
            log.exception("a question of an upstream could not be passed on")
        self._say(jsonrpc.error(request.id, *refusal))


def at_least(level: object, wanted: str | None) -> bool:
    """Whether a log message is as grave as wanted; of an unknown level nothing is known."""
    if wanted not in LEVELS or level not in LEVELS:
        return True
    return LEVELS.index(str(level)) >= LEVELS.index(wanted)
