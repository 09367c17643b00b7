"""What every kind of upstream does alike: the key where the policy wants it, the deadline as text, a tool's definition."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

from gateway.core.model import Json
from gateway.ports import Dispatch, UpstreamFault


def tool_definition(
    name: str, description: str, input_schema: Mapping[str, Json], output_schema: Mapping[str, Json] | None, annotations: Mapping[str, Json]
) -> dict[str, Json]:
    """A tool that the deployment describes, in MCP's shape."""
    optional = {"outputSchema": output_schema, "annotations": annotations}
    required = {"name": name, "description": description, "inputSchema": input_schema}
    return required | {key: value for key, value in optional.items() if value}


def arguments_of(dispatch: Dispatch) -> Mapping[str, Json]:
    """The arguments as they are sent: with the key among them if the policy says so."""
    if dispatch.send_as is not None and dispatch.send_as[0] == "argument":
        return {**dispatch.arguments, dispatch.send_as[1]: dispatch.key}
    return dispatch.arguments


def key_header(dispatch: Dispatch) -> dict[str, str]:
    """The header that carries the key, by its lower-case name; empty if the policy sends it otherwise."""
    match dispatch.send_as:
        case ("header", name):
            return {name.lower(): dispatch.key}
        case ("header_quoted", name):
            return {name.lower(): f'"{dispatch.key}"'}
    return {}


def refuse_way(dispatch: Dispatch, *ways: str) -> None:
    """Raises UpstreamFault for a key that this upstream can't carry: without it the call must not go out."""
    if dispatch.send_as is not None and dispatch.send_as[0] in ways:
        raise unsendable(f"the policy sends the key as {dispatch.send_as[0]}, which this kind of upstream has not")


def rfc3339(at_ms: int) -> str:
    """`2026-11-29T18:00:05.000Z`"""
    seconds, ms = divmod(at_ms, 1000)
    return f"{_second(seconds)}.{ms:03d}Z"


@lru_cache(maxsize=256)
def _second(at_s: int) -> str:
    """Kept, because the calls of a moment share theirs."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def unsendable(message: str) -> UpstreamFault:
    return UpstreamFault("unsendable", message)


def seconds_left(remaining_ms: int) -> float:
    """The time an attempt has. Raises UpstreamFault where there is none, so that nothing starts that can't end in time."""
    if remaining_ms <= 0:
        raise UpstreamFault("connect_timeout", "no time was left to send it")
    return remaining_ms / 1000
