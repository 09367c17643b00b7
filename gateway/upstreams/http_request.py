"""One HTTP tool: how its arguments become a URL, headers and a body.

Every argument ends in exactly one place. Path parameters stay inside their segment, and no value can end a line or a header. What
can't be sent raises UpstreamFault `unsendable` before a connection is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from yarl import URL

from gateway.core.model import Json
from gateway.ports import Dispatch
from gateway.upstreams.sending import arguments_of, key_header, refuse_way, rfc3339, unsendable
from gateway.wire.json import dumps

_PLACEHOLDER: Final = re.compile(r"\{([^{}]+)\}")
_SEPARATOR: Final = re.compile(r"[/\\]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_DOTS: Final = (".", "..")
_TRACE: Final = ("traceparent", "tracestate", "x-request-id")
_OWN_HEADERS: Final = {"user-agent": "tool-call-gateway", "accept-encoding": "identity"}


@dataclass(frozen=True, slots=True)
class HttpTool:
    """One operation as the deployment file describes it.

    `path`: `{name}` stands for an argument. `query`: arguments sent as query parameters. `headers`: fixed, or an argument as `{name}`
    alone. `sends_body`: what is left goes as one JSON object; without it, nothing may be left.
    """

    name: str
    description: str
    method: str
    path: str
    input_schema: Mapping[str, Json]
    sends_body: bool = False
    query: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    output_schema: Mapping[str, Json] | None = None
    annotations: Mapping[str, Json] = field(default_factory=dict)
    timeout_ms: int | None = None

    def definition(self) -> dict[str, Json]:
        """The tool in MCP's shape."""
        optional = {"outputSchema": self.output_schema, "annotations": self.annotations}
        required = {"name": self.name, "description": self.description, "inputSchema": self.input_schema}
        return required | {key: value for key, value in optional.items() if value}


class Form:
    """A tool's request with blanks: what doesn't depend on the call is computed once."""

    def __init__(self, tool: HttpTool, base_url: str, auth_headers: Mapping[str, str]) -> None:
        self._tool = tool
        self._base = base_url.rstrip("/")
        self._whole = URL(self._base + tool.path, encoded=True)
        self._in_path = _PLACEHOLDER.findall(tool.path)
        self._in_headers = {name: value[1:-1] for name, value in tool.headers.items() if _PLACEHOLDER.fullmatch(value)}
        own = {**_OWN_HEADERS, "content-type": "application/json"} if tool.sends_body else _OWN_HEADERS
        fixed = {name: value for name, value in tool.headers.items() if name not in self._in_headers}
        self._fixed = _lower({**own, **_lower(fixed), **_lower(auth_headers)})
        self._placed = {*self._in_path, *tool.query, *self._in_headers.values()}

    def filled(self, dispatch: Dispatch, remaining_ms: int) -> tuple[URL, dict[str, str], bytes | None]:
        """The URL, headers and body of one attempt."""
        refuse_way(dispatch, "meta")
        arguments = arguments_of(dispatch)
        headers = self._headers(arguments, dispatch.trace) | key_header(dispatch)
        headers["gateway-deadline"] = rfc3339(dispatch.deadline_at)
        headers["gateway-remaining-ms"] = str(remaining_ms)
        return self._url(arguments), headers, self._body(arguments)

    def _headers(self, arguments: Mapping[str, Json], trace: Mapping[str, str]) -> dict[str, str]:
        """What came with the call first, so that nothing in it can replace what the upstream is configured with."""
        headers = {name: trace[name] for name in _TRACE if _HEADER_VALUE.fullmatch(trace.get(name, "\n"))}
        for name, argument in self._in_headers.items():
            if argument in arguments:
                headers[name.lower()] = _header_value(argument, arguments[argument])
        return headers | self._fixed

    def _url(self, arguments: Mapping[str, Json]) -> URL:
        pairs = [f"{quote(name, safe='')}={text}" for name in self._tool.query for text in _query_texts(arguments.get(name))]
        if not pairs and not self._in_path:
            return self._whole
        url = self._base + self._path(arguments)
        return URL(f"{url}?{'&'.join(pairs)}" if pairs else url, encoded=True)

    def _path(self, arguments: Mapping[str, Json]) -> str:
        path = _PLACEHOLDER.sub(lambda found: _path_text(found[1], arguments.get(found[1])), self._tool.path)
        for blank, filled in zip(self._tool.path.split("/"), path.split("/"), strict=True):
            if blank != filled and filled in ("", *_DOTS):
                raise unsendable(f"the arguments make the path segment {blank!r} into {filled!r}")
        return path

    def _body(self, arguments: Mapping[str, Json]) -> bytes | None:
        rest = {name: value for name, value in arguments.items() if name not in self._placed}
        if rest and not self._tool.sends_body:
            raise unsendable(f"the tool's request has no place for {', '.join(sorted(rest))[:200]}")
        return dumps(rest) if self._tool.sends_body else None


def _path_text(name: str, value: Json) -> str:
    text = _text(name, value)
    if _CONTROL.search(text) or any(part in _DOTS for part in _SEPARATOR.split(text)):
        raise unsendable(f"argument {name!r} can't be part of a path: it has control characters, or '.' or '..' as a segment")
    return quote(text, safe="")


def _query_texts(value: Json) -> list[str]:
    """One text a parameter: none for null, one for each item of a list; objects as JSON."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    return [quote(item if isinstance(item, str) else dumps(item), safe="") for item in items]


def _header_value(name: str, value: Json) -> str:
    text = _text(name, value)
    if not _HEADER_VALUE.fullmatch(text):
        raise unsendable(f"argument {name!r} can't be a header: it has characters other than visible ASCII and spaces")
    return text


def _text(name: str, value: Json) -> str:
    if value is None or isinstance(value, (list, dict)):
        raise unsendable(f"argument {name!r} is wanted as a string, number or boolean")
    return value if isinstance(value, str) else dumps(value).decode()


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
