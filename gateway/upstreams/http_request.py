"""One HTTP tool: how its arguments become a request: target, headers and a body.

Every argument ends in exactly one place. Path parameters stay inside their segment, and no value can end a line or a header. What
can't be sent raises UpstreamFault `unsendable` before a connection is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit

from gateway.core.model import Json
from gateway.ports import Dispatch
from gateway.upstreams.credentials import NONE, Credentials
from gateway.upstreams.http_dial import Origin
from gateway.upstreams.sending import arguments_of, key_header, refuse_way, rfc3339, tool_definition, unsendable
from gateway.wire.json import dumps

PLACEHOLDER: Final = re.compile(r"\{([^{}]+)\}")
_SEPARATOR: Final = re.compile(r"[/\\]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_DOTS: Final = (".", "..")
_TRACE: Final = frozenset({"traceparent", "tracestate", "x-request-id"})
_DEADLINE: Final = ("gateway-deadline", "gateway-remaining-ms")
_OWN_HEADERS: Final = {"user-agent": "tool-call-gateway", "accept": "*/*", "accept-encoding": "identity"}
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(r"/[\x21\x22\x24-\x7e]*")
_WITH_CONTENT: Final = frozenset({"POST", "PUT", "PATCH"})
_NO_HEADERS: Final[Mapping[str, str]] = {}
FRAMING: Final = frozenset(
    ["connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"]
)
RESERVED: Final = FRAMING | _OWN_HEADERS.keys() | {*_DEADLINE}
"""Headers that no argument sets."""


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
        return tool_definition(self.name, self.description, self.input_schema, self.output_schema, self.annotations)

    def form(self, base_url: str, credentials: Credentials) -> Form:
        """What makes this tool's requests. Raises ValueError for what can't be put into one; the message shows no secret."""
        return Form(self, base_url, credentials)


class Form:
    """A tool's request with blanks: what doesn't depend on the call is computed once."""

    def __init__(self, tool: HttpTool, base_url: str, credentials: Credentials = NONE) -> None:
        """Raises ValueError for what could end a line or a header, or takes the framing out of our hands. It names no secret."""
        origin = Origin.of(base_url)
        self._tool = tool
        self._base = urlsplit(base_url).path.rstrip("/")
        self._start = f"{_token(tool.method)} "
        _target(self._base + PLACEHOLDER.sub("x", tool.path))
        self._in_path = PLACEHOLDER.findall(tool.path)
        fixed = {name: value for name, value in tool.headers.items() if not PLACEHOLDER.fullmatch(value)}
        own = {"host": origin.authority, **_OWN_HEADERS} | ({"content-type": "application/json"} if tool.sends_body else {})
        configured = own | _checked(fixed) | _checked(credentials.headers)
        reserved = configured.keys() | credentials.header_names | {*_DEADLINE}
        blank = _checked({name: value[1:-1] for name, value in tool.headers.items() if name not in fixed})
        self._in_headers = {name: argument for name, argument in blank.items() if name not in reserved}
        self._placed = {*self._in_path, *tool.query, *blank.values()}
        self._trace = _TRACE - reserved
        self._taken = FRAMING | reserved
        self._end = " HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in configured.items() if name not in _DEADLINE)
        self._query = [credentials.query_text] if credentials.query else []
        self._in_query = [name for name in tool.query if name not in credentials.query]
        self._says_length = tool.sends_body or tool.method in _WITH_CONTENT

    def filled(self, dispatch: Dispatch, remaining_ms: int, bearer: str | None = None) -> bytes:
        """One attempt's whole request, as it goes over the wire. `bearer`: the token that the credentials' endpoint gave."""
        arguments = dispatch.arguments
        if dispatch.send_as is not None:
            refuse_way(dispatch, "meta")
            arguments = arguments_of(dispatch)
        body, typed = self._body(arguments)
        headers = self._headers(arguments, dispatch)
        if typed:
            headers |= typed
        head = f"{self._start}{self._url(arguments)}{self._end}"
        for name, value in headers.items():
            head += f"{name}: {value}\r\n"
        head += f"gateway-deadline: {rfc3339(dispatch.deadline_at)}\r\ngateway-remaining-ms: {remaining_ms}\r\n"
        if self._says_length or body:
            head += f"content-length: {len(body)}\r\n"
        if bearer is not None:
            head += f"authorization: Bearer {bearer}\r\n"
        return f"{head}\r\n".encode("ascii") + body

    def _headers(self, arguments: Mapping[str, Json], dispatch: Dispatch) -> dict[str, str]:
        """Those that depend on the call; none is among those that all requests have. Of equal ones the last counts."""
        headers = {}
        for name, value in dispatch.trace.items():
            if name in self._trace and _HEADER_VALUE.fullmatch(value):
                headers[name] = value
        for name, argument in self._in_headers.items():
            if argument in arguments:
                headers[name] = _header_value(argument, arguments[argument])
        if dispatch.send_as is not None:
            headers |= self._key_header(dispatch)
        return headers

    def _key_header(self, dispatch: Dispatch) -> dict[str, str]:
        header = key_header(dispatch)
        for name, value in header.items():
            if name in self._taken or not _TOKEN.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise unsendable(f"the key can't be sent as the header {name[:64]!r}, which is taken or no header")
        return header

    def _url(self, arguments: Mapping[str, Json]) -> str:
        """The request's target: the path and query of the URL."""
        path = self._base + (self._path(arguments) if self._in_path else self._tool.path)
        if not self._in_query and not self._query:
            return path
        pairs = self._query + [f"{quote(name, safe='')}={text}" for name in self._in_query for text in _query_texts(arguments.get(name))]
        return f"{path}?{'&'.join(pairs)}" if pairs else path

    def _in_segment(self, name: str, arguments: Mapping[str, Json]) -> str:
        return path_text(name, _text(name, arguments.get(name)))

    def _path(self, arguments: Mapping[str, Json]) -> str:
        path = PLACEHOLDER.sub(lambda found: self._in_segment(found[1], arguments), self._tool.path)
        for blank, filled in zip(self._tool.path.split("/"), path.split("/"), strict=True):
            if blank != filled and filled in ("", *_DOTS):
                raise unsendable(f"the arguments make the path segment {blank!r} into {filled!r}")
        return path

    def _body(self, arguments: Mapping[str, Json]) -> tuple[bytes, Mapping[str, str]]:
        """And the headers that only this call's body has."""
        rest = {name: value for name, value in arguments.items() if name not in self._placed} if self._placed else arguments
        if self._tool.sends_body:
            return dumps(rest), _NO_HEADERS
        if rest:
            raise unsendable(f"the tool's request has no place for {', '.join(sorted(rest))[:200]}")
        return b"", _NO_HEADERS


def path_text(name: str, text: str) -> str:
    """A text as a part of one segment. Raises UpstreamFault for what could leave it."""
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


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    """With lower-case names. Raises ValueError."""
    for name, value in headers.items():
        if _token(name).lower() in FRAMING:
            raise ValueError(f"the header {name} can't be set: it belongs to the connection or the message's framing")
        if not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"the value of the header {name} has characters other than visible ASCII and spaces")
    return {name.lower(): value for name, value in headers.items()}


def _token(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"{text[:64]!r} is no method and no header's name")
    return text


def _target(text: str) -> None:
    if not _TARGET.fullmatch(text):
        raise ValueError(f"the path {text[:200]!r} doesn't begin with / or has characters that a URL writes in percent signs")
