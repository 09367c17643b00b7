"""Where a command works: the deployment file, the ledger opened read-only, the running gateway."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from gateway.app_adapters import ledger
from gateway.cli.arguments import KEY_VARIABLE
from gateway.cli.output import Failure
from gateway.doors.render import visible
from gateway.ledger.ledger import StoreLedger
from gateway.settings import Settings, load_settings
from gateway.source import SourceError
from gateway.system import SystemClock


def shown(path: Path) -> str:
    """As short as it can be from here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def existing(path: str) -> Path:
    """The deployment file, absolute; it must be there."""
    if not Path(path).is_file():
        raise Failure(f"There is no {Path(path).absolute()}. Make one with `gateway init`, or name yours with --config.")
    return Path(path).absolute()


def settings(path: str) -> Settings:
    """The deployment file, or a Failure that names every mistake."""
    try:
        return load_settings(shown(existing(path)), os.environ)
    except SourceError as wrong:
        raise Failure(f"{path} can't be used:\n{wrong}") from None


@asynccontextmanager
async def reading(path: str) -> AsyncIterator[StoreLedger]:
    """The ledger of a deployment, read-only, whether the gateway runs or not."""
    found = settings(path)
    file = found.ledger.sqlite
    if file is not None and not file.exists():
        raise Failure(f"There is no ledger at {shown(file)}; it is made when the gateway first serves.")
    opened = ledger(found, SystemClock(), readonly=True)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


def own_key() -> str:
    """The user's key, from the environment."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key.isascii() or not key.isprintable() or not key:
        raise Failure(f"Set {KEY_VARIABLE} to your key, as in `{KEY_VARIABLE}=gwk_… gateway …`; the gateway has to know who asks.")
    return key


def asked(path: str, url: str | None, method: str, *route: str, body: Any = None) -> Any:
    """Ask the running gateway at /v1/ROUTE/… with the user's key; its refusal becomes a Failure in its own words."""
    key = own_key()
    base = (url or address(settings(path))).rstrip("/")
    target = "/".join((base, "v1", *(quote(step, safe="") for step in route)))
    try:
        answer = httpx.request(method, target, json=body, headers={"Authorization": f"Bearer {key}"}, timeout=30, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as fault:
        why = str(fault).rstrip(".")
        raise Failure(f"The gateway at {base} can't be reached: {why}. Start it with `gateway serve`, or name another with --url.") from None
    try:
        said = answer.json()
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise Failure(f"{target} answered {answer.status_code} without a JSON object; is this a gateway?")
    if answer.is_error:
        raise Failure(_refusal(answer.status_code, said))
    return said


def _refusal(status: int, said: dict[str, Any]) -> str:
    words = " ".join(str(said[name]) for name in ("detail", "hint") if said.get(name))
    about = f" ({KEY_VARIABLE} holds the key that was sent.)" if status == 401 else ""
    return visible(f"{said.get('reason', status)}: {words}{about}")


def address(found: Settings) -> str:
    """Where a gateway with these settings can be reached from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(found.listen.host, found.listen.host)
    return f"{'https' if found.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{found.listen.port}"
