"""One REST operation as data: method, path, what it takes, what it answers, who performs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive

from gateway.core.model import Json
from gateway.doors.auth import Authenticator
from gateway.doors.problems import Problem
from gateway.doors.rest.checks import Schema
from gateway.engine import Caller, Engine
from gateway.wire.mcp import ListedNames

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One authenticated, checked request. `body` is {} where none was sent; `names` maps tools' listed names to their own."""

    engine: Engine
    authenticate: Authenticator
    names: Callable[[], ListedNames]
    caller: Caller
    path: Mapping[str, Any]
    query: Mapping[str, Any]
    body: Mapping[str, Json]
    headers: Headers
    receive: Receive


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: a JSON body with its status."""

    status: int
    body: Json
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """`path` in OpenAPI's form. `takes`: the body's schema, None for no body. `answers`: status -> schema, problems left out."""

    method: str
    path: str
    perform: Callable[[Exchange], Awaitable[Answer | Problem]]
    summary: str
    answers: Mapping[int, Schema]
    takes: Schema | None = None
    query: Mapping[str, Schema] = field(default_factory=dict)
