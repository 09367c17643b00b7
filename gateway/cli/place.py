"""Where a command works: the deployment file, the ledger opened read-only, the running gateway."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from gateway.cli.output import Failure
from gateway.core.streams import empty, evolve
from gateway.ledger.sqlite import SqliteLedger
from gateway.settings import Settings, load_settings
from gateway.source import SourceError
from gateway.system import SystemClock

KEY_VARIABLE = "GATEWAY_KEY"


def settings(path: str) -> Settings:
    """The deployment file, or a Failure that names every mistake."""
    try:
        return load_settings(path, os.environ)
    except SourceError as wrong:
        raise Failure(str(wrong)) from None


@asynccontextmanager
async def reading(path: str) -> AsyncIterator[SqliteLedger]:
    """The ledger of a deployment, read-only, whether the gateway runs or not."""
    found = settings(path).ledger.sqlite
    if found is None or not found.exists():
        raise Failure(f"There is no ledger at {found}; it is made when the gateway first serves.")
    ledger = SqliteLedger(found, empty=empty, evolve=evolve, clock=SystemClock(), readonly=True)
    await ledger.open()
    try:
        yield ledger
    finally:
        await ledger.close()


def asked(path: str, url: str | None, method: str, route: str, body: Any = None) -> Any:
    """Ask the running gateway with the user's key; its refusal becomes a Failure in its own words."""
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        raise Failure(f"Set {KEY_VARIABLE} to your key; the gateway takes this only from an authenticated person.")
    base = url or address(settings(path))
    try:
        answer = httpx.request(method, base + route, json=body, headers={"Authorization": f"Bearer {key}"}, timeout=30)
    except httpx.HTTPError as fault:
        raise Failure(f"The gateway at {base} can't be reached: {fault}. Start it with `gateway serve`.") from None
    try:
        said = answer.json()
    except ValueError:
        raise Failure(f"{base}{route} answered {answer.status_code} without JSON; is this a gateway?") from None
    if answer.is_error:
        raise Failure(f"{said.get('reason', answer.status_code)}: {said.get('detail', '')} {said.get('hint', '')}".strip())
    return said


def address(found: Settings) -> str:
    scheme = "https" if found.tls else "http"
    host = f"[{found.listen.host}]" if ":" in found.listen.host else found.listen.host
    return f"{scheme}://{host}:{found.listen.port}"
