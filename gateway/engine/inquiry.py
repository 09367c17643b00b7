"""What the tool of a running call asks its client: one question at a time, answered by the client's next request or by nobody in time.

The call stays one call and one dispatch: the upstream waits inside its `send`, the flight stays in the air, the caller comes back with the
answers. Waiting takes the call's own time; a question ends a little before it, so that the tool can still end the call by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from gateway.core.model import Json, Question
from gateway.ports import Client, Clock, Unanswered

NO_ANSWER: Final = -1
"""JSON-RPC's code as the protocol shows it for a person who says no."""
_SPARED_MS: Final = 2_000


Answers = Mapping[str, Json] | Unanswered


class Inquiry:
    """`asked` is done while a question is open. `client`: for the dispatch; what it hears goes to who listens now."""

    def __init__(self, client: Client, clock: Clock, deadline_at: int) -> None:
        self.open: Question | None = None
        self.asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.listener = client
        self.client = Client(
            self._progress if client.progress else None, self._log if client.log else None, client.log_level, client.capabilities, self._ask
        )
        self._clock, self._deadline_at = clock, deadline_at
        self._answer: asyncio.Future[Mapping[str, Json]] = asyncio.get_running_loop().create_future()
        self._turn = asyncio.Lock()
        self._number = 0
        self._over = False

    def answer(self, number: int, answers: Answers) -> None:
        """For the question of this number; nothing happens if it is closed."""
        if self.open is None or self.open.number != number:
            return
        self._close()
        if isinstance(answers, Unanswered):
            self._answer.set_exception(answers)
        else:
            self._answer.set_result(answers)

    def end(self) -> None:
        """The gateway stops: whoever would answer can't come back to this process."""
        self._over = True
        if self.open is not None:
            self.answer(self.open.number, Unanswered(NO_ANSWER, "The gateway is stopping."))

    async def _ask(self, requests: Mapping[str, Json]) -> Mapping[str, Json]:
        async with self._turn:
            if self._over:
                raise Unanswered(NO_ANSWER, "The gateway is stopping.")
            self._number += 1
            self._answer = asyncio.get_running_loop().create_future()
            self.open = Question(self._number, requests)
            self.asked.set_result(None)
            left = self._deadline_at - self._clock.now_ms()
            nap = asyncio.ensure_future(self._clock.sleep(max(0, left - min(_SPARED_MS, left // 5))))
            watched: set[asyncio.Future[Any]] = {self._answer, nap}
            try:
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            finally:
                nap.cancel()
                self._close()
                del watched
            if not self._answer.done():
                raise Unanswered(NO_ANSWER, "The client did not answer in time.")
            try:
                return self._answer.result()
            finally:
                del self._answer  # like `watched` it may hold a refusal, which holds this frame

    def _close(self) -> None:
        if self.open is not None:
            self.open, self.asked = None, asyncio.get_running_loop().create_future()

    def _progress(self, params: Mapping[str, Json]) -> None:
        if self.listener.progress is not None:
            self.listener.progress(params)

    def _log(self, params: Mapping[str, Json]) -> None:
        if self.listener.log is not None:
            self.listener.log(params)
